"""The measurements behind `echelon advise`: in stages, within a budget of time.

In comes a scenario and the policies to compare, out come estimates that get better (`campaign`). A
stage says how long and how coarse its runs are (`stages`), and processes do the runs (`crew`).
"""
