"""The lab: runs of scenarios with emulated hosts, to see the controller and its switches at work.

In come a scenario, which is jobs, a fabric and policies, and the target that carries it. Out come iteration times,
pictures and a report. Begin with `simulation.run`; `virtual` and `hosts` are the two ways to run with packets.
"""
