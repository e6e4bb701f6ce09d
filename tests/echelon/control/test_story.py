"""The story of a job that the machine keeps: complete, in order, and not too long."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from echelon.controller.changes.remove_job import JobRemoved
from echelon.controller.machine import story
from echelon.controller.machine.effects import Save
from echelon.controller.machine.facts import NumbersUnsaved
from echelon.controller.machine.story import (
    FOR_ALL,
    LONGEST,
    PER_JOB,
    PER_SWITCH,
    Stories,
    StoryRecord,
)
from echelon.switches.southbound.events import Acknowledged, IntentRefused, SwitchChanged
from tests.echelon.control.world import FINISH, START, World, ring, small, two_by_two

SUBMITTED = ["RegisterJob", "BuildJob", "JobBuilt", "Saved", "JobAccepted", "Answer"]
PLANNED = ["MakePlan", "Saved", "PlanAdopted"]


@pytest.fixture
def world() -> World:
    """Return a world at rest, without jobs, whose policy searches for nothing."""
    world = World(two_by_two(), policy="fair")
    world.start()
    world.run()
    return world


def kinds(records: Sequence[StoryRecord]) -> list[str]:
    return [record.kind for record in records]


def test_a_job_from_its_submission_to_its_removal(world: World) -> None:
    began_s = world.now.epoch_s
    world.register(ring("a", "h1", "h2"))
    world.run()
    records = world.machine.story("a")
    # Both workers are at one leaf: the job is nobody else's business.
    switches = [record for record in records if record.text.startswith("switch ")]
    assert {record.text.split()[1] for record in switches} == {"leaf1"}
    rest = [record for record in records if record not in switches]
    assert kinds(rest) == [*SUBMITTED, *PLANNED, "JobInstalled", "TimedAlone"]
    holds = next(record for record in records if record.kind == "Acknowledged")
    order = kinds(records)
    assert order.index("PlanAdopted") < records.index(holds) < order.index("JobInstalled")
    times_s = [record.time_s for record in records]
    assert times_s == sorted(times_s)
    assert began_s < times_s[0] < times_s[-1] <= world.now.epoch_s
    assert [record.number for record in records] == sorted({record.number for record in records})

    world.remove("a")
    world.run()
    removal = ["RemoveJob", "Saved", "JobRemoved", "Answer", "MakePlan", "Saved", "JobLeft"]
    assert kinds(world.machine.story("a"))[-len(removal) :] == removal
    world.register(ring("b", "h1", "h2"))
    world.run()
    assert kinds(world.machine.story("a"))[-1] == "JobLeft", "its story goes on after its end"


def test_the_story_begins_with_the_job(world: World) -> None:
    world.register(ring("a", "h1", "h2"))
    world.run()
    world.choose("fifo")
    world.run()
    world.register(ring("b", "h1", "h2"))
    world.run()
    assert "PolicyChosen" in kinds(world.machine.story("a"))
    assert kinds(world.machine.story("b"))[0] == "RegisterJob"
    assert kinds(world.machine.story("a")).count("RegisterJob") == 1
    assert world.machine.story("c") == ()


def test_a_job_that_never_was_has_no_story(world: World) -> None:
    world.remove("never")
    world.run()
    assert world.machine.story("never") == ()


def test_a_refusal_of_the_client_and_why(world: World) -> None:
    world.register(ring("a", "h1", "h2"))
    world.run()
    request = world.register(ring("a", "h1", "h3"))
    world.run()
    *_, last = world.machine.story("a")
    assert last.kind == "Refuse"
    assert str(world.error(request)) in last.text


def test_a_save_that_fails(world: World) -> None:
    request = world.register(ring("a", "h1", "h2"))
    world.run_until_waiting(Save)
    (save,) = world.waiting(Save)
    world.carry_out(save, fails=True)
    texts = {record.kind: record.text for record in world.machine.story("a")}
    assert str(world.error(request)) in texts["SaveFailed"]
    assert str(world.error(request)) in texts["Refuse"]


def test_why_a_job_is_left_out() -> None:
    # A ring of two hosts is four flows.
    world = World(two_by_two(), policy="fair", capabilities=small(max_flows=4))
    world.start()
    for name in ("a", "b"):
        world.register(ring(name, "h1", "h2"))
    world.run()
    state, problem = world.machine.progress.state("b")
    assert (state, bool(problem)) == ("unplanned", True)
    reason = str(problem)[:100]
    assert any(reason in record.text for record in world.machine.story("b"))
    assert not any(reason in record.text for record in world.machine.story("a"))


def test_what_its_switches_do(world: World) -> None:
    world.register(ring("a", "h1", "h2"))
    world.run()
    before = len(world.machine.story("a"))
    for name in ("leaf1", "leaf2"):
        world.tell(SwitchChanged(name, "refused", "table full"))
        world.tell(IntentRefused(name, "table full"))
    world.disconnect("leaf1")
    news = world.machine.story("a")[before:]
    assert kinds(news) == ["SwitchChanged", "IntentRefused", "SwitchChanged"]
    assert all(record.text.startswith("switch leaf1 ") for record in news)


def test_a_new_leader_begins_the_stories_of_saved_jobs(world: World) -> None:
    world.register(ring("a", "h1", "h2"))
    world.run()
    world.crash()
    world.run()
    records = kinds(world.machine.story("a"))
    assert records[:2] == ["Snapshot", "Started"]
    assert "JobInstalled" in records


def test_iterations_are_no_part_of_it(world: World) -> None:
    world.register(ring("a", "h1", "h2"))
    world.run()
    before = world.machine.story("a")
    assert world.machine.in_force is not None
    flow = world.machine.in_force.planned.plan.by_job["a"][0].flow
    for epoch in range(100):
        for number, kind in enumerate((START, FINISH)):
            world.report("leaf1", ("a", flow, kind, epoch), time_us=1000 * (2 * epoch + number))
    assert world.machine.story("a") == before


# -- its size --------------------------------------------------------------------------------------


def test_a_job_a_switch_and_all_jobs_have_so_many_records_at_most(world: World) -> None:
    stories, now = Stories(), world.now
    stories.note(JobRemoved("a"), now)
    for number in range(1000):
        stories.note(Acknowledged("s1", number), now)
        stories.note(NumbersUnsaved(f"problem {number}"), now)
    assert len(stories.read("a", ("s1",))) == 1 + PER_SWITCH + FOR_ALL
    for _ in range(500):
        stories.restore(["a"], now)
        stories.note(JobRemoved("a"), now)
    records = stories.read("a", None)
    assert len(records) == PER_JOB
    assert records[-1].kind == "JobRemoved"


def test_the_same_again_is_one_record(world: World) -> None:
    stories, now = Stories(), world.now
    stories.restore(["a"], now)
    stories.note(JobRemoved("a"), now)
    for _ in range(50):
        stories.note(NumbersUnsaved("disk full"), now)
    assert [(record.kind, record.times) for record in stories.read("a", ())] == [
        ("Snapshot", 1),
        ("JobRemoved", 1),
        ("NumbersUnsaved", 50),
    ]


def test_the_job_that_was_silent_for_longest_goes_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story, "JOBS", 3)
    stories, now = Stories(), world.now
    stories.restore("abc", now)
    stories.note(JobRemoved("a"), now)
    stories.restore("d", now)
    assert [name for name in "abcd" if stories.read(name, None)] == ["a", "c", "d"]


def test_a_text_is_one_short_line(world: World) -> None:
    stories, now = Stories(), world.now
    stories.restore(["a"], now)
    stories.note(NumbersUnsaved("very\nlong\x1b[31m " * 100), now)
    *_, last = stories.read("a", ())
    assert len(last.text) == LONGEST
    assert last.text.isprintable()


def test_changes_that_are_answered_are_forgotten(world: World) -> None:
    """A request keeps its job's name only until it is answered."""
    for _ in range(3):
        world.register(ring("a", "h1", "h2"))
        world.run()
        world.remove("a")
        world.run()
    assert world.machine._stories._requests == {}  # noqa: SLF001
