"""Training jobs on real hosts: one process for each host that takes part, real sockets, real time.

`execution` is one worker's part of a job, `coordination` the barrier between iterations and the records, both without
I/O; `assignment` and `messages` are what a worker is told and what it tells; `loop`, `shim_sockets`, `tcp`, `computing`
and `worker` are the process (``python -m echelon.lab.hosts.workers``); `coordinator` is the other end of its socket.
"""
