"""Published experiments repeated, comparisons with other simulators, and what the measured tables
of docs/ come from.

No distribution has it: it is run from a checkout. `python -m research experiment --list` shows the
experiments, and `python -m research.NAME` runs one of the comparisons beside this file.
"""
