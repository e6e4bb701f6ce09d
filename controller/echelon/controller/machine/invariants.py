"""The invariants of the machine, one function for each, and `check`.

Tests check them after every event, and so does `echelon serve --check-invariants`. An invariant
that does not hold is a fault of the controller, never of what clients or switches do. The machine
alone is asked: whether the store and the switches have what the machine thinks is for tests, which
have both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from echelon.controller.machine.effects import AdvanceMove, Effect
from echelon.controller.machine.wiring import ends_of
from echelon.model.fabric.model import Fabric, NoRouteError
from echelon.planning.paths import is_tree, links_of, switches_of

if TYPE_CHECKING:
    from echelon.controller.machine.machine import InForce, Machine
    from echelon.planning.plan import FlowPlan
    from echelon.switches.lowering.intent import Part

SEVERAL = ""
"""Stands for the job where not one alone is concerned."""
WITHOUT_SESSION = ("connecting", "away", "backup")
"""The states of a switch in which the controller does not know its entries."""

Breaches: TypeAlias = Iterator[tuple[str, str]]
"""The breaches of an invariant: the job, or `SEVERAL`, and what is wrong."""


class InvariantError(Exception):
    """The fault that an invariant does not hold."""

    def __init__(
        self,
        invariant: str,
        job: str,
        problem: str,
    ) -> None:
        self.invariant = invariant
        self.job = job
        self.problem = problem
        concerned = f" for job '{job}'" if job else ""
        super().__init__(f"invariant {invariant} does not hold{concerned}: {problem}")


def check(
    machine: Machine,
    todo: Iterable[Effect] = (),
    since: InForce | None = None,
) -> None:
    """Raise `InvariantError` for the first invariant that does not hold.

    `todo` are the effects of its last step. `since` is the plan that was in force at the last
    check: what follows from the plan alone is not checked again.
    """
    # A machine whose term is over only learns whether its last changes are saved.
    if machine.is_over:
        return
    for invariant in OF_JOBS:
        _raise_first(invariant.__name__, invariant(machine))
    if machine.in_force is not since:
        for invariant in OF_PLAN:
            _raise_first(invariant.__name__, invariant(machine))
    for effect in todo:
        if isinstance(effect, AdvanceMove):
            breaches = moving_links_are_out_of_use(machine, effect)
            _raise_first(moving_links_are_out_of_use.__name__, breaches)


def _raise_first(invariant: str, breaches: Breaches) -> None:
    for job, problem in breaches:
        raise InvariantError(invariant, job, problem)


# -- jobs, links, switches -------------------------------------------------------------------------


def job_numbers_differ(machine: Machine) -> Breaches:
    """Yield jobs that have the number of another one."""
    by_number: dict[int, str] = {}
    for name, job in machine.jobs.jobs.items():
        first = by_number.setdefault(job.number, name)
        if first != name:
            yield name, f"it has number {job.number}, as job '{first}' has"


def jobs_are_in_turn(machine: Machine) -> Breaches:
    """Yield jobs that a restart would put into another order."""
    jobs = machine.jobs.jobs.values()
    for before, after in pairwise(jobs):
        if (before.accepted_at, before.number) > (after.accepted_at, after.number):
            yield after.name, f"it comes after job '{before.name}', and before it after a restart"


def links_down_are_avoided(machine: Machine) -> Breaches:
    """Yield links that are down and that plans do not avoid, or the reverse."""
    if machine.outages_waiting:
        return
    expected = machine.outages.links.keys() if machine.reroutes else set()
    avoided = machine.jobs.down
    for a, b in sorted(expected - avoided):
        yield SEVERAL, f"link {a} - {b} is not avoided and is down"
    for a, b in sorted(avoided - expected):
        yield SEVERAL, f"link {a} - {b} is avoided and is not down"


def states_are_counted(machine: Machine) -> Breaches:
    """Yield states whose number of jobs is not what was counted."""
    progress = machine.progress
    counted = progress.counts()
    states = Counter(progress.state(name)[0] for name in machine.jobs.jobs)
    for state in sorted(counted.keys() | states.keys()):
        number = counted.get(state, 0)
        actual = states[state]
        if number != actual:
            yield SEVERAL, f"{number} jobs are counted as {state}, and {actual} are"


def planned_jobs_wait(machine: Machine) -> Breaches:
    """Yield jobs that are planned and wait for nothing, or wait and are not planned."""
    progress = machine.progress
    for name in machine.jobs.jobs:
        state = progress.state(name)[0]
        waits = progress.waiting_for(name)
        if waits and state != "planned":
            yield name, f"it is {state}, and waits for {', '.join(waits)}"
        elif state == "planned" and not waits and not _may_have_moved(machine, name):
            yield name, "it is planned, and waits for nothing"


def _may_have_moved(machine: Machine, job: str) -> bool:
    """Return whether links of the job's paths may have moved: then it is not installed."""
    return not machine.progress.moving.isdisjoint(machine.jobs.lines[job].standing.links)


def installed_jobs_have_sessions(machine: Machine) -> Breaches:
    """Yield jobs that are installed though a switch of their paths has no session."""
    progress = machine.progress
    for name, line in machine.jobs.lines.items():
        if progress.state(name)[0] != "installed":
            continue
        for switch in sorted(line.standing.switches):
            state = progress.switches[switch].state
            if state in WITHOUT_SESSION:
                yield name, f"it is installed, and switch {switch} is {state}"


def settled_plans_have_all_jobs(machine: Machine) -> Breaches:
    """Yield jobs that are in no plan, for no reason, though nothing is under way."""
    if not machine.settled or machine.in_force is None:
        return
    planned = machine.in_force.planned.plan.by_job
    for name in machine.jobs.jobs:
        state, problem = machine.progress.state(name)
        is_refused = state == "unplanned" and problem and machine.plan_problem
        if name in planned or is_refused:
            continue
        yield name, f"nothing is under way, and it is {state} without a plan or a reason"


# -- plans -----------------------------------------------------------------------------------------


def paths_are_followed(machine: Machine) -> Breaches:
    """Yield planned jobs whose flows pass a switch that nobody waits for."""
    if machine.in_force is None:
        return
    for name, flows in machine.in_force.planned.plan.by_job.items():
        line = machine.jobs.lines.get(name)
        # Of a job that was changed or removed since, the plan holds its former self.
        if line is None or line.standing.version is None:
            continue
        passed = {switch for flow in flows for switch in switches_of(flow.path)}
        for switch in sorted(passed - line.standing.switches):
            yield name, f"its flows pass switch {switch}, and it does not wait for it"


def flows_are_told_apart(machine: Machine) -> Breaches:
    """Yield flows that a switch could not tell from others by the plan in force."""
    if machine.in_force is None:
        return
    for switch, intent in machine.in_force.planned.intents.items():
        for job, problem in mixed_up(intent.parts):
            yield job, f"switch {switch}: {problem}"


def mixed_up(parts: Sequence[Part]) -> Breaches:
    """Yield flows of one switch that have the same number or the same match as others."""
    numbers: dict[int, tuple[str, str]] = {}
    owners: dict[object, str] = {}
    for part in parts:
        for numbered in part.flows:
            flow = (numbered.job, numbered.flow)
            first = numbers.setdefault(numbered.number, flow)
            if first != flow:
                both = f"flow {numbered.flow} and flow {first[1]} of job '{first[0]}'"
                yield numbered.job, f"number {numbered.number} means {both}"
        for entry in part.entries if part.flows else ():
            owner = owners.setdefault((entry.table, entry.match), part.owner)
            if owner != part.owner:
                yield part.owner, f"table {entry.table} has a match that job '{owner}' has, too"


def moving_links_are_out_of_use(machine: Machine, order: AdvanceMove) -> Breaches:
    """Yield jobs whose flows pass a link that moves now, though there is another path."""
    if machine.in_force is None:
        return
    jobs = machine.jobs
    wiring = order.wiring
    staying = wiring.now.without(jobs.drained | wiring.avoided, jobs.down)
    for flow in machine.in_force.planned.plan.flows:
        # The paths of a tree of switches have no one end.
        if is_tree(flow.path):
            continue
        passed = {ends_of(*hop) for hop in links_of(flow.path)}
        if passed & wiring.avoided and _has_path(staying, flow):
            yield flow.job, f"flow {flow.flow} passes a link that moves, and need not"


def _has_path(fabric: Fabric, flow: FlowPlan) -> bool:
    try:
        fabric.shortest_paths.switches(flow.path[0], flow.path[-1])
    except NoRouteError:
        return False
    return True


OF_JOBS: tuple[Callable[[Machine], Breaches], ...] = (
    job_numbers_differ,
    jobs_are_in_turn,
    links_down_are_avoided,
    states_are_counted,
    planned_jobs_wait,
    installed_jobs_have_sessions,
    settled_plans_have_all_jobs,
)
OF_PLAN: tuple[Callable[[Machine], Breaches], ...] = (paths_are_followed, flows_are_told_apart)
