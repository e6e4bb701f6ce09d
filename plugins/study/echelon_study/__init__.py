"""Many runs, for papers: evaluations on random scenarios, sweeps, published experiments, coflow traces, placements.

A scenario or a sweep file comes in; tables, pictures and a report go out. `points` keeps each measurement as soon as it
is made, and spreads them over processes. Begin with `experiments/evaluation/tasks.py` or `sweeps/run.py`.
"""
