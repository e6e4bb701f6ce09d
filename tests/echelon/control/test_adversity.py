"""Sequences of events that interleave badly: changes at the wrong moment, switches that leave a
policy waiting.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from echelon.controller.machine.effects import (
    BuildJob,
    Decide,
    MakePlan,
    RaiseTerm,
    ReadCounters,
    Save,
    SetAlarm,
    TimeAlone,
)
from echelon.controller.machine.errors import (
    ConflictError,
    RefusedError,
    UnavailableError,
    UnknownError,
)
from echelon.controller.machine.events import LeadershipLost, StopWaiting, TakeSwitch
from echelon.controller.machine.facts import (
    JobInstalled,
    JobLeft,
    JobSeen,
    NumbersUnsaved,
    PlanAdopted,
)
from echelon.controller.machine.jobs import from_document
from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.machine.lines import (
    FIRST_PAUSE_S,
    FREE_TAKEOVERS,
    MOST_TAKEOVERS,
    QUIET_S,
    SwitchLine,
)
from echelon.model.documents import DocumentError
from echelon.model.fabric.model import Fabric
from echelon.planning.policies.varys import Varys
from echelon.switches.southbound.events import HigherPrimary, IntentRefused, SwitchChanged
from tests.echelon.control.world import FINISH, START, World, ring, small, two_by_two
from tests.faults import coded
from tests.shared import refused


def pipeline(name: str, micro_batches: int = 3) -> dict[str, Any]:
    return {
        "job": name, "parallelism": "pipeline", "workers": ["h1", "h2"],
        "pipeline": {"micro_batches": micro_batches, "forward": "10 ms", "activation": "1 MB"},
    }  # fmt: skip


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return two_by_two()


@pytest.fixture
def world(fabric: Fabric) -> World:
    made = World(fabric)
    made.start()
    return made


@pytest.fixture
def reactive(fabric: Fabric) -> World:
    """Return two jobs under a reactive policy, at rest: `a` between leaves, `b` at one."""
    made = World(fabric, policy="varys")
    made.start()
    made.register(ring("a", "h1", "h3"))
    made.register(ring("b", "h1", "h2"))
    made.run()
    return made


def flow_from(world: World, job: str, src: str) -> str:
    return next(flow.name for flow in world.machine.jobs.jobs[job].job.flows if flow.src == src)


def decide(world: World) -> None:
    """Carry out what a report calls for, but for writing to switches."""
    while todo := [e for e in world.ready() if isinstance(e, ReadCounters | Decide | Save)]:
        world.carry_out(todo[0])


# -- what is accepted ------------------------------------------------------------------------------


def test_a_job_is_acknowledged_after_it_is_saved(world: World) -> None:
    request = world.register(ring("a", "h1", "h3"))
    world.carry_out(*world.waiting(BuildJob))
    assert request not in world.answers
    assert "a" not in world.machine.jobs.jobs
    (save,) = world.waiting(Save)
    world.carry_out(save)
    assert world.answer(request).name == "a"
    assert set(world.store.load()["jobs"]) == {"a"}


def test_work_changes_nothing_that_the_machine_has(reactive: World) -> None:
    """It runs in another thread."""
    reactive.register(ring("c", "h1", "h2"))
    (build,) = reactive.waiting(BuildJob)
    before = dict(vars(build.job))
    assert build.run().built.job.name == "c"
    assert vars(build.job) == before
    reactive.report("leaf1", ("b", flow_from(reactive, "b", "h1"), START, 1))
    while not reactive.waiting(Decide):
        reactive.carry_out(*reactive.waiting(ReadCounters))
    (asked,) = reactive.waiting(Decide)
    in_force, due = asked.last.plan, replace(asked.due)
    assert asked.run().planned.plan != in_force
    assert asked.due == due
    assert asked.last.plan is in_force


def test_a_job_that_is_not_saved_is_not_there(world: World) -> None:
    request = world.register(ring("a", "h1", "h3"))
    world.carry_out(*world.waiting(BuildJob))
    world.carry_out(*world.waiting(Save), fails=True)
    assert str(world.error(request)) == "disk full"
    again = world.register(ring("a", "h1", "h3"))
    world.run()
    assert world.answer(again).number == 2, "its number may have come to the disk"


def test_changes_of_one_job_follow_one_another(world: World) -> None:
    first = world.register(ring("a", "h1", "h3"))
    second = world.register(ring("a", "h1", "h2"))
    third = world.register(ring("a", "h1", "h2"), replace=True)
    fourth = world.remove("a")
    other = world.register(ring("b", "h1", "h2"))
    assert len(world.waiting(BuildJob)) == 2, "of `a` one, of `b` one"
    world.run()
    assert world.answer(first).name == "a"
    with pytest.raises(ConflictError):
        world.answer(second)
    assert tuple(world.answer(third).spec.hosts) == ("h1", "h2")
    assert world.answer(fourth) == "a"
    assert world.answer(other).number != world.answer(first).number
    assert set(world.machine.jobs.jobs) == {"b"}


def test_what_cannot_be_is_refused_at_once(fabric: Fabric) -> None:
    world = World(fabric, max_jobs=1)
    world.start()
    nobody = coded("invalid-value", "'h9'", file="job", path="workers[1]")
    with pytest.raises(DocumentError, check=nobody):
        world.answer(world.register(ring("a", "h1", "h9")))
    with refused("unknown-job", error=UnknownError):
        world.answer(world.remove("a"))
    with refused("unknown-link", error=UnknownError):
        world.answer(world.set_link("leaf1", "leaf2", drained=True))
    with refused("unconnected", error=RefusedError):
        world.answer(world.set_link("h1", "leaf1", drained=True))
    with refused("unknown-job", error=UnknownError):
        world.answer(world.wait_for("a"))
    world.register(ring("a", "h1", "h2"))
    with pytest.raises(RefusedError, check=coded("limit-reached", " 1 jobs", "limits.jobs")):
        world.answer(world.register(ring("b", "h1", "h2")))


def test_reported_distances_replace_those_of_the_file() -> None:
    seen = from_document({"number": 1, "accepted_at": 1.0, "spec": pipeline("p"), "offsets_s": {}})
    (one,) = seen.job.echelonflows
    reported = seen.with_reported(one.name, (Fraction(0), Fraction(3), Fraction(4)))
    assert reported.job.echelonflows[0].offsets_s == (0, 3, 4)


# -- leadership ------------------------------------------------------------------------------------


def test_whoever_waits_is_told_when_leadership_is_lost(world: World) -> None:
    world.register(ring("a", "h1", "h3"))
    world.run(connect=False)
    waiting, gone = world.wait_for("a"), world.wait_for("a")
    world.tell(StopWaiting(gone))
    building, saving, behind = (
        world.register(ring("b", "h1", "h2")),
        world.remove("a"),
        world.remove("a"),
    )
    world.tell(LeadershipLost())
    for request in (waiting, building, behind):
        assert isinstance(world.error(request), UnavailableError)
    assert gone not in world.answers
    assert saving not in world.answers, "the store has not answered yet"
    for build in world.waiting(BuildJob):
        world.carry_out(build)
    (save,) = world.waiting(Save)
    world.carry_out(save)
    assert world.answer(saving) == "a"
    assert isinstance(world.error(world.remove("b")), UnavailableError)


def test_two_switches_raise_the_term(world: World) -> None:
    world.tell(HigherPrimary("leaf1", 10))
    world.tell(HigherPrimary("leaf2", 20))
    world.run(connect=False)
    assert world.terms == [11, 21]


def test_a_switch_that_another_controller_keeps_taking_is_taken_back_ever_later(
    world: World,
) -> None:
    for number in range(MOST_TAKEOVERS):
        world.tell(HigherPrimary("leaf1", 100 * number))
        assert len(world.waiting(RaiseTerm)) == min(number + 1, FREE_TAKEOVERS)
    alarms = [effect for effect in world.waiting(SetAlarm) if effect.alarm.kind == "term"]
    assert [effect.delay_s for effect in alarms] == [
        FIRST_PAUSE_S,
        2 * FIRST_PAUSE_S,
        4 * FIRST_PAUSE_S,
    ]
    world.run(connect=False)
    assert world.terms[-1] > 500


def test_a_switch_is_left_to_another_controller_until_asked(world: World) -> None:
    for number in range(MOST_TAKEOVERS + 3):
        world.tell(HigherPrimary("leaf1", 1000 * number))
    world.run(connect=False)
    assert max(world.terms) < 1000 * MOST_TAKEOVERS
    world.tell(SwitchChanged("leaf1", "backup", "another controller is primary"))
    world.tell(TakeSwitch("leaf1"))
    world.run(connect=False)
    assert world.terms[-1] > 1000 * (MOST_TAKEOVERS + 2)


def test_two_equal_controllers_end_their_contest() -> None:
    sides, now, turns = (SwitchLine(), SwitchLine()), 0.0, 0
    while (pause := sides[turns % 2].take_over(now, turns)) is not None:
        now, turns = now + pause, turns + 1
    assert turns == 2 * MOST_TAKEOVERS


def test_quiet_ends_the_pauses() -> None:
    line = SwitchLine()
    pauses = [line.take_over(float(now), 9) for now in range(MOST_TAKEOVERS + 1)]
    assert pauses[:FREE_TAKEOVERS] == [0.0] * FREE_TAKEOVERS
    assert pauses[-1] is None
    assert line.take_over(MOST_TAKEOVERS + QUIET_S, 9) == 0.0


# -- plans -----------------------------------------------------------------------------------------


def test_changes_of_a_moment_are_one_plan(fabric: Fabric) -> None:
    world = World(fabric, coalesce_s=0.005)
    world.start()
    for name in ("a", "b", "c"):
        world.register(ring(name, "h1", "h3"))
    while world.waiting(BuildJob) or world.waiting(Save):
        world.carry_out(next(e for e in world.ready() if isinstance(e, BuildJob | Save)))
    assert world.waiting(MakePlan) == []
    world.run()
    assert world.in_plan() == {"a", "b", "c"}
    assert next(fact.jobs for fact in world.facts if isinstance(fact, PlanAdopted)) == 3


def test_numbers_are_saved_before_any_switch_has_them(world: World) -> None:
    world.run()
    world.register(ring("a", "h1", "h3"))
    while not world.waiting(MakePlan):
        world.step()
    world.carry_out(*world.waiting(MakePlan))
    assert world.in_plan() == set()
    assert not any(world.can_write(name) for name in world.switches)
    (save,) = world.waiting(Save)
    world.carry_out(save)
    assert set(world.store.load()["numbers"]) == {"a"}
    assert all(world.can_write(name) for name in ("leaf1", "leaf2"))


def test_a_trouble_of_the_store_is_over_when_it_is_over(world: World) -> None:
    """A plan's numbers are tried until they are saved; nothing is written meanwhile."""
    world.run()
    world.register(ring("a", "h1", "h3"))
    while not world.waiting(MakePlan):
        world.step()
    world.carry_out(*world.waiting(MakePlan))
    for _ in range(2):
        world.carry_out(*world.waiting(Save), fails=True)
        assert world.machine.plan_problem == "disk full"
        assert world.in_plan() == set()
        (alarm,) = world.waiting(SetAlarm)
        assert alarm.delay_s == 1
        world.carry_out(alarm)
    assert sum(isinstance(fact, NumbersUnsaved) for fact in world.facts) == 2
    world.run()
    assert world.machine.plan_problem is None
    assert world.state("a") == "installed"


def test_a_job_that_waits_for_numbers_gets_them(fabric: Fabric) -> None:
    """One job leaves and another comes at the same time; there is room for one."""
    world = World(fabric, capabilities=small(max_flows=5))
    world.start()
    world.register(ring("a", "h1", "h2"))
    world.run()
    assert world.state("a") == "installed"
    for n in range(3):
        world.remove("a" if n == 0 else f"b{n - 1}")
        world.register(ring(f"b{n}", "h1", "h2"))
        world.run()
        assert world.state(f"b{n}") == "installed"
        times, installed_at = world.machine.progress.times(f"b{n}")
        assert times is not None
        assert installed_at is not None
    assert world.machine.plan_problem is None


def test_a_job_that_waits_for_numbers_at_a_restart_keeps_no_other_from_its_plan(
    fabric: Fabric,
) -> None:
    """The job's former self fitted in, and its numbers are taken; as it is now it does not fit."""
    world = World(fabric, capabilities=small(max_flows=12))
    world.start()
    world.register(ring("a", "h1", "h3", "h4"))
    world.register(ring("b", "h1", "h2"))
    world.run()
    world.register(ring("b", "h1", "h3"), replace=True)
    while world.in_plan() != {"a"}:
        world.step()
    world.crash()
    world.run()
    assert (world.state("a"), world.state("b")) == ("installed", "unplanned")
    assert world.in_plan() == {"a"}
    world.remove("a")
    world.run()
    assert world.state("b") == "installed"


def test_a_controller_that_takes_over_gives_the_same_numbers(world: World) -> None:
    for name in ("a", "b", "c"):
        world.register(ring(name, "h1", "h3"))
    world.run()
    world.remove("a")
    world.run()
    before = {name: switch.held for name, switch in world.switches.items()}
    world.crash()
    world.run()
    assert {name: set(switch.held) for name, switch in world.switches.items()} == {
        name: set(held) for name, held in before.items()
    }


# -- what switches tell ----------------------------------------------------------------------------


def test_a_job_is_complete_when_a_switch_is_back_that_had_it(world: World) -> None:
    """A connection reports an acknowledgement once."""
    world.connect("leaf1")
    for name in ("leaf2", "spine1", "spine2"):
        world.connect(name)
    world.register(ring("a", "h1", "h3"))
    while not world.can_write("leaf1") or any(
        not isinstance(one, SetAlarm) for one in world.pending
    ):
        assert world.step(alarms=False)
    for name in ("leaf1", "spine1", "spine2"):
        while world.can_write(name):
            world.write(name)
    world.disconnect("leaf1")
    while world.can_write("leaf2"):
        world.write("leaf2")
    assert world.state("a") == "planned"
    world.connect("leaf1")
    assert world.state("a") == "planned"
    version = world.switches["leaf1"].acknowledged
    world.tell(SwitchChanged("leaf1", "ready", None, version))
    assert world.state("a") == "installed"
    assert [fact.job for fact in world.facts if isinstance(fact, JobInstalled)] == ["a"]


def test_what_is_refused_in_every_session_is_said_in_every_session(world: World) -> None:
    """A connection reports a refusal once."""
    world.register(ring("a", "h1", "h3"))
    world.run()
    for event in (
        SwitchChanged("leaf1", "refused", "table full"),
        IntentRefused("leaf1", "table full"),
        SwitchChanged("leaf1", "away", "gone"),
    ):
        world.tell(event)
    assert world.machine.progress.state("a") == ("planned", None)
    world.tell(SwitchChanged("leaf1", "writing"))
    world.tell(SwitchChanged("leaf1", "refused", "table full"))
    assert world.machine.progress.state("a") == ("planned", "table full")


def test_a_job_that_has_left_is_not_seen_any_more(world: World) -> None:
    """Its last packets are reported after it."""
    world.register(ring("gone", "h1", "h2"))
    world.run()
    flow = flow_from(world, "gone", "h1")
    world.report("leaf1", ("gone", flow, START, 1))
    assert JobSeen("gone") in world.facts
    held = world.switches["leaf1"].held
    world.remove("gone")
    world.run()
    assert world.facts[-1] != JobSeen("gone")
    assert JobLeft("gone") in world.facts
    world.facts.clear()
    world.switches["leaf1"].held = held
    world.report("leaf1", ("gone", flow, FINISH, 1))
    assert JobSeen("gone") not in world.facts


def test_a_job_is_timed_alone_once(world: World) -> None:
    world.register(ring("a", "h1", "h2"))
    world.run()
    alone_s = world.machine.alone_iteration_s("a")
    # 10 ms of computing, then 2 x 2 steps of a ring, each of half the gradient at 1 Gbit/s: 1 MB
    # both ways.
    assert alone_s == pytest.approx(0.010 + 2 * 0.5e6 * 8 / 1e9)
    world.disconnect("leaf1", restart=True)
    world.connect("leaf1")
    while world.can_write("leaf1"):
        world.write("leaf1")
    assert world.waiting(TimeAlone) == []


# -- reactive policies -----------------------------------------------------------------------------


def test_a_report_is_dealt_with_when_the_switches_hold_the_decision(reactive: World) -> None:
    report = reactive.report("leaf1", ("b", flow_from(reactive, "b", "h1"), START, 1))
    assert report not in reactive.dealt_with
    decide(reactive)
    assert report not in reactive.dealt_with
    while any(map(reactive.can_write, reactive.switches)):
        reactive.step(alarms=False)
    assert report in reactive.dealt_with


def test_a_switch_that_does_not_acknowledge_holds_up_decisions_for_a_while_only(
    reactive: World,
) -> None:
    report = reactive.report("leaf1", ("b", flow_from(reactive, "b", "h1"), START, 1))
    decide(reactive)
    (alarm,) = reactive.waiting(SetAlarm)
    reactive.carry_out(alarm)
    assert report in reactive.dealt_with


def test_reports_that_come_meanwhile_are_decided_on_together(reactive: World) -> None:
    first = reactive.report("leaf1", ("b", flow_from(reactive, "b", "h1"), START, 1))
    later = [
        reactive.report("leaf1", ("a", flow_from(reactive, "a", "h1"), START, 1)),
        reactive.report("leaf2", ("a", flow_from(reactive, "a", "h3"), START, 1)),
    ]
    assert len(reactive.waiting(ReadCounters)) == 1
    decide(reactive)
    while first not in reactive.dealt_with:
        assert reactive.step(alarms=False)
    decided = 0
    while not set(later) <= reactive.dealt_with:
        decided += bool(reactive.waiting(Decide))
        assert reactive.step(alarms=False)
    assert decided == 1


def test_a_reactive_policy_reacts_although_a_job_breaks_it(fabric: Fabric) -> None:
    class Breaks(Varys):
        def plan(self, jobs: Any, fabric: Fabric, paths: Any = None) -> Any:
            if any(one.name == "bad" for one in jobs):
                raise ZeroDivisionError("a slip")
            return super().plan(jobs, fabric, paths)

    world = World(fabric, policy="breaks", make_policy=lambda _: Breaks())
    world.start()
    world.register(ring("good", "h1", "h2"))
    world.register(ring("bad", "h1", "h3"))
    world.run()
    assert world.state("bad") == "unplanned"
    world.report("leaf1", ("good", flow_from(world, "good", "h1"), START, 1))
    assert world.waiting(ReadCounters), "nobody was asked"


def test_a_policy_that_was_changed_decides_no_more(reactive: World) -> None:
    report = reactive.report("leaf1", ("b", flow_from(reactive, "b", "h1"), START, 1))
    reactive.choose("fifo")
    while not reactive.waiting(MakePlan):
        reactive.carry_out(*reactive.waiting(Save))
    reactive.carry_out(*reactive.waiting(MakePlan))
    decide(reactive)
    assert report in reactive.dealt_with
    reactive.run()
    assert reactive.machine.in_force is not None
    assert reactive.machine.in_force.planned.plan.policy == "fifo"
    assert reactive.machine.settled


def test_a_session_that_ends_in_a_decision_loses_no_numbers(reactive: World) -> None:
    """The store gets the numbers that a decision changed, even if its session ends: else it gives a
    departed job's numbers to another one while it still stores them as the former's."""
    reactive.remove("b")
    reactive.run()
    reactive.report("leaf1", ("a", flow_from(reactive, "a", "h1"), START, 1))
    while not reactive.waiting(Decide):
        reactive.step(alarms=False)
    reactive.disconnect("leaf1")
    reactive.run()
    reactive.register(ring("c", "h1", "h2"))
    reactive.run()
    assert set(reactive.store.load()["numbers"]) == {"a", "c"}


def passed(world: World) -> set[str]:
    """Return the jobs whose flows the pending decision is about."""
    (asked,) = world.waiting(Decide)
    return {job for job, _ in asked.due.bytes_passed}


def test_decisions_go_on_while_a_switch_is_away(reactive: World) -> None:
    """The bytes of a flow that ends at a switch without a session are not known, and all other
    flows go on.
    """
    reactive.disconnect("leaf2")
    for job, expected in (("a", {"a"}), ("b", {"a", "b"})):
        reactive.report("leaf1", (job, flow_from(reactive, job, "h1"), START, 1))
        for read in reactive.waiting(ReadCounters):
            reactive.carry_out(read)
        assert passed(reactive) == expected
        reactive.run(connect=False)
    reactive.connect("leaf2")
    reactive.run()
    reactive.report("leaf1", ("b", flow_from(reactive, "b", "h1"), FINISH, 1))
    for read in reactive.waiting(ReadCounters):
        reactive.carry_out(read)
    assert passed(reactive) == {"a"}


@pytest.mark.parametrize("policy", ["echelon", "varys"])
def test_a_plan_that_comes_while_counters_are_read(reactive: World, policy: str) -> None:
    """The job of the flow has gone, and perhaps the policy, too."""
    report = reactive.report(
        "leaf1",
        ("a", flow_from(reactive, "a", "h1"), START, 1),
        ("b", flow_from(reactive, "b", "h1"), START, 1),
    )
    reads = reactive.waiting(ReadCounters)
    assert len(reads) == 2
    reactive.choose(policy)
    reactive.remove("a")
    while not reactive.waiting(MakePlan) or reactive.waiting(Save):
        reactive.carry_out(reactive.waiting(Save)[0])
    while work := [e for e in reactive.ready() if isinstance(e, MakePlan | Save)]:
        reactive.carry_out(work[0])
    for read in reads:
        reactive.carry_out(read)
    if policy == "varys":
        assert passed(reactive) == {"b"}, "what the new plan must know of"
    else:
        assert reactive.waiting(Decide) == []
    reactive.run()
    assert report in reactive.dealt_with


def test_bytes_of_an_iteration_count_from_its_start(reactive: World) -> None:
    """Counters run on; a flow whose start was not counted, because a switch was away, is counted
    from then on.
    """
    flow = flow_from(reactive, "b", "h1")
    held = reactive.switches["leaf1"].wanted
    assert held is not None
    counter = held.intents["leaf1"].flow_entry("b", flow)

    def passed_bytes(kind: int, epoch: int, count: int, *, fails: bool = False) -> int:
        reactive.counters[counter] = count
        reactive.report("leaf1", ("b", flow, kind, epoch))
        for read in reactive.waiting(ReadCounters):
            reactive.carry_out(read, fails=fails)
        (asked,) = reactive.waiting(Decide)
        reactive.run()
        return int(asked.due.bytes_passed.get(("b", flow), -1))

    assert passed_bytes(START, 1, 0) == 0
    reactive.counters[counter] = 700
    other = flow_from(reactive, "a", "h1")
    reactive.report("leaf1", ("a", other, START, 1))
    for read in reactive.waiting(ReadCounters):
        reactive.carry_out(read)
    (asked,) = reactive.waiting(Decide)
    assert asked.due.bytes_passed["b", flow] == 700
    reactive.run()
    assert passed_bytes(FINISH, 1, 1000) == -1, "not under way"
    assert passed_bytes(START, 2, 1100) == 100, "its first bytes were ahead of the news"
    assert passed_bytes(START, 3, 2300, fails=True) == 0, "the finish was lost, and the count, too"


def test_flows_under_way_stay_ahead_of_new_ones_after_a_plan(fabric: Fabric) -> None:
    world = World(fabric, policy="varys")
    world.start()
    for name in "abc":
        world.register(ring(name, "h1", "h2"))
    world.run()
    for name in "abc":
        world.report("leaf1", (name, flow_from(world, name, "h1"), START, 1))
        world.run()
    world.register(ring("d", "h1", "h2"))
    world.run()
    world.report("leaf1", ("d", flow_from(world, "d", "h1"), START, 1))
    while not world.waiting(Decide):
        world.carry_out(*world.waiting(ReadCounters))
    (asked,) = world.waiting(Decide)
    in_line = sorted(asked.due.flows, key=lambda flow: flow.sequence)
    assert [flow.job for flow in in_line] == ["a", "b", "c", "d"]
    assert len({flow.sequence for flow in in_line}) == 4


def test_a_plan_for_one_job_keeps_what_the_policy_gave_the_flows_of_others(reactive: World) -> None:
    """Its own queues are those of idle flows."""

    def queues() -> Any:
        assert reactive.machine.in_force is not None
        return reactive.machine.in_force.planned.intents["leaf1"].queues

    idle = queues()
    reactive.report("leaf1", ("b", flow_from(reactive, "b", "h1"), START, 1))
    reactive.run()
    busy = queues()
    assert busy != idle
    reactive.register(ring("c", "h3", "h4"))
    reactive.run()
    assert queues() == busy


def test_a_link_that_jobs_need_is_drained_by_force_only(world: World) -> None:
    world.register(ring("across", "h1", "h3"))
    world.register(ring("here", "h1", "h2"))
    world.run()
    world.set_link("leaf1", "spine1", drained=True)
    world.run()
    last = world.set_link("leaf1", "spine2", drained=True)
    world.run()
    error = world.error(last)
    assert error.code == "no-route"
    assert "across" in error.reason
    assert "here" not in error.reason
    assert world.machine.jobs.drained == {("leaf1", "spine1")}

    forced = world.set_link("leaf1", "spine2", drained=True, force=True)
    world.run()
    assert world.answer(forced) == ("leaf1", "spine2")
    new = world.register(ring("new", "h3", "h4"))
    world.run()
    assert world.answer(new).name == "new"
    states = {name: world.state(name) for name in ("across", "here", "new")}
    assert states == {"across": "unplanned", "here": "installed", "new": "installed"}
    held = {name: set(switch.held) for name, switch in world.switches.items()}
    world.crash()
    world.run()
    assert {name: world.state(name) for name in states} == states
    assert {name: set(switch.held) for name, switch in world.switches.items()} == held


def test_the_policy_and_its_parameters_outlive_a_crash(world: World) -> None:
    world.choose("echelon", order="setf")
    world.set_link("leaf1", "spine1", drained=True)
    world.run()
    world.crash()
    assert world.machine.jobs.policy == ChosenPolicy("echelon", {"order": "setf"})
    assert world.machine.jobs.drained == {("leaf1", "spine1")}
