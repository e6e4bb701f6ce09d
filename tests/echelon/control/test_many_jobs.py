"""Many jobs: the work of a change does not grow with the jobs beside it, and what a policy carries
of each job is saved with the job.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from echelon.controller.machine.effects import SearchPlan, SetAlarm
from echelon.controller.machine.facts import MOST_LINES, of_jobs
from echelon.controller.machine.jobs import RegisteredJob, free_number, parse_job
from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.machine.planning import Planned, Planner, PlanRequest
from echelon.controller.machine.planning_turns import Searches
from echelon.planning.policies import make_policy
from echelon.switches.targets.softswitch.capabilities import softswitch
from tests.echelon.control.world import World, ring, two_by_two

FEW, MANY = 30, 120
MOST_CALLS_A_JOB = 6.0
"""The most calls of functions that a change takes for each job beside it.

What is left is for whole groups of jobs that share links. Before, it was more than twenty.
"""


def calls(work: Callable[[], object]) -> int:
    """Return how many functions in Python some work calls."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


POLICIES: Mapping[str, Mapping[str, str]] = {"echelon": {"plan": "rule"}, "fair": {}}


def world_of(count: int, policy: str) -> World:
    """Return a world at rest with so many jobs."""
    world = World(two_by_two(), max_jobs=2 * MANY)
    world.start()
    world.choose(policy, **POLICIES[policy])
    for number in range(count):
        world.register(_ring(number))
    world.run()
    assert len(world.in_plan()) == count
    return world


def _ring(number: int) -> dict[str, object]:
    return ring(f"j{number}", "h1", "h3")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("change", ["register", "remove"])
def test_the_work_of_a_change_hardly_grows_with_the_jobs(policy: str, change: str) -> None:
    spent = []
    for count in (FEW, MANY):
        world = world_of(count, policy)

        def work(world: World = world, count: int = count) -> None:
            if change == "register":
                world.register(_ring(count))
            else:
                world.remove("j0")
            world.run()

        spent.append(calls(work))
    few, many = spent

    assert (many - few) / (MANY - FEW) < MOST_CALLS_A_JOB


@pytest.mark.parametrize("policy", POLICIES)
def test_a_change_saves_documents_of_its_job_only(policy: str) -> None:
    world = world_of(FEW, policy)
    before = {
        (collection, key): json.dumps(document, sort_keys=True)
        for collection, documents in world.store.load().documents.items()
        for key, document in documents.items()
    }
    world.register(_ring(FEW))
    world.run()
    after = world.store.load()
    written = [
        (collection, key)
        for collection, documents in after.documents.items()
        for key, document in documents.items()
        if before.get((collection, key)) != json.dumps(document, sort_keys=True)
    ]
    assert sorted(written) == [
        ("jobs", f"j{FEW}"),
        ("numbers", f"j{FEW}"),
        ("settings", "job_number"),
    ]


def test_a_large_group_has_one_line_in_the_stories() -> None:
    names = [f"j{number}" for number in range(MOST_LINES + 1)]
    assert [scope for scope, *_ in of_jobs(names[1:], "says")] == ["job"] * MOST_LINES
    assert [*of_jobs(names, "says")] == [("all", None, "says (for a group of 101 jobs)")]


def test_numbers_come_back_when_jobs_go() -> None:
    world = world_of(3, "fair")
    for name in ("j0", "j2"):
        world.remove(name)
    world.run()
    taken = {job.number for job in world.machine.jobs.jobs.values()}
    assert free_number(taken, 0) == 1
    assert world.machine.jobs.free_number(()) == 4
    world.register(_ring(9))
    world.run()
    assert world.machine.jobs.jobs["j9"].number == 4
    assert not world.waiting(SearchPlan)


@pytest.mark.parametrize(("jobs", "delay_s"), [(1, 0.1), (100, 0.1), (1000, 1.0), (10_000, 10.0)])
def test_a_search_for_many_jobs_is_handed_over_more_rarely(jobs: int, delay_s: float) -> None:
    planned = SimpleNamespace(policy=make_policy("echelon"), registered=(None,) * jobs)
    (alarm,) = Searches(after_s=0.1, judges=True).follow_plan(cast(Planned, planned))
    assert isinstance(alarm, SetAlarm)
    assert alarm.delay_s == pytest.approx(delay_s)


@pytest.mark.parametrize(("policy", "former"), [("echelon", "places"), ("fair", "first")])
def test_what_an_older_version_saved_of_all_jobs_together_is_taken(
    policy: str, former: str
) -> None:
    fabric = two_by_two()
    documents = [ring(f"j{number}", "h1", "h3") for number in range(4)]
    jobs = [
        RegisteredJob(str(document["job"]), number, 0.0, document, parse_job(document), {})
        for number, document in enumerate(documents, start=1)
    ]
    chosen = ChosenPolicy(policy)
    planners = [Planner(dict.fromkeys(fabric.switches, softswitch())) for _ in range(2)]
    planners[0].plan(PlanRequest(tuple(jobs), fabric, chosen))
    # The jobs that are left have other places than they would have without a past.
    wanted = PlanRequest(tuple(jobs[1:]), fabric, chosen)
    planned = planners[0].plan(wanted)

    kept: dict[str, dict[str, Any]] = {}
    places = {}
    again = planners[0].copy().plan(wanted)
    for name, place in planners[0]._carried_by_job.items():  # noqa: SLF001
        kept[name] = {**planners[0]._document(name)}  # noqa: SLF001
        places[name] = kept[name].pop("carried")
        assert places[name] == place
    carried = planners[0]._carried  # noqa: SLF001
    assert not again.kept, "nothing is saved again"
    planners[1].restore(kept, {**carried, "carried": {**carried["carried"], former: places}})
    after = planners[1].plan(wanted)
    assert after.plan.by_job == planned.plan.by_job
    assert {name: document["carried"] for name, document in after.kept.items()} == places
