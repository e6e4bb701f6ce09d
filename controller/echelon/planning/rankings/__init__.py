"""The ways in which a switch ranks packets, a module for each, named as its P4 control.

In come a packet's age or size and a flow's parameters. Out come the packet's queue, for switches
without packets, and the parameters of table entries, for those with. Begin with `base`.
"""
