"""Training jobs on real hosts: one process for each host that takes part, real sockets, real time.

`messages` has what a worker is told and what it tells, `worker` is the process (``python -m
echelon_lab.hosts.workers``), and `sockets` carries its flows. `coordinator` starts the workers and
is the other end of their sockets; `coordination` is the barrier between iterations and the records,
without I/O.
"""
