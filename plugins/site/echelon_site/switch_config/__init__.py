"""Queues of switches that do not rank, in the words of their own configuration.

In comes a fabric and how its ports serve their queues; out goes a configuration for each switch.
`queues` says what a port does in terms of no vendor, a dialect (`dialects`) says it in a vendor's,
and `command` is `echelon switch-config`. Begin with `queues`.
"""
