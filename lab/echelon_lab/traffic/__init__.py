"""Cross traffic: flows of hosts that belong to no training job, drawn from published distributions
or read from files.

`sizes` and `models` draw flows, `schedule` is the file of them, `outcome` what became of them.
`replay` has both ends of sending them over real sockets, and `wire` what goes between; on the
virtual fabric, `echelon_lab.endhosts` plays the same flows.
"""
