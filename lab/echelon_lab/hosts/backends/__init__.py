"""Fabrics of real interfaces.

Hosts are in network namespaces, the interfaces of switch processes between them.

`base` has the protocol, the registry and the fabric of namespaces, `mininet` that of Mininet.
Everything must run in `echelon_lab.hosts.sandbox`, so that nothing of it outlives the run.
"""
