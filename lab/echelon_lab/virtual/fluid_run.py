"""The target without packets: the fluid simulator, driven by a scenario."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

from echelon.model.errors import RunError
from echelon.model.progress import RUN, UNSEEN, CommandProgress
from echelon.planning.fluid import BackgroundFlow, FluidError, simulate
from echelon.planning.fluid.interval import Precision
from echelon.planning.policies.base import Patient, Policy, Searching
from echelon_lab.scenarios.results import ChosenPlan, PolicyRun, alone_iterations_s
from echelon_lab.scenarios.scenario import Background, Scenario
from echelon_lab.virtual.searching import report_search


def run(
    scenario: Scenario,
    label: str,
    make: Callable[[], Policy],
    progress: Callable[[str, int], None],
    *,
    ideal: bool = False,
    end_s: Fraction | None = None,
    listener: CommandProgress = UNSEEN,
) -> PolicyRun:
    """Run `scenario` under the policy that `make` makes.

    `progress(job, iteration)` is called for each finished iteration; `listener` is told what is
    being done.

    The model executes the plan; `ideal`: it gives flows the rates that the policy would give them
    if switches had a queue for each. It has no packets and no controller: of the transport only the
    windows and the length of packets matter, and controller settings have no effect. With `end_s`,
    jobs iterate until that time, in seconds, instead of as often as the scenario says. Raises
    `PlanError` for what the policy cannot plan, `RunError` if the run stalls.
    """
    if scenario.traffic:
        raise RunError(
            f"policy {label}: cross traffic ('{scenario.traffic[0].name}') uses TCP, which needs"
            " packets, and this target has none (use --target softswitch, or background traffic at"
            " a constant rate)"
        )
    policy = make()
    if isinstance(policy, Patient):
        policy.report = partial(_report, listener, label)
        if policy.simulated_iterations:
            listener.doing(f"{label}: searching for a plan")
    delays = {}
    for delay in scenario.delays:
        delays[delay.job, delay.worker, delay.iteration] = delay.delay_s
    precision = None
    if scenario.precise_from is not None:
        alone_s = alone_iterations_s(scenario)
        precision = Precision(alone_s, scenario.precise_from)
    try:
        result = simulate(
            scenario.jobs,
            scenario.fabric,
            policy,
            scenario.iterations if end_s is None else None,
            believed=scenario.believed_jobs,
            background=[_background(traffic) for traffic in scenario.background],
            delays=delays,
            until=scenario.until if end_s is None else end_s,
            on_iteration=progress,
            ideal=ideal,
            windows=scenario.transport.windows,
            stopping=precision,
        )
    except FluidError as error:
        raise RunError(f"policy {label}: {error}") from error
    plans = []
    if isinstance(policy, Searching):
        for group, chosen in policy.choices.items():
            plans.append(ChosenPlan.from_choice(group, chosen.candidate.label, chosen.choice))
    return PolicyRun(
        result.jobs,
        paths=result.plan.paths,
        plans=plans,
    )


def _background(traffic: Background) -> BackgroundFlow:
    bytes_per_s = Fraction(traffic.rate_bps, 8)
    return BackgroundFlow(traffic.name, traffic.src, traffic.dst, max_rate_Bps=bytes_per_s)


def _report(
    listener: CommandProgress,
    label: str,
    share: float,
) -> None:
    if share < 1:
        report_search(listener, label, share)
        return
    listener.begin(RUN)
    listener.doing(label)
