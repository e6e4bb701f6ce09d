"""Run a scenario under each of several policies."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from echelon.documents import DocumentError
from echelon.lab.scenarios.results import PolicyRun, alone_iterations_s
from echelon.lab.scenarios.scale import scaled
from echelon.lab.scenarios.scenario import PolicyChoice, Scenario, load_scenario, scenario_of
from echelon.lab.scenarios.stored_run import run_from_json, run_to_json
from echelon.lab.simulation.code import code_digest
from echelon.lab.simulation.comparison import PolicyComparison
from echelon.lab.simulation.places import FLUID, VIRTUAL, Runner, ideal_place, place, unwatched
from echelon.lab.simulation.points import PointStore, Stored
from echelon.policies import PlanError, PolicyChoiceError, make_policy
from echelon.progress import UNSEEN, CommandProgress

ScenarioLike = Scenario | Mapping[str, object] | str | Path
"""A scenario, the path of its file, or a document with the keys of such a file. Values of a document may be objects,
such as a `FabricSpec` or `JobSpec`s."""
OnIteration = Callable[[str, str, int], None]
"""A function that is told of each finished iteration: (label of the policy, job, iteration from 1)."""


def simulate(
    scenario: ScenarioLike,
    policies: Iterable[str | PolicyChoice] | None = None,
    *,
    target: str = FLUID,
    scale: Fraction | float | str = 1,
    ideal: bool = False,
    progress: OnIteration | None = None,
    keep: str | Path | None = None,
) -> PolicyComparison:
    """Run `scenario` under each of `policies` in virtual time, and return the results.

    `policies` are names such as ``"fair"`` and ``"echelon(order=setf)"``; None takes the scenario's own. `target` is
    ``"fluid"``, which executes plans without packets, or a target with virtual switches, such as ``"softswitch"``.
    `scale` multiplies rates and sizes (`lab.scenarios.scale`). On ``"fluid"``, `ideal` also runs each policy with the
    rates that it would ideally give. `keep` is a directory: policies that have finished are kept there until all have,
    so that an interrupted call continues where it was.

    Raises `DocumentError` for a bad scenario, policy, target or scale, `PlanError` for a policy that cannot plan it,
    and `RunError` for a run that breaks. All are `CodedError`s.
    """
    prepared = prepare(scenario, policies)
    factor = Fraction(scale)
    if factor != 1:
        prepared = scaled(prepared, factor).scenario
    runner = place(VIRTUAL, target)(unwatched, UNSEEN)
    return compare(
        prepared,
        target,
        runner,
        ideal_place(target) if ideal else None,
        None if keep is None else Path(keep),
        on_iteration=progress,
    )


def prepare(scenario: ScenarioLike, policies: Iterable[str | PolicyChoice] | None = None) -> Scenario:
    """Return the scenario that `scenario` stands for, with `policies` in place of its own unless they are None.

    A document needs neither a name nor, if `policies` are given, policies. Raises `DocumentError`.
    """
    try:
        choices = None if policies is None else tuple(dict.fromkeys(_choice(policy) for policy in policies))
    except PolicyChoiceError as error:
        raise DocumentError("policies", "", str(error), code=error.code) from None
    if isinstance(scenario, Mapping):
        document: dict[str, object] = {"scenario": "scenario", **scenario}
        if choices is not None:
            document["policies"] = choices
        return scenario_of(document, "scenario")
    loaded = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
    return loaded if choices is None else replace(loaded, policies=choices)


def compare(
    scenario: Scenario,
    target: str,
    runner: Runner,
    ideal: Runner | None = None,
    keep: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: CommandProgress = UNSEEN,
    on_iteration: OnIteration | None = None,
) -> PolicyComparison:
    """Run `scenario` under each of its policies with `runner`, and with `ideal` if that is given.

    `keep` is as for `simulate`; `settings` is everything besides the scenario and the target that determines the
    result, as JSON. `progress` is told of a stage whose parts are the iterations that the scenario asks for,
    `on_iteration` of each iteration. Raises what the runners raise.
    """
    progress.stage("measuring each job alone")
    kept = None if keep is None else _Kept(PointStore(keep), scenario, {"target": target, **(settings or {})})
    alone_s = alone_iterations_s(scenario)
    labelled = [
        (choice, label, run)
        for choice in scenario.policies
        for label, run in ((choice.label, runner), (f"{choice.label}, ideal", ideal))
        if run is not None
    ]
    found = {label: kept.get(choice, label) if kept else None for choice, label, _ in labelled}
    parts = scenario.iterations * len(scenario.jobs)
    finished = sum(run is not None for run in found.values())
    progress.stage("running", parts * len(labelled), "iterations", kept=parts * finished)
    runs: dict[str, PolicyRun] = {}
    for choice, label, run in labelled:
        if (measured := found[label]) is None:
            progress.doing(label)
            make = partial(make_policy, choice.name, **dict(choice.parameters))
            try:
                measured = run(scenario, label, make, _told(scenario, label, progress, on_iteration))
            except PlanError as error:
                raise PlanError(f"policy {label}: {error}", error.job, code=error.code) from None
            if kept:
                kept.put(choice, label, measured)
        runs[label] = measured
    if kept:
        kept.forget()
    return PolicyComparison(scenario, target, runs, alone_s)


def scenario_digest(scenario: Scenario) -> str:
    """Return a digest of everything in a scenario that determines a run under some policy."""
    determined = replace(scenario, name="", description="", file=Path(), policies=())
    return hashlib.sha256(repr(determined).encode()).hexdigest()


class _Kept:
    """The finished policies of a comparison that is under way."""

    def __init__(self, store: PointStore, scenario: Scenario, settings: Mapping[str, Any]) -> None:
        self._store = store
        self._identity = {
            "scenario": scenario_digest(scenario),
            "code": code_digest(packets=settings["target"] != FLUID),
            **settings,
        }
        self._names: dict[str, str] = {}

    def get(self, choice: PolicyChoice, label: str) -> PolicyRun | None:
        self._names[label] = choice.name
        stored = self._store.get(choice.name, self._of(label))
        return None if stored is None else run_from_json(stored.result)

    def put(self, choice: PolicyChoice, label: str, run: PolicyRun) -> None:
        self._store.put(choice.name, Stored(self._of(label), run_to_json(run), 0.0))

    def forget(self) -> None:
        for label, name in self._names.items():
            self._store.remove(name, self._of(label))

    def _of(self, label: str) -> dict[str, Any]:
        return {**self._identity, "policy": label}


def _choice(policy: str | PolicyChoice) -> PolicyChoice:
    return policy if isinstance(policy, PolicyChoice) else PolicyChoice.parse(policy)


def _told(
    scenario: Scenario, label: str, progress: CommandProgress, on_iteration: OnIteration | None
) -> Callable[[str, int], None]:
    def told(job: str, iteration: int) -> None:
        # A job that is ahead of the others goes on until they have finished theirs.
        if iteration <= scenario.iterations:
            progress.done()
        if on_iteration is not None:
            on_iteration(label, job, iteration)

    return told
