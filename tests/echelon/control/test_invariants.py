"""Each invariant holds for a machine at rest, and is noticed where it is broken on purpose.

That nothing which may happen breaks one is for test_machine.py, whose adversary checks all of them
after each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from echelon.controller.machine import invariants
from echelon.controller.machine.effects import AdvanceMove, Effect
from echelon.controller.machine.events import LeadershipLost
from echelon.controller.machine.invariants import Breaches, InvariantError, check
from echelon.controller.machine.lines import JobLine
from echelon.controller.machine.machine import Machine
from echelon.controller.machine.wiring import Wiring
from echelon.switches.lowering.intent import Part
from tests.echelon.control.world import World, ring, two_by_two

Break = Callable[[Machine], None]


@pytest.fixture
def machine() -> Machine:
    """Return a machine at rest with two installed jobs, each of which passes both leaves."""
    world = World(two_by_two(), policy="fair")
    world.start()
    for name, workers in (("a", ("h1", "h3")), ("b", ("h2", "h4"))):
        world.register(ring(name, *workers))
    world.run()
    assert world.machine.settled
    assert {world.state(name) for name in "ab"} == {"installed"}
    return world.machine


def give_the_same_number(machine: Machine) -> None:
    line = machine.jobs.lines["b"]
    line.registered = replace(line.registered, number=machine.jobs.jobs["a"].number)


def swap(machine: Machine) -> None:
    machine.jobs.lines["a"] = machine.jobs.lines.pop("a")


def avoid_a_link_that_is_up(machine: Machine) -> None:
    machine.jobs.down = frozenset({("leaf1", "spine1")})


def change_a_job_uncounted(machine: Machine) -> None:
    machine.progress.counts()
    machine.jobs.lines["b"].standing.version = None


def wait_for_nobody(machine: Machine) -> None:
    machine.progress.lost("leaf2")
    machine.progress.waiting_for = lambda name: ()  # type: ignore[method-assign]


def wait_though_installed(machine: Machine) -> None:
    machine.progress.waiting_for = lambda name: ("leaf1",)  # type: ignore[method-assign]


def lose_a_session_unnoticed(machine: Machine) -> None:
    machine.progress.switches["leaf2"].state = "away"


def forget_to_plan(machine: Machine) -> None:
    line = machine.jobs.lines["b"]
    registered = replace(line.registered, number=line.registered.number + 1)
    machine.jobs.lines["c"] = JobLine(registered, line.generation)


def wait_for_too_few_switches(machine: Machine) -> None:
    standing = machine.jobs.lines["b"].standing
    standing.switches -= {"leaf2"}


def give_flows_one_number(machine: Machine) -> None:
    def renumbered(part: Part) -> Part:
        return replace(part, flows=tuple(flow._replace(number=7) for flow in part.flows))

    change_part(machine, renumbered)


def give_flows_one_match(machine: Machine) -> None:
    change_part(machine, lambda part: part)


def change_part(machine: Machine, change: Callable[[Part], Part]) -> None:
    """Change the first part of job b on a switch, and add what it was as another owner's."""
    assert machine.in_force is not None
    intents = machine.in_force.planned.intents
    assert isinstance(intents, dict)
    intent = intents["leaf1"]
    part = next(part for part in intent.parts if part.owner == "b" and part.flows)
    strange = replace(part, owner="x", flows=part.flows[:1])
    rest = tuple(other for other in intent.parts if other is not part)
    intents["leaf1"] = replace(intent, parts=(*rest, strange, change(part)))


BREAKS: Sequence[tuple[str, Break, str]] = (
    ("job_numbers_differ", give_the_same_number, "b"),
    ("jobs_are_in_turn", swap, "a"),
    ("links_down_are_avoided", avoid_a_link_that_is_up, ""),
    ("states_are_counted", change_a_job_uncounted, ""),
    ("planned_jobs_wait", wait_for_nobody, "a"),
    ("planned_jobs_wait", wait_though_installed, "a"),
    ("installed_jobs_have_sessions", lose_a_session_unnoticed, "a"),
    ("settled_plans_have_all_jobs", forget_to_plan, "c"),
    ("paths_are_followed", wait_for_too_few_switches, "b"),
    ("flows_are_told_apart", give_flows_one_number, "b"),
    ("flows_are_told_apart", give_flows_one_match, "b"),
)


@pytest.mark.parametrize(("name", "damage", "job"), BREAKS)
def test_a_broken_invariant_is_noticed(
    machine: Machine, name: str, damage: Break, job: str
) -> None:
    invariant: Callable[[Machine], Breaches] = getattr(invariants, name)
    assert not list(invariant(machine))
    damage(machine)
    breaches = list(invariant(machine))
    assert job in [concerned for concerned, _ in breaches]


def test_every_invariant_is_broken_by_a_test() -> None:
    functions = {function.__name__ for function in (*invariants.OF_JOBS, *invariants.OF_PLAN)}
    assert functions == {name for name, _, _ in BREAKS}


def moving(machine: Machine, *, with_another_path: bool) -> list[Effect]:
    """Return the order to move the links of the spine that a flow passes, or of both spines."""
    assert machine.in_force is not None
    spine = machine.in_force.planned.plan.by_job["a"][0].path[2]
    going = {spine} if with_another_path else {"spine1", "spine2"}
    now = machine.jobs.wiring.now
    staying = tuple(cable for cable in now.cables if going.isdisjoint({cable.a.node, cable.b.node}))
    return [AdvanceMove(1, Wiring(now, replace(now, cables=staying)))]


def test_links_that_move_while_flows_pass_them_are_noticed(machine: Machine) -> None:
    check(machine, moving(machine, with_another_path=False))
    with pytest.raises(InvariantError) as caught:
        check(machine, moving(machine, with_another_path=True))
    assert caught.value.invariant == "moving_links_are_out_of_use"
    assert caught.value.job in ("a", "b")


def test_the_error_names_the_invariant_and_the_job(machine: Machine) -> None:
    check(machine)
    give_the_same_number(machine)
    with pytest.raises(InvariantError) as caught:
        check(machine)
    assert (caught.value.invariant, caught.value.job) == ("job_numbers_differ", "b")
    assert "job_numbers_differ" in str(caught.value)
    assert "'b'" in str(caught.value)


def test_what_follows_from_a_plan_is_checked_once(machine: Machine) -> None:
    give_flows_one_number(machine)
    check(machine, since=machine.in_force)
    with pytest.raises(InvariantError):
        check(machine)


def test_a_machine_whose_term_is_over_is_not_checked() -> None:
    world = World(two_by_two(), policy="fair")
    world.start()
    world.run()
    avoid_a_link_that_is_up(world.machine)
    with pytest.raises(InvariantError):
        check(world.machine)
    world.tell(LeadershipLost())
    check(world.machine)
