"""Policies, which decide who goes first, and the effect of their plans on jobs.

Pure: no clock, no sockets, no tasks.

In come jobs and a fabric. Out comes a `Plan`, and the times that it takes without packets. Begin
with `plan` and `policies`; `fluid` executes plans.

**Identity.** What is kept for each job from plan to plan is not changed in place. Where nothing
changed for a job, it gets the same object as in the last plan. So ``is`` means unchanged, and what
comes later skips the job without comparing. The reverse does not hold: another object may be equal.
"""
