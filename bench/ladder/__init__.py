"""The ladder: what each limit of the data plane costs, by taking away one at a time.

A plan runs on the fluid model, and then from packets on rung after rung (`rungs`): as the product
is, and with ports, hosts or packets that lack one of its limits, or know what no switch knows.
`fabric` makes such a fabric: the product's own switches and controller, on a library in C whose
ports (`ports.c`) stand in for softswitch's. `flows` tells them the truth about each iteration.
Nothing of this is in the product.
"""
