"""Sizes of iterations that hosts measure: kept, or refused, and used instead of the file's."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest

from echelon.controller.machine.agents import MOST_ITERATIONS, MOST_SIZES
from echelon.controller.machine.effects import Refuse, Save
from echelon.controller.machine.errors import ServiceError
from echelon.controller.machine.events import ReportIterations
from echelon.controller.machine.facts import IterationsMeasured, SizesCorrected
from echelon.switches.telemetry.sizes import HostIteration
from tests.echelon.control.world import World, ring, two_by_two

FABRIC = two_by_two()
AGENT = {"recognition": {"by": "agent", "idle_gap": "50 ms"}}
PROFILED = 1_000_000
"""The bytes that each of two hosts sends in an iteration: half of the gradient twice."""


def iterations(sent: int, count: int = MOST_ITERATIONS, to: str = "h2") -> list[HostIteration]:
    return [HostIteration(Fraction(1, 5), {to: sent}, 3000, Fraction(1, 100))] * count


def report(
    world: World, measured: Sequence[HostIteration], job: str = "a", host: str = "h1"
) -> int:
    request = world.carry_out_change(
        lambda number: ReportIterations(number, job, host, tuple(measured))
    )
    world.run()
    return request


@pytest.fixture
def world() -> World:
    return registered(correct_sizes=True)


def registered(*, correct_sizes: bool) -> World:
    world = World(FABRIC, correct_sizes=correct_sizes)
    world.start()
    for name in world.switches:
        world.connect(name)
    world.register({**ring("a", "h1", "h2"), **AGENT})
    world.register(ring("shim", "h3", "h4"))
    world.run()
    return world


def sizes(world: World, src: str) -> list[int]:
    return [flow.size_bytes for flow in world.machine.jobs.jobs["a"].job.flows if flow.src == src]


def test_the_sizes_of_one_direction_become_what_its_host_measures(world: World) -> None:
    others, before = sizes(world, "h2"), sizes(world, "h1")
    assert sum(before) == PROFILED
    report(world, iterations(1_100_000))
    assert sum(sizes(world, "h1")) == 1_100_000
    assert len(sizes(world, "h1")) == len(before)
    assert sizes(world, "h2") == others
    assert world.state("a") == "installed"
    (fact,) = [one for one in world.facts if isinstance(one, SizesCorrected)]
    assert fact.factors == {("h1", "h2"): Fraction(11, 10)}


def test_the_latest_iteration_of_every_host_is_told(world: World) -> None:
    report(world, [*iterations(PROFILED), *iterations(1, count=1)][-2:])
    report(world, iterations(2, count=1, to="h1"), host="h2")
    told = [one for one in world.facts if isinstance(one, IterationsMeasured)]
    assert [
        {host: list(of.sent_bytes.values()) for host, of in one.latest.items()} for one in told
    ] == [
        {"h1": [1]},
        {"h1": [1], "h2": [2]},
    ]


def test_what_switches_hold_follows(world: World) -> None:
    def segments() -> set[object]:
        held = (one for part in world.switches["leaf1"].held for one in part.entries)
        return {one.match for one in held if one.table == "segment"}

    before = segments()
    report(world, iterations(1_500_000))
    assert segments() != before
    report(world, iterations(PROFILED))
    assert segments() == before, "the file is right after all"


def test_the_same_again_changes_nothing_and_nothing_is_stored(world: World) -> None:
    documents = dict(world.store.load()["jobs"])
    report(world, iterations(1_100_000))
    generation = world.machine.jobs.generation
    report(world, iterations(1_100_000))
    assert world.machine.jobs.generation == generation
    assert dict(world.store.load()["jobs"]) == documents
    assert not world.waiting(Save)


def test_after_a_crash_the_next_report_brings_the_same_back(world: World) -> None:
    report(world, iterations(1_100_000))
    world.start()
    world.run()
    assert sum(sizes(world, "h1")) == PROFILED
    report(world, iterations(1_100_000))
    assert sum(sizes(world, "h1")) == 1_100_000


def test_without_the_setting_it_is_only_shown() -> None:
    world = registered(correct_sizes=False)
    report(world, iterations(1_100_000))
    assert sum(sizes(world, "h1")) == PROFILED
    assert world.machine.measured(world.machine.jobs.jobs["a"]) == {
        "h1": tuple(iterations(1_100_000))
    }


def test_another_file_of_the_job_begins_anew(world: World) -> None:
    report(world, iterations(1_100_000))
    world.register({**ring("a", "h1", "h2", gradient="2 MB"), **AGENT}, replace=True)
    world.run()
    assert sum(sizes(world, "h1")) == 2_000_000
    assert world.machine.measured(world.machine.jobs.jobs["a"]) == {}
    world.remove("a")
    world.run()
    world.register({**ring("a", "h1", "h2"), **AGENT})
    world.run()
    assert world.machine.measured(world.machine.jobs.jobs["a"]) == {}


@pytest.mark.parametrize(
    ("measured", "job", "host", "code"),
    [
        (iterations(1), "nobody", "h1", "unknown-job"),
        (iterations(1), "shim", "h3", "not-allowed"),
        (iterations(1), "a", "h3", "unknown-host"),
        (iterations(1), "a", "h9", "unknown-host"),
        (iterations(1, to="h3"), "a", "h1", "unknown-host"),
        (iterations(1, to="h1"), "a", "h1", "unknown-host"),
        (iterations(1, to="\x1b[2J\n"), "a", "h1", "unknown-host"),
        (iterations(1, MOST_ITERATIONS + 1), "a", "h1", "limit-reached"),
        (
            [HostIteration(Fraction(1), {f"h{n}": 1 for n in range(MOST_SIZES + 1)})],
            "a",
            "h1",
            "limit-reached",
        ),
        (iterations(10**9), "a", "h1", "out-of-range"),
        ([HostIteration(Fraction(1, 1000), {"h2": 1}, 10**9)], "a", "h1", "out-of-range"),
    ],
)
def test_what_cannot_be_is_refused(
    world: World, measured: Sequence[HostIteration], job: str, host: str, code: str
) -> None:
    report(world, iterations(PROFILED))
    before = world.machine.measured(world.machine.jobs.jobs["a"])
    answer = world.answers[report(world, measured, job, host)]
    assert isinstance(answer, Refuse)
    assert isinstance(answer.error, ServiceError)
    assert answer.error.code == code
    assert answer.error.reason.endswith(")"), "does not say what to do"
    assert world.machine.measured(world.machine.jobs.jobs["a"]) == before
