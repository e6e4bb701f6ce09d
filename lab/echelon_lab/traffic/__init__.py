"""Cross traffic: flows of hosts that belong to no training job, drawn from published distributions or read from files.

`sizes` and `models` draw flows, `schedule` is the file of them, `outcome` what became of them. `replay` sends them over
real sockets; on the virtual fabric, `echelon_lab.endhosts` plays the same flows.
"""
