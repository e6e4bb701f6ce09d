"""Run a scenario under each of several policies: in virtual time, or on real hosts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from echelon.model.documents import DocumentError, suggestion
from echelon.model.progress import UNSEEN, CommandProgress, Phase
from echelon.planning.policies import PolicyChoiceError
from echelon.planning.policies.base import Policy
from echelon_lab import FLUID, VIRTUAL
from echelon_lab.comparison import (
    KEEPING,
    PolicyComparison,
    expected_iterations,
    expected_records,
    writing_phases,
)
from echelon_lab.points.store import PointStore, Stored, code_digest, run_from_json, run_to_json
from echelon_lab.scenarios.results import MOST_ROWS, PolicyRun, alone_iterations_s
from echelon_lab.scenarios.scale import scaled
from echelon_lab.scenarios.scenario import PolicyChoice, Scenario, load_scenario, scenario_of
from echelon_lab.side_by_side import POLICIES, SideBySide
from echelon_lab.traffic.schedule import Schedule
from echelon_lab.turns import (
    OnIteration,
    Rounds,
    Runner,
    Start,
    Turn,
    Watch,
    all_phases,
    in_order,
    unwatched,
)

FABRICS = (VIRTUAL, "namespaces", "mininet")
BUDGET = 10
"""The most times its iterations that a run lasts until it is precise."""


def place(fabric: str, target: str) -> Start:
    """Return a function that gives the runner of a target on a fabric.

    Raises `DocumentError` for an unknown fabric or target, and for two that do not go together.
    """
    from echelon.switches.targets import TARGETS

    if fabric not in FABRICS:
        reason = f"unknown fabric '{fabric}' ({suggestion(fabric, FABRICS)})"
        raise DocumentError("--on", "", reason)
    if target != FLUID and target not in TARGETS:
        reason = f"unknown target '{target}' ({suggestion(target, (FLUID, *TARGETS))})"
        raise DocumentError("--target", "", reason, code="unknown-target")
    if not _goes_together(fabric, target):
        fitting = " or ".join(name for name in FABRICS if _goes_together(name, target)) or "none"
        reason = f"{target} does not run on the {fabric} fabric (add --on {fitting})"
        raise DocumentError("--target", "", reason)
    if fabric != VIRTUAL:
        return partial(_on_hosts, fabric, target)
    if target == FLUID:
        return _fluid
    return partial(_virtual, target)


def ideal_place(target: str) -> Runner:
    """Return the runner of the rates that policies would ideally give.

    Raises `DocumentError` unless it is `FLUID`.
    """
    if target != FLUID:
        reason = (
            f"{target} has queues, which is what an ideal run does without (add --target {FLUID})"
        )
        raise DocumentError("--ideal", "", reason)
    from echelon_lab.virtual.fluid_run import run

    return partial(run, ideal=True)


def prolonged(scenario: Scenario, target: str) -> Scenario:
    """Return the scenario with runs that end as soon as their mean slowdown is precise.

    They last `BUDGET` times its iterations at most. Raises `DocumentError` where that is impossible.
    """
    if target != FLUID:
        reason = f"goes with --target {FLUID} only (give {target} more iterations)"
        raise DocumentError("--until-precise", "", reason)
    if scenario.until != "all-done":
        reason = f"does not go with until: {scenario.until}, under which the load does not stay"
        raise DocumentError("--until-precise", "", f"{reason} (remove that line)")
    iterations = scenario.iterations
    return replace(scenario, iterations=BUDGET * iterations, precise_from=iterations)


def _goes_together(fabric: str, target: str) -> bool:
    from echelon.switches.targets import TARGETS

    if target == FLUID:
        return fabric == VIRTUAL
    if fabric == VIRTUAL:
        return TARGETS[target].virtual_fabric() is not None
    return TARGETS[target].launcher() is not None


def _fluid(watch: Watch, progress: CommandProgress) -> Runner:
    from echelon_lab.virtual.fluid_run import run

    return partial(run, listener=progress)


def _virtual(
    target: str,
    watch: Watch,
    progress: CommandProgress,
) -> Runner:
    from echelon_lab.virtual.judging import judged
    from echelon_lab.virtual.run import run

    def runner(
        scenario: Scenario,
        label: str,
        make: Callable[[], Policy],
        on_iteration: Callable[[str, int], None],
    ) -> PolicyRun:
        offered = judged(make, scenario, target)
        return run(scenario, label, offered, on_iteration, target=target, listener=progress)

    return runner


def _on_hosts(
    backend: str,
    target: str,
    watch: Watch,
    progress: CommandProgress,
) -> Runner:
    from echelon_lab.hosts.run import run

    return partial(
        run,
        backend=backend,
        target=target,
        watch=watch,
        listener=progress,
    )


ScenarioLike = Scenario | Mapping[str, object] | str | Path
"""A scenario, the path of its file, or a document with the keys of such a file.

Values of a document may be objects, such as a `FabricSpec` or `JobSpec`s.
"""


def simulate(
    scenario: ScenarioLike,
    policies: Iterable[str | PolicyChoice] | None = None,
    *,
    target: str = FLUID,
    scale: Fraction | float | str = 1,
    ideal: bool = False,
    until_precise: bool = False,
    progress: OnIteration | None = None,
    keep: str | Path | None = None,
) -> PolicyComparison:
    """Run `scenario` under each of `policies` in virtual time, and return the results.

    `policies` are names such as ``"fair"`` and ``"echelon(order=setf)"``; None takes the scenario's
    own. `target` is ``"fluid"``, which executes plans without packets, or a target with virtual
    switches, such as ``"softswitch"``. `scale` multiplies rates and sizes (`lab.scenarios.scale`).
    On ``"fluid"``, `ideal` also runs each policy with the rates that it would ideally give, and
    runs `until_precise` go on until the 95 % interval of the mean slowdown is within 1 %, for at
    most `BUDGET` times the iterations. `keep` is a directory: policies that have finished are kept
    there until all have, so that an interrupted call continues where it was.

    Raises `DocumentError` for a bad scenario, policy, target or scale, `PlanError` for a policy
    that cannot plan it, and `RunError` for a run that breaks. All are `CodedError`s.
    """
    prepared = prepare(scenario, policies)
    factor = Fraction(scale)
    if factor != 1:
        prepared = scaled(prepared, factor).scenario
    if until_precise:
        prepared = prolonged(prepared, target)
    runner = place(VIRTUAL, target)(unwatched, UNSEEN)
    ideal_runner = None
    if ideal:
        ideal_runner = ideal_place(target)
    directory = None
    if keep is not None:
        directory = Path(keep)
    return compare(prepared, target, runner, ideal_runner, directory, on_iteration=progress)


def prepare(
    scenario: ScenarioLike, policies: Iterable[str | PolicyChoice] | None = None
) -> Scenario:
    """Return the scenario that `scenario` stands for.

    `policies` replace its own unless they are None.

    A document needs neither a name nor, if `policies` are given, policies. Raises `DocumentError`.
    """
    choices = None
    try:
        if policies is not None:
            choices = tuple(dict.fromkeys(_choice(policy) for policy in policies))
    except PolicyChoiceError as error:
        raise DocumentError("policies", "", str(error), code=error.code) from None
    if isinstance(scenario, Mapping):
        document: dict[str, object] = {"scenario": "scenario", **scenario}
        if choices is not None:
            document["policies"] = choices
        return scenario_of(document, "scenario")
    if isinstance(scenario, Scenario):
        loaded = scenario
    else:
        loaded = load_scenario(scenario)
    if choices is None:
        return loaded
    return replace(loaded, policies=choices)


def compare(
    scenario: Scenario,
    target: str,
    runner: Runner,
    ideal: Runner | None = None,
    keep: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: CommandProgress = UNSEEN,
    on_iteration: OnIteration | None = None,
    to_write: bool = False,
    every_flow: bool = False,
    processes: SideBySide | None = None,
) -> PolicyComparison:
    """Run `scenario` under each of its policies with `runner`, and with `ideal` if that is given.

    `keep` is as for `simulate`; `settings` is everything besides the scenario and the target that
    determines the result, as JSON. `progress` is told of a stage whose parts are the iterations
    that the scenario asks for, and of its phases, which include the writing of the results if these
    are `to_write`; `on_iteration` is told of each iteration. The results list `every_flow`, or
    those of the first iterations. Policies run side by side in `processes` if these are given, then
    without `on_iteration`. Raises what the runners raise.
    """
    progress.stage("measuring each job alone")
    kept = None
    if keep is not None:
        kept = _Kept(PointStore(keep), scenario, {"target": target, **(settings or {})})
    alone_s = alone_iterations_s(scenario)
    turns = []
    for choice in scenario.policies:
        turns.append(Turn(choice, choice.label, runner, is_ideal=False))
        if ideal is not None:
            turns.append(Turn(choice, f"{choice.label}, ideal", ideal, is_ideal=True))
    finished: dict[str, PolicyRun] = {}
    if kept is not None:
        finished = kept.runs(turns)
    due = in_order([turn for turn in turns if turn.label not in finished])

    records = expected_records(scenario, alone_s)
    kept_records = 0.0
    if kept is not None:
        kept_records = records
    if len(due) < 2:
        # A single turn is as fast here, and is kept in a phase of its own.
        processes = None
    if processes is not None:
        phases = [Phase(POLICIES)]
        runs_due = processes.runs(scenario, target, due, progress)
    else:
        phases = all_phases(due, scenario, target, kept_records)
        runs_due = _one_by_one(scenario, due, progress, on_iteration)
    if to_write:
        if every_flow:
            written = records
        else:
            written = min(records, 2 * MOST_ROWS)
        phases += writing_phases(written * len(turns))
    progress.expect(phases)
    parts = scenario.iterations * len(scenario.jobs)
    already = parts * (len(turns) - len(due))
    progress.stage("running", parts * len(turns), "iterations", kept=already)
    for turn, measured in runs_due:
        if kept is not None:
            # Beside others, that is no phase of its own, and none of this name is ahead.
            if processes is None:
                progress.begin(KEEPING)
            progress.doing(f"{turn.label}: keeping the results")
            kept.put(turn, measured)
        finished[turn.label] = measured
    if kept is not None:
        kept.forget(turns)
    runs = {turn.label: finished[turn.label] for turn in turns}
    return PolicyComparison(scenario, target, runs, alone_s, every_flow)


def _one_by_one(
    scenario: Scenario,
    turns: Sequence[Turn],
    progress: CommandProgress,
    on_iteration: OnIteration | None,
) -> Iterator[tuple[Turn, PolicyRun]]:
    """Do the turns in this process, and yield each with its run."""
    for turn in turns:
        progress.doing(turn.label)
        progress.begin()
        rounds = Rounds(scenario, turn.label, progress, on_iteration)
        yield turn, turn.measured(scenario, rounds)


def scenario_digest(scenario: Scenario) -> str:
    """Return a digest of everything in a scenario that determines a run under some policy."""
    determined = replace(
        scenario,
        name="",
        description="",
        file=Path(),
        policies=(),
    )
    return hashlib.sha256(repr(determined).encode()).hexdigest()


class _Kept:
    """The finished policies of a comparison that is under way."""

    def __init__(
        self,
        store: PointStore,
        scenario: Scenario,
        settings: Mapping[str, Any],
    ) -> None:
        self._store = store
        self._identity = {
            "scenario": scenario_digest(scenario),
            "code": code_digest(packets=settings["target"] != FLUID),
            **settings,
        }

    def runs(self, turns: Sequence[Turn]) -> dict[str, PolicyRun]:
        """Return the runs of the turns that have finished, by label."""
        runs = {}
        for turn in turns:
            stored = self._store.get(turn.choice.name, self._turn_identity(turn))
            if stored is not None:
                runs[turn.label] = run_from_json(stored.result)
        return runs

    def put(self, turn: Turn, run: PolicyRun) -> None:
        stored = Stored(self._turn_identity(turn), run_to_json(run), 0.0)
        self._store.put(turn.choice.name, stored)

    def forget(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            self._store.remove(turn.choice.name, self._turn_identity(turn))

    def _turn_identity(self, turn: Turn) -> dict[str, Any]:
        return {**self._identity, "policy": turn.label}


def _choice(policy: str | PolicyChoice) -> PolicyChoice:
    if isinstance(policy, PolicyChoice):
        return policy
    return PolicyChoice.parse(policy)


LONG_S = 600.0
"""The duration in seconds above which `echelon run` asks before it starts."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected effort of a run under all policies of a scenario."""

    packets: int
    """Packets that hosts send, acknowledgements included."""
    switch_packets: int
    """The same, counted at each switch on their way."""
    switch_packets_per_s: int
    """A round number of those that the target handles in a second of real time."""

    @property
    def duration_s(self) -> float:
        """Return the expected duration in real seconds."""
        return self.switch_packets / self.switch_packets_per_s

    @property
    def text(self) -> str:
        """Return the estimate as a sentence."""
        minutes = self.duration_s / 60
        if minutes < 120:
            duration = f"{minutes:.0f} minutes"
        else:
            duration = f"{minutes / 60:.0f} hours"
        return (
            f"about {self.packets:.2g} packets, {self.switch_packets:.2g} counted at each switch:"
            f" about {duration} (at {self.switch_packets_per_s} a second; --scale makes them fewer)"
        )


def estimate(scenario: Scenario, target: str) -> Estimate:
    """Return the expected effort of `scenario` on packets under all of its policies.

    It assumes that each job runs as fast as alone, and that jobs which wait for the slowest iterate
    until then. It ignores losses. Raises `PlanError` for a job that cannot run.
    """
    from echelon.switches.targets import TARGETS

    transport = scenario.transport
    alone_s = alone_iterations_s(scenario)
    length_s = scenario.iterations * max(alone_s.values())
    # Streams may acknowledge more often; the estimate is one for most policies.
    acknowledged = transport.windows.together
    packets = 0
    switch_packets = 0
    iterations_by_job = expected_iterations(scenario, alone_s)
    for job in scenario.jobs:
        iterations = iterations_by_job[job.name]
        for flow in job.flows:
            sent = math.ceil(flow.size_bytes / transport.packet_bytes)
            sent += math.ceil(sent / acknowledged)
            packets += round(sent * iterations)
            switch_packets += round(sent * iterations * _switches(scenario, flow.src, flow.dst))
    for src, dst, rate_bps, packet_bytes in _traffic(scenario, length_s):
        sent = round(rate_bps * length_s / 8 / packet_bytes)
        packets += sent
        switch_packets += sent * _switches(scenario, src, dst)
    policies = len(scenario.policies)
    packets_per_s = TARGETS[target].virtual_packets_per_s()
    return Estimate(packets * policies, switch_packets * policies, packets_per_s)


def _traffic(scenario: Scenario, length_s: Fraction) -> Iterator[tuple[str, str, Fraction, int]]:
    """Yield source, destination, bits per second and packet length of traffic of no job."""
    for traffic in scenario.background:
        yield traffic.src, traffic.dst, Fraction(traffic.rate_bps), traffic.packet_bytes
    for source in scenario.traffic:
        flows = source.flows
        pairs = source.pairs
        if isinstance(flows, Schedule):
            duration_s = max(length_s, Fraction(flows.duration_us, 10**6))
            load_bps = Fraction(8 * flows.total_bytes) / duration_s
        else:
            load_bps = Fraction(flows.load_bps)
        # Every segment is acknowledged; with delayed acknowledgements, every second one.
        pair_bps = load_bps * Fraction(3, 2) / len(pairs)
        for src, dst in pairs:
            yield src, dst, pair_bps, scenario.transport.packet_bytes


def _switches(
    scenario: Scenario,
    src: str,
    dst: str,
) -> int:
    return len(scenario.fabric.shortest_paths.switches(src, dst)[0])
