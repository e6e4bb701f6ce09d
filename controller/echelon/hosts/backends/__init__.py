"""Fabrics of real interfaces: hosts in network namespaces, switches as processes between them.

`base` has the protocol and the registry, `namespaces` and `mininet` build the interfaces, `switches` starts what is
between them. Everything is to run in `echelon.hosts.sandbox`, so that nothing of it outlives the run.
"""
