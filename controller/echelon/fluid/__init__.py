"""Flow-level simulation: jobs in closed loop on a network that executes a plan."""

from echelon.fluid.alone import alone_iteration_s, run_alone
from echelon.fluid.native import available
from echelon.fluid.network import FluidError
from echelon.fluid.plan_execution import Windows
from echelon.fluid.result import BackgroundFlow, FluidResult
from echelon.fluid.simulator import simulate

__all__ = [
    "BackgroundFlow",
    "FluidError",
    "FluidResult",
    "Windows",
    "alone_iteration_s",
    "available",
    "run_alone",
    "simulate",
]
