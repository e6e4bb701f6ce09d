"""CASSINI: jobs shifted in time so that they communicate in turn.

Source: Rajasekaran, Ghobadi and Akella, CASSINI: Network-Aware Job Scheduling in Machine Learning
Clusters, NSDI '24 (arXiv 2308.00852). `circle` is its geometric abstraction, one link at a time;
`affinity` makes the rotations of all links agree; `shifts` computes both for jobs on a fabric;
`policy` enforces the result.
"""
