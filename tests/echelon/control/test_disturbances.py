"""Switches that somebody else writes to: when that is a problem, and when no longer."""

from __future__ import annotations

import pytest

from echelon.controller.machine.disturbances import MOST_REPAIRS, QUIET_AUDITS
from echelon.controller.machine.effects import RaiseTerm, SetAlarm
from echelon.controller.machine.facts import SwitchDisturbed, SwitchRepaired
from echelon.switches.southbound.election import election_id
from echelon.switches.southbound.events import DriftRepaired, HigherPrimary
from tests.echelon.control.world import World, ring, two_by_two

QUIET_S = QUIET_AUDITS * 30.0
MISSING = DriftRepaired("leaf1", {"missing in flow": 2, "queues": 8})


@pytest.fixture
def world() -> World:
    world = World(two_by_two())
    world.start()
    world.register(ring("a", "h1", "h3"))
    world.run()
    return world


def disturbed(world: World) -> list[SwitchDisturbed]:
    return [fact for fact in world.facts if isinstance(fact, SwitchDisturbed)]


def quiet(world: World) -> list[SetAlarm]:
    return [effect for effect in world.waiting(SetAlarm) if effect.alarm.kind == "quiet"]


def problems(world: World) -> list[str]:
    return list(world.machine.disturbances.problems)


def test_one_repair_is_told_and_is_no_problem(world: World) -> None:
    world.tell(MISSING)
    (repaired,) = [fact for fact in world.facts if isinstance(fact, SwitchRepaired)]
    assert repaired == SwitchRepaired("leaf1", 10, "missing in flow: 2, queues: 8", 1)
    assert "switch leaf1 was repaired (missing in flow: 2, queues: 8)" in [
        record.text for record in world.machine.story("a")
    ]
    assert problems(world) == []
    assert [alarm.delay_s for alarm in quiet(world)] == [QUIET_S]
    world.carry_out(quiet(world)[0])
    assert quiet(world) == []
    assert disturbed(world) == [], "it never was a problem"


def test_repairs_again_and_again_are_a_problem_until_the_switch_is_left_alone(
    world: World,
) -> None:
    world.now_s = 100.0
    for _ in range(MOST_REPAIRS):
        world.tell(MISSING)
    assert problems(world) == []
    world.tell(DriftRepaired("leaf1", {"added to fixed": 1}, "role 'evil' at 192.0.2.7:4000"))
    (problem,) = problems(world)
    assert problem == (
        "switch leaf1: somebody else writes to it (repairs: 3, takeovers: 0,"
        " since 1970-01-12 13:48:20 UTC, last: added to fixed: 1,"
        " by role 'evil' at 192.0.2.7:4000)"
    )
    assert disturbed(world) == [SwitchDisturbed("leaf1", problem.removeprefix("switch leaf1: "))]
    for _ in range(300):
        world.tell(MISSING)
    assert len(disturbed(world)) == 1, "told once"
    assert "repairs: 303," in problems(world)[0]
    assert len(quiet(world)) == 1, "one timer, however often"

    # Repaired once more just before it would be quiet: the time begins again.
    world.now_s += QUIET_S - 1
    world.tell(MISSING)
    world.now_s += 1
    (alarm,) = quiet(world)
    world.pending.remove(alarm)
    world.tell(alarm.alarm)
    (alarm,) = quiet(world)
    assert QUIET_S - 2 < alarm.delay_s < QUIET_S
    assert problems(world)
    while quiet(world):
        world.carry_out(quiet(world)[0])
    assert problems(world) == []
    assert disturbed(world)[1:] == [SwitchDisturbed("leaf1", None)]
    world.tell(MISSING)
    assert problems(world) == [], "counted anew"


def test_a_takeover_is_a_problem_also_once_the_switch_is_taken_back(world: World) -> None:
    world.tell(HigherPrimary("spine1", election_id(9000)))
    (taking,) = world.waiting(RaiseTerm)
    world.carry_out(taking)
    (problem,) = problems(world)
    assert problem.startswith("switch spine1: somebody else writes to it (repairs: 0, takeovers: 1")
    assert problem.endswith(f"last: taken by election id {election_id(9000)})")
    assert disturbed(world) == [], "`TermContested` tells of each"
    world.carry_out(quiet(world)[0])
    assert problems(world) == []
    assert disturbed(world) == [SwitchDisturbed("spine1", None)]


def test_an_earlier_session_of_our_own_is_nobody_else(world: World) -> None:
    world.tell(HigherPrimary("spine1", election_id(9000), is_ours=True))
    assert world.waiting(RaiseTerm)
    assert quiet(world) == []
    assert problems(world) == []


def test_switches_are_counted_each_by_itself(world: World) -> None:
    for switch in ("leaf1", "leaf2", "spine1", "spine2"):
        world.tell(DriftRepaired(switch, {"queues": 8}))
    assert problems(world) == []


def test_a_new_leader_begins_without_what_the_last_one_saw(world: World) -> None:
    for _ in range(MOST_REPAIRS + 1):
        world.tell(MISSING)
    world.lose_leadership()
    assert problems(world) == []
