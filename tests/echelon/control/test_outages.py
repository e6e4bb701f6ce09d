"""Switches that die, return and flap, and ports that go down: what becomes of links and jobs."""

from __future__ import annotations

from itertools import pairwise

import pytest

from echelon.controller.machine.effects import MakePlan, Save, SetAlarm
from echelon.controller.machine.facts import LinksDown, PlanAdopted
from echelon.controller.machine.outages import LONGEST_S, START_S
from echelon.model.fabric.model import Fabric
from echelon.switches.southbound.events import PortsChanged
from tests.echelon.control.world import World, entries_of, ring, two_by_two

GRACE_S = 2.0
SPINE1 = {("leaf1", "spine1"), ("leaf2", "spine1")}


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return two_by_two()


@pytest.fixture
def world(fabric: Fabric) -> World:
    return with_jobs(World(fabric))


def with_jobs(world: World) -> World:
    """Start a world in which `a` and `b` cross both spines, and `local` neither."""
    world.start()
    for name, workers in (("a", ("h1", "h3")), ("b", ("h2", "h4")), ("local", ("h1", "h2"))):
        world.register(ring(name, *workers))
    world.run()
    assert crossing(world) == {"spine1", "spine2"}
    return world


def crossing(world: World) -> set[str]:
    """Return the spines that flows of the plan in force pass."""
    assert world.machine.in_force is not None
    flows = world.machine.in_force.planned.plan.flows
    return {node for flow in flows for node in flow.path if node.startswith("spine")}


def ring_out(world: World) -> list[float]:
    """Let the alarms of outages ring, and everything come to rest. Return their delays."""
    alarms = [one for one in world.waiting(SetAlarm) if one.alarm.kind == "outage"]
    for one in alarms:
        world.carry_out(one)
    world.run(connect=False)
    return [one.delay_s for one in alarms]


def plans(world: World) -> int:
    return sum(isinstance(fact, PlanAdopted) for fact in world.facts)


def problem(world: World, job: str) -> str | None:
    return world.machine.progress.state(job)[1]


def test_a_spine_that_dies_is_routed_around_and_comes_back(world: World) -> None:
    numbers = {name: job.number for name, job in world.machine.jobs.jobs.items()}
    world.disconnect("spine1", restart=True)
    assert crossing(world) == {"spine1", "spine2"}
    assert ring_out(world) == [GRACE_S]
    assert crossing(world) == {"spine2"}
    assert {world.state(name) for name in numbers} == {"installed"}
    assert {name: job.number for name, job in world.machine.jobs.jobs.items()} == numbers
    assert set(world.machine.outages.links) == set(SPINE1)
    assert all("switch spine1 " in reason for reason in world.machine.outages.links.values())
    world.connect("spine1")
    assert set(world.machine.outages.links) == SPINE1
    assert ring_out(world) == [GRACE_S]
    assert world.machine.outages.links == {}
    told = [fact for fact in world.facts if isinstance(fact, LinksDown)]
    assert told == [LinksDown("spine1", None, True, 2), LinksDown("spine1", None, False, 0)]
    world.register(ring("c", "h1", "h4"))
    world.run()
    assert crossing(world) == {"spine1", "spine2"}


def test_a_switch_that_is_back_within_the_grace_time_changes_nothing(world: World) -> None:
    before = plans(world)
    world.disconnect("spine1")
    world.connect("spine1")
    ring_out(world)
    assert (plans(world), world.machine.outages.links) == (before, {})


def test_a_switch_that_leaves_again_before_it_is_taken_back_changes_nothing(world: World) -> None:
    world.disconnect("spine1")
    ring_out(world)
    before = plans(world)
    world.connect("spine1")
    world.disconnect("spine1")
    ring_out(world)
    assert (plans(world), set(world.machine.outages.links)) == (before, SPINE1)


def test_a_switch_that_flaps_is_taken_back_ever_later(world: World) -> None:
    began_s, held_s = world.now_s, []
    while world.now_s < began_s + 4 * LONGEST_S:
        world.disconnect("spine1")
        assert ring_out(world) == [GRACE_S]
        world.connect("spine1")
        held_s += ring_out(world)
    assert held_s[:4] == [GRACE_S, 2 * GRACE_S, 4 * GRACE_S, 8 * GRACE_S]
    assert held_s[-1] == LONGEST_S


def test_what_was_drained_by_hand_and_what_is_down_are_two_facts(world: World) -> None:
    world.set_link("leaf1", "spine1", drained=True)
    world.run()
    world.disconnect("spine1")
    ring_out(world)
    world.set_link("leaf1", "spine1", drained=False)
    world.run(connect=False)
    assert crossing(world) == {"spine2"}
    world.set_link("leaf1", "spine1", drained=True)
    world.run(connect=False)
    world.connect("spine1")
    ring_out(world)
    assert world.machine.outages.links == {}
    assert world.machine.jobs.drained == {("leaf1", "spine1")}
    world.crash()
    assert world.machine.jobs.drained == {("leaf1", "spine1")}


def test_a_link_is_not_drained_if_the_other_path_is_down(world: World) -> None:
    world.disconnect("spine1")
    ring_out(world)
    request = world.set_link("leaf1", "spine2", drained=True)
    world.run(connect=False)
    assert world.error(request).code == "no-route"


def test_without_rerouting_links_are_down_and_plans_stay(fabric: Fabric) -> None:
    world = with_jobs(World(fabric, reroute=False))
    before = plans(world)
    world.disconnect("spine1")
    ring_out(world)
    assert (plans(world), set(world.machine.outages.links)) == (before, SPINE1)
    told = [problem(world, name) for name in ("a", "b", "local")]
    assert sum("switch spine1 " in (one or "") for one in told) >= 1
    assert told[2] is None
    world.connect("spine1")
    ring_out(world)
    assert [problem(world, name) for name in ("a", "b", "local")] == [None] * 3


def is_save_of_numbers(effect: object) -> bool:
    return isinstance(effect, Save) and effect.request is None


def test_without_rerouting_links_are_down_at_once_though_a_plan_is_made(fabric: Fabric) -> None:
    world = with_jobs(World(fabric, reroute=False))
    world.register(ring("c", "h1", "h4"))
    # The plan is made, and waits for the store, which takes no numbers.
    while todo := [effect for effect in world.pending if not is_save_of_numbers(effect)]:
        due = [effect for effect in todo if not isinstance(effect, SetAlarm)]
        if not due:
            break
        world.carry_out(due[0])
    assert not world.machine.settled
    world.disconnect("spine1", restart=True)
    for alarm in [each for each in world.waiting(SetAlarm) if each.alarm.kind == "outage"]:
        world.carry_out(alarm)
    problems = [problem(world, name) or "" for name in ("a", "b")]
    assert any("switch spine1 " in line for line in problems)


def test_jobs_that_no_other_path_carries_stay_and_say_why(world: World) -> None:
    """A switch that only lost its controller forwards as before, and needs no change when it is
    back.
    """
    assert world.machine.in_force is not None
    before = {
        name: entries_of(intent) for name, intent in world.machine.in_force.planned.intents.items()
    }
    world.disconnect("leaf2")
    ring_out(world)
    for name in ("a", "b"):
        assert world.state(name) == "planned"
        assert "switch leaf2 " in (problem(world, name) or "")
    assert (world.state("local"), problem(world, "local")) == ("installed", None)
    jobs = {name: entries for name, entries in before.items() if name in ("leaf1", "leaf2")}
    now = {
        name: entries_of(intent) for name, intent in world.machine.in_force.planned.intents.items()
    }
    assert {name: now[name] for name in jobs} == jobs
    world.connect("leaf2")
    ring_out(world)
    assert [problem(world, name) for name in ("a", "b", "local")] == [None] * 3
    assert world.state("a") == world.state("b") == "installed"


def test_a_controller_that_reaches_no_switch_changes_no_path(world: World) -> None:
    assert world.machine.in_force is not None
    before = world.machine.in_force.planned.plan.by_job
    for name in world.switches:
        world.disconnect(name)
    ring_out(world)
    assert world.machine.in_force.planned.plan.by_job == before
    assert len(world.machine.outages.links) == len(world.fabric.cables)


def test_a_restart_waits_longer_for_switches_that_have_not_answered(world: World) -> None:
    world.crash()
    world.disconnect("spine1")
    for name in ("leaf1", "leaf2", "spine2"):
        world.connect(name)
    assert set(ring_out(world)) == {START_S}
    assert set(world.machine.outages.links) == SPINE1
    assert crossing(world) == {"spine2"}


@pytest.mark.parametrize("other", ["leaf1", "leaf2"])
def test_a_port_that_is_down_takes_its_link_out(world: World, other: str) -> None:
    port = world.fabric.port_to["spine1", other]
    world.tell(PortsChanged("spine1", frozenset({port})))
    assert ring_out(world) == [GRACE_S]
    [(link, reason)] = world.machine.outages.links.items()
    assert link == (other, "spine1")
    assert f"port {port} of switch spine1 " in reason
    assert crossing(world) == {"spine2"}
    assert {world.state(name) for name in ("a", "b", "local")} == {"installed"}
    world.tell(PortsChanged("spine1", frozenset()))
    ring_out(world)
    assert world.machine.outages.links == {}


def test_a_host_whose_port_is_down_is_told_in_the_rows_of_its_jobs(world: World) -> None:
    port = world.fabric.port_to["leaf1", "h1"]
    world.tell(PortsChanged("leaf1", frozenset({port})))
    ring_out(world)
    down = f"port {port} of switch leaf1 "
    problems = [problem(world, name) or "" for name in ("a", "b", "local")]
    assert [down in told for told in problems] == [True, False, True]


def test_packets_without_a_flow_go_around_and_in_no_ring(fabric: Fabric) -> None:
    """Next hops lead to every host, over links that are down only where nothing else does."""
    down = [("leaf1", "spine1"), ("leaf2", "spine2")]
    without = fabric.without([], down)
    for switch in fabric.switches:
        for host in fabric.hosts:
            seen = [switch]
            while seen[-1] != host:
                (hop, *_) = without.next_hops[seen[-1], host]
                assert hop not in seen
                seen.append(hop)
            if any({*link} in ({*one} for one in down) for link in pairwise(seen)):
                assert fabric.without(down).next_hops[switch, host] == ()


def test_outages_that_come_while_a_plan_is_made_are_planned_together(world: World) -> None:
    before = plans(world)
    for name in ("leaf1", "leaf2", "spine1"):
        world.disconnect(name)
    first, *others = [one for one in world.waiting(SetAlarm) if one.alarm.kind == "outage"]
    world.carry_out(first)
    assert len(world.waiting(MakePlan)) == 1, "the first is planned at once"
    down = world.machine.jobs.down
    for one in others:
        world.carry_out(one)
        assert world.machine.jobs.down is down, "the fabric is not made anew for each"
        assert not world.machine.settled
    world.run(connect=False)
    assert plans(world) == before + 2
    assert world.machine.jobs.down == world.machine.outages.links.keys() > down
    world.run()
    ring_out(world)
    assert (world.machine.jobs.down, world.machine.settled) == (frozenset(), True)
