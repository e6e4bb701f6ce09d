"""Exact flow-level simulation: jobs in closed loop on a network whose links are divided as a policy says."""

from echelon.fluid.alone import alone_iteration_s, run_alone
from echelon.fluid.network import FluidError
from echelon.fluid.result import BackgroundFlow, FluidResult
from echelon.fluid.simulator import simulate

__all__ = ["BackgroundFlow", "FluidError", "FluidResult", "alone_iteration_s", "run_alone", "simulate"]
