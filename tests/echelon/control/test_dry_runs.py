"""Dry runs: what they say is what the change then writes, and they leave everything as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.controller.changes import (
    ChoosePolicy,
    RegisterJob,
    RemoveJob,
    ReportDistances,
    SetLink,
)
from echelon.controller.machine import rehearsal
from echelon.controller.machine.change import ChangeRequest
from echelon.controller.machine.effects import Install, MakePlan, Refuse, Rehearse, Save
from echelon.controller.machine.errors import RefusedError, UnknownError
from echelon.controller.machine.events import LeadershipLost, StopWaiting
from echelon.controller.machine.jobs import parse_job
from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.machine.rehearsal import ChangeOutcome
from echelon.switches.lowering.intent import Intent, QueueSetting, TableEntry
from tests.echelon.control.world import World, ring, small, snapshot_of, two_by_two

Make = Callable[[int], ChangeRequest]

HOSTS = ("h1", "h2", "h3", "h4")
POLICIES = (
    ChosenPolicy("echelon"),
    ChosenPolicy("echelon", {"order": "deadline"}),
    ChosenPolicy("echelon", {"paths": "crux", "shifts": "cassini"}),
    ChosenPolicy("fair"),
    ChosenPolicy("crux"),
    ChosenPolicy("cassini"),
    ChosenPolicy("mltcp"),
    ChosenPolicy("varys"),
)
LINKS = [(leaf, spine) for leaf in ("leaf1", "leaf2") for spine in ("spine1", "spine2")]


def registering(name: str, *workers: str, gradient: str = "1 MB") -> Make:
    document = ring(name, *workers, gradient=gradient)
    return lambda request: RegisterJob(request, document, parse_job(document), replace=True)


def removing(name: str) -> Make:
    return lambda request: RemoveJob(request, name)


def choosing(policy: ChosenPolicy) -> Make:
    return lambda request: ChoosePolicy(request, policy)


def setting(a: str, b: str, *, drained: bool) -> Make:
    return lambda request: SetLink(request, a, b, drained, force=True)


CHANGES: st.SearchStrategy[Make] = st.one_of(
    st.builds(
        lambda name, workers, gradient: registering(name, *workers, gradient=gradient),
        st.sampled_from("abcde"),
        st.lists(st.sampled_from(HOSTS), min_size=2, max_size=4, unique=True),
        st.sampled_from(("1 MB", "3 MB", "40 MB")),
    ),
    st.builds(removing, st.sampled_from("abcde")),
    st.builds(choosing, st.sampled_from(POLICIES)),
    st.builds(
        lambda link, drained: setting(*link, drained=drained), st.sampled_from(LINKS), st.booleans()
    ),
)


def intents(world: World) -> Mapping[str, Intent]:
    assert world.machine.in_force is not None
    return world.machine.in_force.planned.intents


Contents = dict[tuple[str, str, object, int], TableEntry]


def contents(world: World) -> tuple[Contents, dict[tuple[str, int, int], QueueSetting]]:
    """Return all entries by switch and key, and all queues."""
    entries = {
        (name, entry.table, entry.match, entry.priority): entry
        for name, intent in intents(world).items()
        for entry in intent.entries
    }
    queues = {
        (name, one.port, one.queue): one
        for name, intent in intents(world).items()
        for one in intent.queues
    }
    return entries, queues  # type: ignore[return-value]


@given(st.sampled_from(POLICIES), st.lists(CHANGES, min_size=1, max_size=8))
def test_a_change_writes_what_its_dry_run_said(policy: ChosenPolicy, changes: list[Make]) -> None:
    world, plain = World(two_by_two()), World(two_by_two())
    for each in (world, plain):
        each.start()
        each.run()
        each.choose(policy.name, **policy.parameters)
        each.run()
    for make in changes:
        stored, before = snapshot_of(world), contents(world)
        asked = world.dry_run(make)
        world.run()
        assert snapshot_of(world) == stored
        assert contents(world) == before
        done = world.carry_out_change(make)
        plain.carry_out_change(make)
        world.run()
        plain.run()
        answer = world.answers[asked]
        if isinstance(answer, Refuse):
            real = world.answers[done]
            assert isinstance(real, Refuse)
            assert (type(answer.error), str(answer.error)) == (type(real.error), str(real.error))
            continue
        assert_difference(answer.value, before, contents(world))
    assert intents(world) == intents(plain), "dry runs are without effect"
    assert snapshot_of(world)["numbers"] == snapshot_of(plain)["numbers"]


def assert_difference(
    outcome: ChangeOutcome, before: tuple[Contents, object], after: tuple[Contents, object]
) -> None:
    old, new = before[0], after[0]
    expected = {
        "added": Counter(key[:2] for key in new.keys() - old.keys()),
        "removed": Counter(key[:2] for key in old.keys() - new.keys()),
        "changed": Counter(
            key[:2] for key in new.keys() & old.keys() if old[key].actions != new[key].actions
        ),
    }
    for kind, counts in expected.items():
        said = Counter(
            (one.switch, entry.table)
            for one in outcome.differences
            for _, entry in getattr(one, kind)
        )
        assert said == counts, kind
    told = {(one.switch, entry.table, entry.match, entry.priority): entry for one in outcome.differences
            for _, entry in (*one.added, *one.changed)}  # fmt: skip
    assert told == {
        key: entry
        for key, entry in new.items()
        if key not in old or old[key].actions != entry.actions
    }
    queues = {
        (one.switch, now.port, now.queue): (was, now)
        for one in outcome.differences
        for was, now in one.queues
    }
    assert isinstance(before[1], dict)
    assert isinstance(after[1], dict)
    assert queues == {
        key: (was, after[1][key]) for key, was in before[1].items() if was != after[1][key]
    }  # fmt: skip


@pytest.fixture
def world() -> World:
    world = World(two_by_two())
    world.start()
    world.run()
    return world


def outcome_of(world: World, make: Make) -> ChangeOutcome:
    asked = world.dry_run(make)
    world.run()
    answer = world.answer(asked)
    assert isinstance(answer, ChangeOutcome)
    return answer


def test_slowdowns_are_those_of_sharing_a_link(world: World) -> None:
    """Two equal jobs of fair shares take turns computing and sending: alone 10 ms and 16 ms;
    sending together 32 ms.
    """
    world.choose("fair")
    world.register(ring("a", "h1", "h2", gradient="2 MB"))
    world.register(ring("far", "h3", "h4"))
    world.run()
    found = outcome_of(world, registering("b", "h1", "h2", gradient="2 MB"))
    assert found.unpredicted is None
    assert {one.job: (one.before, one.after) for one in found.forecasts} == {
        "a": (pytest.approx(1.0), pytest.approx(42 / 26)),
        "b": (None, pytest.approx(42 / 26)),
    }, "the job that shares no link with them is left out"
    world.carry_out_change(registering("b", "h1", "h2", gradient="2 MB"))
    world.run()
    found = outcome_of(world, removing("b"))
    assert {one.job: (one.before, one.after) for one in found.forecasts} == {
        "a": (pytest.approx(42 / 26), pytest.approx(1.0)),
        "b": (pytest.approx(42 / 26), None),
    }


def test_a_job_that_a_drain_strands_is_named(world: World) -> None:
    world.register(ring("a", "h1", "h3"))
    world.run()
    world.carry_out_change(setting("leaf1", "spine1", drained=True))
    world.run()
    drain = setting("leaf1", "spine2", drained=True)
    [forecast] = outcome_of(world, drain).forecasts
    assert (forecast.job, forecast.after) == ("a", None)
    assert forecast.before == pytest.approx(1.0)
    assert forecast.problem is not None
    assert "path" in forecast.problem
    careful = world.dry_run(lambda request: SetLink(request, "leaf1", "spine2", drained=True))
    world.run()
    assert isinstance(world.error(careful), RefusedError)


def test_a_job_without_room_is_named() -> None:
    world = World(two_by_two(), capabilities=small(max_flows=6))
    world.start()
    world.register(ring("a", "h1", "h2"))
    world.run()
    found = outcome_of(world, registering("b", "h1", "h2"))
    assert found.differences == ()
    assert [(one.job, one.after, bool(one.problem)) for one in found.forecasts] == [
        ("b", None, True)
    ]


def test_reported_distances_can_be_tried(world: World) -> None:
    world.register(ring("a", "h1", "h2"))
    world.run()
    name = world.machine.jobs.jobs["a"].job.echelonflows[0]
    offsets = tuple(Fraction(n, 100) for n in range(len(name.flows)))
    found = outcome_of(world, lambda request: ReportDistances(request, "a", name.name, offsets))
    assert found.differences


def test_the_number_of_a_new_job_is_not_used_up(world: World) -> None:
    for _ in range(3):
        outcome_of(world, registering("a", "h1", "h2"))
    world.register(ring("a", "h1", "h2"))
    world.run()
    assert world.machine.jobs.jobs["a"].number == 1


def test_it_waits_for_what_was_accepted_before(world: World) -> None:
    world.register(ring("a", "h1", "h2"))
    asked = world.dry_run(removing("a"))
    assert isinstance(world.error(asked), UnknownError), "the job is not saved yet"
    while world.waiting(Save):
        world.carry_out(world.waiting(Save)[0])
    for effect in world.ready():
        if not isinstance(effect, MakePlan):
            world.carry_out(effect)
    saved = [effect for effect in world.waiting(Save) if effect.request is not None]
    for effect in saved:
        world.carry_out(effect)
    assert world.waiting(MakePlan)
    asked = world.dry_run(removing("a"))
    assert not world.waiting(Rehearse)
    world.run()
    assert world.answer(asked).differences


def test_no_client_is_left_without_an_answer(world: World) -> None:
    world.register(ring("a", "h1", "h2"))
    world.run()
    asked = [world.dry_run(removing("a")) for _ in range(20)]
    assert sum(isinstance(world.answers.get(request), Refuse) for request in asked) == 4, (
        "at most 16 wait"
    )
    world.tell(StopWaiting(asked[0]))
    world.tell(StopWaiting(asked[1]))
    world.carry_out(world.waiting(Rehearse)[0])
    world.tell(LeadershipLost())
    assert {request for request in asked if request not in world.answers} == {asked[0], asked[1]}
    assert not world.waiting(Install)


@pytest.mark.parametrize(("most", "predicted"), [(10**6, True), (300, True), (1, False)])
def test_fewer_iterations_are_simulated_where_many_jobs_are_concerned(
    most: int, predicted: bool
) -> None:
    world = World(two_by_two())
    world.start()
    for number in range(6):
        world.register(ring(f"j{number}", "h1", "h3"))
    world.run()
    with patch.object(rehearsal, "MOST_SHARED", most):
        asked = world.dry_run(setting("leaf1", "spine1", drained=True))
        world.run()
    outcome = world.answer(asked)
    assert (outcome.unpredicted is None) == predicted
    assert {one.after is not None for one in outcome.forecasts} == {predicted}
