"""A class for each communicator of each job, for switches that rank nothing.

In come jobs, as for every policy. Out comes a plan in which all flows of a communicator have one
queue for good. `assignment` says which, `portfolio` which assignments a search compares, and
`policy` puts them together.
"""
