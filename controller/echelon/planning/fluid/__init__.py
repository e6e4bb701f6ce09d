"""Flow-level simulation: jobs in closed loop on a network that executes a plan.

In come jobs, a fabric and a policy. Out come the times of iterations, flows and links, without
packets. Begin with `simulator`; `engine` is the same in C, and `native` its door.
"""

from echelon.planning.fluid.alone import alone_iteration_s, run_alone
from echelon.planning.fluid.network import FluidError
from echelon.planning.fluid.result import BackgroundFlow, FluidResult
from echelon.planning.fluid.simulator import simulate
from echelon.planning.windows import Windows

__all__ = [
    "BackgroundFlow",
    "FluidError",
    "FluidResult",
    "Windows",
    "alone_iteration_s",
    "run_alone",
    "simulate",
]
