"""TopoOpt (W. Wang et al., NSDI '23): direct connections between the hosts of a job, and its
parallelisation, in turn.

In come a job file and the number of ports of a host. Out come a fabric, whose hosts forward for
each other, and the job with the best parallelisation for it. Begin with `search`; each algorithm of
the paper is a module of its name.
"""
