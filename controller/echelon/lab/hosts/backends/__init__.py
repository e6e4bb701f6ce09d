"""Fabrics of real interfaces: hosts in network namespaces, and the interfaces of switch processes between them.

`base` has the protocol and the registry; `namespaces` and `mininet` build the interfaces. Everything must run in
`echelon.lab.hosts.sandbox`, so that nothing of it outlives the run.
"""
