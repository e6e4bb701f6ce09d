"""The agent of a training host: it reports a job's TCP connections to the service.

`cgroups` and `processes` say which sockets are a job's. `program` has the kernel tell of
connections as they open and close; `sockets` reads what there is. `connections` puts both together,
`iterations` tells where iterations begin, and `reporting` keeps the service up to date.
"""
