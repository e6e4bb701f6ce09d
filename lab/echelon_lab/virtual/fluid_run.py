"""The target without packets: the fluid simulator, driven by a scenario."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

from echelon.model.errors import RunError
from echelon.model.progress import RUN, UNSEEN, CommandProgress
from echelon.planning.fluid import BackgroundFlow, FluidError, Windows, simulate
from echelon.planning.policies.base import Patient, Policy, Searching
from echelon_lab.endhosts.shim import ACK_BYTES
from echelon_lab.scenarios.results import ChosenPlan, PolicyRun
from echelon_lab.scenarios.scenario import Scenario
from echelon_lab.virtual.searching import report_search


def run(
    scenario: Scenario,
    label: str,
    make: Callable[[], Policy],
    progress: Callable[[str, int], None],
    *,
    ideal: bool = False,
    end_s: Fraction | None = None,
    shown: CommandProgress = UNSEEN,
) -> PolicyRun:
    """Run `scenario` under the policy that `make` makes; `progress(job, iteration)` is called for
    each finished iteration; `shown` is told what is being done.

    The model executes the plan; `ideal`: it gives flows the rates that the policy would give them
    if switches had a queue for each. It has no packets and no controller: of the transport only the
    windows matter, and controller settings have no effect. With `end_s`, jobs iterate until that
    time, in seconds, instead of as often as the scenario says. Raises `PlanError` for what the
    policy cannot plan, `RunError` if the run stalls.
    """
    if scenario.traffic:
        raise RunError(
            f"policy {label}: cross traffic ('{scenario.traffic[0].name}') uses TCP, which needs"
            " packets, and this target has none (use --target softswitch, or background traffic at"
            " a constant rate)"
        )
    transport = scenario.transport
    policy = make()
    if isinstance(policy, Patient):
        policy.report = partial(_report, shown, label)
        if policy.simulated_iterations:
            shown.doing(f"{label}: searching for a plan")
    try:
        result = simulate(
            scenario.jobs,
            scenario.fabric,
            policy,
            scenario.iterations if end_s is None else None,
            believed=scenario.believed_jobs,
            background=[
                BackgroundFlow(
                    traffic.name,
                    traffic.src,
                    traffic.dst,
                    max_rate_Bps=Fraction(traffic.rate_bps, 8),
                )
                for traffic in scenario.background
            ],
            delays={
                (delay.job, delay.worker, delay.iteration): delay.delay_s
                for delay in scenario.delays
            },
            until=scenario.until if end_s is None else end_s,
            on_iteration=progress,
            ideal=ideal,
            windows=Windows(
                transport.packet_bytes,
                transport.window_packets,
                transport.initial_window_packets,
                ACK_BYTES,
            ),
        )
    except FluidError as error:
        raise RunError(f"policy {label}: {error}") from error
    if isinstance(policy, Searching):
        found = policy.choices
    else:
        found = {}
    plans = [ChosenPlan.of(group, of.candidate.label, of.choice) for group, of in found.items()]
    return PolicyRun(result.jobs, paths=result.plan.paths, plans=plans)


def _report(shown: CommandProgress, label: str, share: float) -> None:
    if share < 1:
        report_search(shown, label, share)
        return
    shown.begin(RUN)
    shown.doing(label)
