"""Flows that take other paths while jobs send: in no state between two plans does a packet circle
or fall into a hole.

A walk through the entries of all switches is what the packets do. Switches are brought to what they
should hold one after the other, in every order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, combinations, pairwise

import pytest

from echelon.controller.machine.effects import SetAlarm
from echelon.controller.machine.facts import OrderGivenUp
from echelon.controller.machine.jobs import from_document
from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.machine.planning import Planned, Planner, PlanRequest
from echelon.controller.machine.wiring import Wiring, moved_to
from echelon.model.fabric.load import FabricSpec, build_fabric
from echelon.model.fabric.model import Fabric
from echelon.switches.lowering.intent import Intent
from echelon.switches.targets.softswitch.capabilities import softswitch
from tests.echelon.control.world import World, ring, two_by_two
from tests.echelon.service.moving import JOBS, OPPOSITE, TURNED
from tests.echelon.service.moving import fabric as panel
from tests.reference.walk import Packet, Tables, faults, tables_of

OTHERS = ((1, 5), (2, 4), (3, 6))


def subsets(switches: Mapping[str, object]) -> Iterator[frozenset[str]]:
    """Return which switches may be ahead of the others: what every order of them passes through."""
    sets = (combinations(switches, count) for count in range(len(switches) + 1))
    return map(frozenset, chain.from_iterable(sets))


def spec(*chords: tuple[int, int]) -> FabricSpec:
    return FabricSpec.model_validate(panel(*chords))


def moves(*wirings: tuple[tuple[int, int], ...]) -> list[tuple[Planned, Fabric]]:
    """Return the plans of moves from each of these links to the next: each with the links that
    there are then.
    """
    file = build_fabric(spec(*wirings[0]))
    jobs = tuple(
        from_document(
            {
                "number": number,
                "accepted_at": float(number),
                "spec": ring(name, *workers),
                "offsets_s": {},
            }
        )
        for number, (name, workers) in enumerate(JOBS.items(), start=1)
    )
    planner = Planner(dict.fromkeys(file.switches, softswitch()))

    def plan(fabric: Fabric) -> Planned:
        return planner.plan(PlanRequest(jobs, fabric, ChosenPolicy("echelon")))

    now, out = file, [(plan(file), file)]
    for chords in wirings[1:]:
        wiring = Wiring(now, moved_to(file, now, spec(*chords)))
        assert wiring.then is not None
        out.append((plan(now.without((), wiring.avoided)), now))
        now = wiring.then
        out.append((plan(now), now))
    return out


def packets(planned: Planned, fabric: Fabric) -> Iterator[tuple[Packet, tuple[str, ...]]]:
    """Yield a packet of each flow, and its path."""
    for job in planned.registered:
        identities = job.identities(fabric)
        for flow in planned.plan.by_job[job.name]:
            yield Packet(identities[flow.flow], flow.path[-1]), flow.path


def found(
    before: Mapping[str, Intent], after: Mapping[str, Intent], last: Planned, fabric: Fabric
) -> Iterator[str]:
    """Yield what may befall packets while switches go from one intent to the next, in any order."""
    old, new = (
        {name: tables_of(intent.entries) for name, intent in all_.items()}
        for all_ in (before, after)
    )
    for ahead in subsets(old):
        tables: dict[str, Tables] = {
            name: new[name] if name in ahead else old[name] for name in old
        }
        for packet, path in packets(last, fabric):
            # It may be anywhere on its former path.
            for at in path[1:-1]:
                yield from faults(tables, fabric, packet, at)


@pytest.mark.parametrize("wirings", [(OPPOSITE, TURNED, OPPOSITE), (OPPOSITE, OTHERS, TURNED)])
def test_no_packet_circles_while_links_move(
    wirings: tuple[tuple[tuple[int, int], ...], ...],
) -> None:
    unordered = set()
    for (before, _), (after, fabric) in pairwise(moves(*wirings)):
        unordered |= set(found(before.intents, after.intents, before, fabric))
        assert after.version == before.version + len(after.steps) + 1
        for one, other in pairwise((before.intents, *after.steps, after.intents)):
            assert set(found(one, other, before, fabric)) == set()
    assert any("circles" in fault for fault in unordered), "nothing can go wrong without an order"


# -- the machine -----------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    """Return a controller whose jobs pass both spines."""
    world = World(two_by_two(), policy="fair")
    world.start()
    for name, workers in (("a", ("h1", "h3")), ("b", ("h2", "h4")), ("c", ("h1", "h4"))):
        world.register(ring(name, *workers))
    world.run()
    return world


def drain(world: World) -> int:
    """Drain a link, so that flows take other paths. Return the version of the plan before."""
    assert world.machine.in_force is not None
    before = world.machine.in_force.planned.version
    world.set_link("leaf1", "spine1", drained=True)
    while world.machine.in_force.planned.version == before:
        assert world.step(alarms=False)
    assert len(world.machine.in_force.planned.steps) > 1
    return before


def check_at_rest(world: World) -> None:
    assert world.machine.in_force is not None
    for name, intent in world.machine.in_force.planned.intents.items():
        assert set(world.switches[name].held) == set(intent.parts)
    assert world.machine.settled


def test_no_switch_is_ahead_of_the_others_by_more_than_a_step(world: World) -> None:
    before = drain(world)
    assert world.machine.in_force is not None
    while world.step(alarms=False):
        holds = [switch.acknowledged or 0 for switch in world.switches.values()]
        writes = [
            switch.writing.version
            for switch in world.switches.values()
            if switch.writing is not None
        ]
        assert max([*holds, *writes]) <= min(holds) + 1
    assert not any(isinstance(fact, OrderGivenUp) for fact in world.facts)
    assert (
        world.machine.in_force.planned.version
        == before + len(world.machine.in_force.planned.steps) + 1
    )
    check_at_rest(world)


def test_the_next_plan_waits_for_the_last_step(world: World) -> None:
    drain(world)
    assert world.machine.in_force is not None
    planned = world.machine.in_force.planned
    world.register(ring("d", "h1", "h2"))
    while world.step(alarms=False):
        holds = [switch.acknowledged or 0 for switch in world.switches.values()]
        assert world.machine.in_force.planned is planned or min(holds) >= planned.version - 1
    assert world.state("d") == "installed"
    check_at_rest(world)


def test_a_switch_that_stays_behind_holds_up_the_others_for_a_while_only(world: World) -> None:
    drain(world)
    assert world.machine.in_force is not None
    others = [name for name in world.switches if name != "spine2"]
    while any(world.can_write(name) for name in others):
        world.write(next(name for name in others if world.can_write(name)))
    version = world.machine.in_force.planned.version
    assert {world.switches[name].acknowledged for name in others} == {
        version - len(world.machine.in_force.planned.steps)
    }
    for alarm in [one for one in world.waiting(SetAlarm) if one.alarm.kind == "step"]:
        world.carry_out(alarm)
    assert OrderGivenUp(version, ("spine2",)) in world.facts
    assert {
        switch.wanted.version for switch in world.switches.values() if switch.wanted is not None
    } == {version}
    world.run()
    check_at_rest(world)


@pytest.mark.parametrize("away", ["leaf1", "spine2"])
def test_a_switch_that_is_away_holds_up_nobody(world: World, away: str) -> None:
    drain(world)
    world.disconnect(away)
    while world.step(alarms=False):
        pass
    assert world.machine.in_force is not None
    version = world.machine.in_force.planned.version
    assert {switch.acknowledged for name, switch in world.switches.items() if name != away} == {
        version
    }
    world.run()
    check_at_rest(world)


@pytest.mark.parametrize("steps", range(0, 25, 2))
def test_after_a_crash_on_the_way_switches_come_to_the_new_plan(world: World, steps: int) -> None:
    drain(world)
    for _ in range(steps):
        world.step(alarms=False)
    world.crash()
    world.run()
    assert world.machine.jobs.drained == {("leaf1", "spine1")}
    assert {world.state(name) for name in ("a", "b", "c")} == {"installed"}
    check_at_rest(world)


def test_flows_that_have_lost_their_path_get_another_at_once(world: World) -> None:
    """Packets are lost on the old one anyway."""
    world.disconnect("spine1", restart=True)
    world.run(connect=False)
    assert world.machine.in_force is not None
    planned = world.machine.in_force.planned
    assert {flow.path[2] for flow in planned.plan.flows if len(flow.path) == 5} == {"spine2"}
    assert planned.steps == ()
