"""The lab: runs of scenarios with emulated hosts, to see the controller and its switches at work.

In come a scenario, which is jobs, a fabric and policies, and the target that carries it. Out come
iteration times, pictures and a report. Begin with `run`; `virtual` and `hosts` are the two ways to
run with packets.
"""

FLUID = "fluid"
"""The place without switches: the fluid engine executes plans in virtual time."""
VIRTUAL = "virtual"
PRIVATE = frozenset({"namespaces", "mininet"})
"""The fabrics that build interfaces and processes, and therefore run in namespaces of their own."""
