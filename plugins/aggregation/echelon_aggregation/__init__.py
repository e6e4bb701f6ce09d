"""Aggregation in the network.

In come the values of a job's workers, cut into blocks; out goes the exact sum of each block, once,
to every worker. Begin reading with `echelon_aggregation.wire`, the packets, and
`docs/aggregation-protocol.md`, the rules.
"""
