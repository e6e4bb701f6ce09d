"""The target without packets: the exact fluid simulator, driven by a scenario."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from echelon.fluid import BackgroundFlow, FluidError, simulate
from echelon.policies.base import Policy
from echelon.scenarios.results import PolicyRun, RunError
from echelon.scenarios.scenario import Scenario


def run(scenario: Scenario, label: str, make: Callable[[], Policy], progress: Callable[[str, int], None]) -> PolicyRun:
    """Run `scenario` under the policy that `make` makes; `progress(job, iteration)` is told of each finished one.

    There are no packets and no controller in this model, so transport and controller settings have no effect. Raises
    `PlanError` for what the policy cannot plan, `RunError` if it stalls.
    """
    if scenario.traffic:
        raise RunError(
            f"policy {label}: cross traffic ('{scenario.traffic[0].name}') is TCP's, which needs packets: this target "
            "has none (use --target softswitch, or background traffic at a constant rate)"
        )
    try:
        result = simulate(
            scenario.jobs,
            scenario.fabric,
            make(),
            scenario.iterations,
            believed=scenario.believed_jobs,
            background=[
                BackgroundFlow(traffic.name, traffic.src, traffic.dst, max_rate_Bps=Fraction(traffic.rate_bps, 8))
                for traffic in scenario.background
            ],
            delays={(delay.job, delay.worker, delay.iteration): delay.delay_s for delay in scenario.delays},
            until=scenario.until,
            on_iteration=progress,
        )
    except FluidError as error:
        raise RunError(f"policy {label}: {error}") from error
    return PolicyRun(result.jobs)
