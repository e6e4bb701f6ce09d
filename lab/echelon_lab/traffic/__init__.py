"""Cross traffic: flows that belong to no training job, drawn at random or read from files.

`sizes` has published distributions, from which `generators` draws flows. `schedule` is the file of
them, `outcome` what became of them. `replay` has both ends of sending them over real sockets, and
`wire` what goes between; on the virtual fabric, `echelon_lab.endhosts` plays the same flows.
"""
