"""Switches that refuse parts of their intent: which jobs, links and clients that concerns."""

from __future__ import annotations

import pytest

from echelon.controller.machine.effects import SetAlarm
from echelon.controller.machine.facts import IntentLacking, JobInstalled, LinksDown
from echelon.controller.machine.refusals import lacks_of
from echelon.model.fabric.model import Fabric
from echelon.switches.southbound.events import IntentRefused, SwitchChanged
from echelon.switches.southbound.outcomes import NOWHERE, Refused, RefusedEntry, RefusedSetting
from tests.echelon.control.world import World, ring, two_by_two

SPINE1 = {("leaf1", "spine1"), ("leaf2", "spine1")}


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return two_by_two()


@pytest.fixture
def world(fabric: Fabric) -> World:
    """Return a world in which `a` and `b` cross the spines, and `local` does not."""
    world = World(fabric)
    world.start()
    for name, workers in (("a", ("h1", "h3")), ("b", ("h2", "h4")), ("local", ("h1", "h2"))):
        world.register(ring(name, *workers))
    world.run()
    assert states(world) == {"a": "installed", "b": "installed", "local": "installed"}
    return world


def states(world: World) -> dict[str, str]:
    return {name: world.state(name) for name in world.machine.jobs.jobs}


def problem(world: World, job: str) -> str:
    return world.machine.progress.state(job)[1] or ""


def queues(world: World, switch: str, *others: str) -> RefusedSetting:
    """Return the refusal of queues of the ports that lead to others."""
    ports = frozenset(world.fabric.port_to[switch, other] for other in others)
    return RefusedSetting(switch, f"queues of port {min(ports)}", "no such port", ports, True, 8)


def entry(switch: str, table: str, job: str | None, ports: frozenset[int] | None) -> RefusedEntry:
    return RefusedEntry(switch, table, "key=1", "full", "RESOURCE_EXHAUSTED", job, ports)


def refuse(world: World, switch: str, *parts: Refused) -> None:
    """Let a switch hold the intents but for some parts, now and of later ones."""
    world.refuse_parts(switch, *parts)
    world.run(connect=False)


def ring_out(world: World) -> None:
    """Let the alarms of outages ring, and plan anew."""
    for effect in world.waiting(SetAlarm):
        if effect.alarm.kind == "outage":
            world.carry_out(effect)
    world.run(connect=False)


def reported(world: World) -> list[str | None]:
    """Return what clients are informed of as refused; None: nothing any more."""
    return [fact.problem for fact in world.facts if isinstance(fact, IntentLacking)]


def crossing(world: World) -> set[str]:
    assert world.machine.in_force is not None
    flows = world.machine.in_force.planned.plan.flows
    return {node for flow in flows for node in flow.path if node.startswith("spine")}


def test_a_port_of_a_host_concerns_the_jobs_of_that_host(world: World) -> None:
    refused = queues(world, "leaf1", "h1")
    world.refuse_parts("leaf1", refused)
    while world.can_write("leaf1"):
        world.write("leaf1")
    assert states(world) == {"a": "planned", "b": "installed", "local": "planned"}
    assert problem(world, "a") == str(refused)
    assert world.machine.progress.waiting_for("a") == ("leaf1",)
    assert not world.machine.progress.settled("a"), "a plan may lead around it"
    ring_out(world)
    assert set(world.machine.outages.links) == {("h1", "leaf1")}
    assert "is not served: no such port" in world.machine.outages.links["h1", "leaf1"]
    assert states(world) == {"a": "planned", "b": "installed", "local": "planned"}
    assert world.machine.progress.settled("a"), "there is no other path"
    (down,) = [fact for fact in world.facts if isinstance(fact, LinksDown)]
    assert str(down) == f"leaf1 port {min(refused.ports)} is not served (no such port)"


def test_a_port_between_switches_is_led_around(world: World) -> None:
    refuse(world, "leaf1", queues(world, "leaf1", "spine1"))
    ring_out(world)
    assert set(world.machine.outages.links) == {("leaf1", "spine1")}
    assert crossing(world) == {"spine2"}
    assert set(states(world).values()) == {"installed"}


def test_who_waits_for_a_job_is_answered_when_no_plan_helps(world: World) -> None:
    refuse(world, "leaf1", queues(world, "leaf1", "h1"))
    ring_out(world)
    world.register(ring("c", "h1", "h4"))
    world.run(connect=False)
    request = world.wait_for("c")
    assert world.state("c") == "planned"
    assert request in world.answers


def test_an_accepted_port_completes_its_jobs(world: World) -> None:
    refuse(world, "leaf1", queues(world, "leaf1", "h1"))
    ring_out(world)
    world.register(ring("c", "h1", "h4"))
    world.run(connect=False)
    world.facts.clear()
    refuse(world, "leaf1")
    ring_out(world)
    assert world.machine.outages.links == {}
    assert set(states(world).values()) == {"installed"}
    assert "c" in [fact.job for fact in world.facts if isinstance(fact, JobInstalled)]
    assert reported(world) == [None]


@pytest.mark.parametrize(
    ("job", "to_h1", "concerned"),
    [("a", False, {"a"}), (None, False, {"a", "b", "local"}), (None, True, {"a", "local"})],
)
def test_entries_concern_their_job_or_their_ports_or_all(
    world: World, job: str | None, to_h1: bool, concerned: set[str]
) -> None:
    ports = frozenset({world.fabric.port_to["leaf1", "h1"]}) if to_h1 else None
    refuse(world, "leaf1", entry("leaf1", "level", job, ports))
    assert {name for name, state in states(world).items() if state == "planned"} == concerned
    assert all(world.machine.progress.settled(name) for name in states(world))
    ring_out(world)
    assert world.machine.outages.links == {}, "packets pass there"


def test_what_serves_nobody_concerns_no_job(world: World) -> None:
    digests = RefusedSetting("leaf1", "digests", "none here", NOWHERE, False, 1)
    refuse(world, "leaf1", digests, entry("leaf1", "flow", None, NOWHERE))
    assert set(states(world).values()) == {"installed"}
    refuse(world, "leaf1", digests)
    assert reported(world) == [f"{digests} (and 1 more)", str(digests)]


def test_several_parts_are_reported_once_also_if_a_later_session_refuses_them(
    world: World,
) -> None:
    first = queues(world, "leaf1", "h1")
    refuse(world, "leaf1", first, queues(world, "leaf1", "h2"))
    world.disconnect("leaf1")
    world.run()
    assert world.machine._switches["leaf1"].serves  # noqa: SLF001
    assert reported(world) == [f"{first} (and 1 more)"]


def test_a_full_table_is_one_lack_for_each_job(world: World) -> None:
    entries = [
        RefusedEntry("leaf1", "level", f"key={key}", "full", "RESOURCE_EXHAUSTED", job)
        for key, job in enumerate(["a", "b"] * 5)
    ]
    lacks = lacks_of("leaf1", entries, world.fabric)
    assert [(lack.job, lack.problem) for lack in lacks] == [
        ("a", str(entries[0])),
        ("b", str(entries[1])),
    ]


def test_a_switch_that_refuses_all_is_led_around(world: World) -> None:
    spine = world.switches["spine1"]
    spine.is_stuck = True
    world.tell(SwitchChanged("spine1", "refused", "closed"))
    world.tell(IntentRefused("spine1", "closed", 9))
    ring_out(world)
    assert set(world.machine.outages.links) == SPINE1
    assert set(world.machine.outages.links.values()) == {"switch spine1 refuses its intent"}
    assert crossing(world) == {"spine2"}
    assert set(states(world).values()) == {"installed"}
    # Another session is tried, and refuses again.
    world.tell(SwitchChanged("spine1", "writing", "closed"))
    ring_out(world)
    assert set(world.machine.outages.links) == SPINE1

    spine.is_stuck = False
    world.run()
    ring_out(world)
    assert world.machine.outages.links == {}


def test_a_switch_that_comes_back_and_refuses_is_no_longer_said_to_be_silent(world: World) -> None:
    world.disconnect("spine1")
    ring_out(world)
    assert set(world.machine.outages.links.values()) == {"switch spine1 does not answer"}
    world.tell(SwitchChanged("spine1", "refused", "this program does not fit"))
    assert set(world.machine.outages.links.values()) == {"switch spine1 refuses its intent"}
    world.tell(SwitchChanged("spine1", "away", "gone"))
    assert set(world.machine.outages.links.values()) == {"switch spine1 does not answer"}
    world.run()
    ring_out(world)
    assert world.machine.outages.links == {}


@pytest.mark.parametrize("is_clear", [True, False])
def test_numbers_are_free_again_only_when_the_switch_has_given_them_up(
    world: World, is_clear: bool
) -> None:
    line = world.machine._switches["leaf1"]  # noqa: SLF001
    before = line.cleared
    parts = (queues(world, "leaf1", "h1"),)
    world.tell(IntentRefused("leaf1", "no", before + 1, parts, is_clear))
    assert line.serves == before + 1
    assert line.cleared == before + is_clear
