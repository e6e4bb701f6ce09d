"""A class for each communicator of each job, for switches that serve queues by DSCP and rank nothing.

In come jobs, as for every policy. Out comes a plan in which all flows of a communicator have one
queue for good. `communicators` says which EchelonFlows are one, `assignment` which queue it has,
`portfolio` which assignments a search compares, and `policy` puts them together.
"""
