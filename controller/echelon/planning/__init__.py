"""Who goes first: policies, and what their plans do to jobs. Pure: no clock, no sockets, no tasks.

In come jobs and a fabric. Out comes a `Plan`, and the times that it takes without packets. Begin
with `plan` and `policies`; `fluid` executes plans.
"""
