"""Links that move from port to port: which files fit, the order of things, and what is left after a
crash.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.controller.changes import MoveLinks, TurnLinks
from echelon.controller.machine.effects import AdvanceMove, Save, SetAlarm
from echelon.controller.machine.errors import RefusedError
from echelon.controller.machine.facts import LinksMoved, MoveFailed
from echelon.controller.machine.rehearsal import ChangeOutcome
from echelon.controller.machine.wiring import Wiring, ends_of, moved_to
from echelon.model.errors import Code
from echelon.model.fabric.load import FabricSpec, build_fabric
from echelon.model.fabric.model import Fabric
from tests.echelon.control.adversary import MOVED, cables_of
from tests.echelon.control.world import TWO_BY_TWO, World, ring, two_by_two
from tests.faults import coded

SQUARE = MOVED[1]
"""The links leaf1 - spine1 and leaf2 - spine2 stay; the leaves are joined, and the spines."""


@pytest.fixture
def world() -> World:
    world = World(two_by_two(), policy="fair")
    world.start()
    for name, workers in (("a", ("h1", "h3")), ("b", ("h2", "h4")), ("local", ("h1", "h2"))):
        world.register(ring(name, *workers))
    world.run()
    return world


def spec(document: dict[str, Any]) -> FabricSpec:
    return FabricSpec.model_validate(document)


def links(fabric: Fabric) -> set[tuple[str, str]]:
    return {ends_of(cable.a.node, cable.b.node) for cable in fabric.cables}


def crossed(world: World) -> set[tuple[str, str]]:
    assert world.machine.in_force is not None
    return {
        ends_of(*hop)
        for flow in world.machine.in_force.planned.plan.flows
        for hop in pairwise(flow.path)
    }


def said(world: World) -> Callable[[int], TurnLinks]:
    """Return what makes the change by which a person says that links stand."""
    wiring = world.machine.jobs.wiring
    return lambda request: TurnLinks(request, wiring, Wiring(wiring.then or wiring.now))


def assert_refused_for_now(world: World, request: int) -> None:
    error = world.error(request)
    assert (error.status, error.code) == (409, "refused")


# -- which files fit -------------------------------------------------------------------------------


def test_links_keep_their_ports_and_new_ones_take_free_ones() -> None:
    before = two_by_two()
    after = moved_to(before, before, spec(SQUARE))
    for a, b in links(before) & links(after):
        assert (after.port_to[a, b], after.port_to[b, a]) == (
            before.port_to[a, b],
            before.port_to[b, a],
        )
    # leaf1 had spine2 at port 4, which the other leaf has now.
    assert after.port_to["leaf1", "leaf2"] == before.port_to["leaf1", "spine2"]


@given(st.data())
def test_any_links_get_ports_of_their_rates(data: st.DataObject) -> None:
    """Six switches have four ports each; the order of links and the ports that are fixed do not
    matter.
    """
    switches = [f"s{number}" for number in range(6)]
    pairs = [(a, b) for at, a in enumerate(switches) for b in switches[at + 1 :]]

    def document(chosen: list[tuple[str, str]]) -> dict[str, Any]:
        rates = {pair: "10 Gbit/s" if pair == ("s0", "s1") else "1 Gbit/s" for pair in chosen}
        hosts = [
            {"between": ["h1", "s0"], "rate": "1 Gbit/s"},
            {"between": ["h2", "s5"], "rate": "1 Gbit/s"},
        ]
        between = [{"between": list(pair), "rate": rates[pair]} for pair in chosen]
        return {
            "fabric": "f",
            "hosts": ["h1", "h2"],
            "switches": switches,
            "links": [*hosts, *between],
        }

    def drawn() -> list[tuple[str, str]]:
        chosen = [("s0", "s1"), *((a, b) for a, b in pairwise(switches) if a != "s0")]
        for a, b in data.draw(st.permutations([pair for pair in pairs if pair not in chosen])):
            if max(sum(one in pair for pair in chosen) for one in (a, b)) < 4:
                chosen.append((a, b))
        return data.draw(st.permutations(chosen))

    file = build_fabric(spec(document(drawn())))
    rate = {
        (end.node, end.port): cable.rate_bps for cable in file.cables for end in (cable.a, cable.b)
    }
    now = file
    for _ in range(2):
        wanted = spec(document(drawn()))
        if any(
            sum(name in link.between for link in wanted.links) > len(file.ports[name])
            for name in switches
        ):
            with pytest.raises(RefusedError, check=coded("does-not-fit", "1 Gbit/s")) as caught:
                moved_to(file, now, wanted)
            assert re.fullmatch(r"links\[\d+\]", caught.value.path)
            continue
        after = moved_to(file, now, wanted)
        ends = [(end.node, end.port) for cable in after.cables for end in (cable.a, cable.b)]
        assert len(set(ends)) == len(ends)
        assert all(
            rate[end.node, end.port] == cable.rate_bps
            for cable in after.cables
            for end in (cable.a, cable.b)
        )
        assert [(cable.a.node, cable.b.node) for cable in after.cables] == [
            one.between for one in wanted.links
        ]
        for a, b in links(now) & links(after):
            assert (now.port_to[a, b], now.port_to[b, a]) == (
                after.port_to[a, b],
                after.port_to[b, a],
            )
        wiring = Wiring(now, after, begun=True)
        assert Wiring.from_document(wiring.to_document(file), file) is not None
        now = after


@pytest.mark.parametrize(
    ("change", "code", "path", "names"),
    [
        ({"hosts": ["h1", "h2", "h4", "h3"]}, "refused", "hosts.h3", ["host 'h3'"]),
        (
            {"switches": ["leaf2", "leaf1", "spine1", "spine2"]},
            "refused",
            "switches.leaf1",
            ["switch 'leaf1'"],
        ),
        ({"port": 9}, "does-not-fit", "links[6]", ["'leaf1'", "'leaf2'", "port 9", "1 Gbit/s"]),
        ({"rate": "2 Gbit/s"}, "does-not-fit", "links[6]", ["'leaf1'", "'leaf2'", "2 Gbit/s"]),
        ({"port": 3, "rate": "2 Gbit/s"}, "does-not-fit", "links[6]", ["port 3", "2 Gbit/s"]),
    ],
)
def test_what_does_not_fit_is_refused(
    world: World, change: dict[str, Any], code: Code, path: str, names: list[str]
) -> None:
    document = {**SQUARE, "links": [dict(link) for link in SQUARE["links"]]}
    document.update({key: value for key, value in change.items() if key in document})
    (joined,) = (link for link in document["links"] if link["between"] == ["leaf1", "leaf2"])
    joined.update(
        {"rate": change.get("rate", joined["rate"])},
        ports={"leaf1": change["port"]} if "port" in change else {},
    )
    request = world.move(document)
    with pytest.raises(RefusedError, check=coded(code, *names, path=path)):
        world.answer(request)
    assert world.waiting(Save) == []


def test_jobs_do_not_lose_their_paths(world: World) -> None:
    world.set_link("leaf1", "spine1", drained=True)
    world.run()
    request = world.move(
        SQUARE
        | {"links": [link for link in SQUARE["links"] if link["between"] != ["leaf1", "leaf2"]]}
    )
    world.run()
    with pytest.raises(RefusedError, check=coded("no-route", "2 jobs", ": a, b ", path="")):
        world.answer(request)


# -- the order of things ---------------------------------------------------------------------------


def test_each_phase_waits_for_the_one_before(world: World) -> None:
    before, going = world.machine.in_force, {("leaf1", "spine2"), ("leaf2", "spine1")}
    world.move(SQUARE)
    world.run_until_waiting(AdvanceMove)
    assert world.machine.moves.stage == "draining"
    assert before is not world.machine.in_force
    for name in ("leaf1", "leaf2", "spine1", "spine2"):
        assert world.switches[name].acknowledged == world.machine.in_force.planned.version  # type: ignore[union-attr]
    (drain,) = world.waiting(AdvanceMove)
    assert (drain.wiring.avoided, drain.wiring.begun) == (going, False)
    world.carry_out(drain)
    assert world.waiting(AdvanceMove) == [], "it is not saved yet"
    (save,) = world.waiting(Save)
    world.carry_out(save)
    assert {world.state(name) for name in ("a", "b")} == {"planned"}
    assert world.state("local") == "installed"
    told = world.machine.progress.state("a")[1]
    assert told is not None
    assert "moves, and there is no other path until the new links stand" in told
    (move,) = world.waiting(AdvanceMove)
    assert move.wiring.begun
    world.carry_out(move, fails=True)
    assert world.machine.moves.waits == "the optical switch does not answer"
    assert any(isinstance(fact, MoveFailed) for fact in world.facts)
    assert crossed(world) & going, "there is nothing else"
    world.run()
    assert links(world.machine.jobs.whole_fabric) == links(build_fabric(spec(SQUARE)))
    assert not crossed(world) & going
    assert {world.state(name) for name in ("a", "b", "local")} == {"installed"}
    (moved,) = (fact for fact in world.facts if isinstance(fact, LinksMoved))
    assert (moved.going, moved.coming, moved.by_hand) == (2, 2, False)
    assert [*moved.seconds] == ["routing", "draining", "moving", "installing"]


def test_a_switch_that_does_not_answer_is_waited_for_until_it_is_down(world: World) -> None:
    world.disconnect("spine2")
    world.move(SQUARE)
    for _ in range(200):
        if not world.step(alarms=False):
            break
    assert world.machine.moves.waits == "waits for spine2 to hold the plan around the links"
    assert (world.waiting(AdvanceMove), world.machine.moves.stage) == ([], "routing")
    world.run(connect=False)
    assert world.machine.moves.stage == "standing"
    assert cables_of(world.cabling) == cables_of(world.machine.jobs.whole_fabric)


@pytest.mark.parametrize("steps", range(0, 50, 3))
@pytest.mark.parametrize("saved", [0, 1])
def test_a_crash_at_any_moment_loses_nothing(world: World, steps: int, saved: int) -> None:
    request = world.move(SQUARE)
    for _ in range(steps):
        world.step()
    acknowledged = request in world.answers
    world.crash(saved)
    world.run()
    there = links(world.machine.jobs.whole_fabric)
    assert there in [links(two_by_two()), links(build_fabric(spec(SQUARE)))]
    if acknowledged or saved:
        assert there == links(build_fabric(spec(SQUARE)))
    assert cables_of(world.cabling) == cables_of(world.machine.jobs.whole_fabric)
    assert {world.state(name) for name in ("a", "b", "local")} == {"installed"}


def test_a_move_that_has_not_begun_can_be_ended(world: World) -> None:
    world.move(SQUARE)
    world.run_until_waiting(AdvanceMove)
    other = world.move(MOVED[2])
    assert_refused_for_now(world, other)
    again = world.move(SQUARE)
    assert world.answer(again) is world.machine.jobs.wiring, "the same again changes nothing"
    ended = world.move(TWO_BY_TWO)
    world.run()
    assert world.answer(ended).then is None
    assert (world.machine.moves.stage, cables_of(world.cabling)) == (
        "standing",
        cables_of(two_by_two()),
    )
    assert_refused_for_now(world, world.carry_out_change(said(world)))


def test_a_move_that_begins_while_switches_still_get_the_last_one_leaves_both_on_record(
    world: World,
) -> None:
    world.move(SQUARE)
    while world.machine.moves.stage != "installing":
        assert world.step()
    world.move(TWO_BY_TWO)
    assert world.machine.moves.stage == "installing", "the next one is not saved yet"
    while world.machine.moves.stage == "installing":
        assert world.step()
    (first,) = (fact for fact in world.facts if isinstance(fact, LinksMoved))
    assert (world.machine.moves.stage, first.going) == ("routing", 2)
    world.run()
    assert len([fact for fact in world.facts if isinstance(fact, LinksMoved)]) == 2
    assert cables_of(world.cabling) == cables_of(two_by_two())


def test_a_person_says_that_links_stand() -> None:
    world = World(two_by_two(), by_hand=True)
    world.start()
    world.run()
    world.move(SQUARE)
    early = world.carry_out_change(said(world))
    world.run()
    assert_refused_for_now(world, early)
    assert (world.machine.moves.stage, world.waiting(AdvanceMove)) == ("moving", [])
    world.crash()
    world.run()
    assert world.machine.moves.stage == "moving"
    world.carry_out_change(said(world))
    world.run()
    assert world.machine.moves.stage == "standing"
    assert ("leaf1", "leaf2") in links(world.machine.jobs.whole_fabric)
    (moved,) = (fact for fact in world.facts if isinstance(fact, LinksMoved))
    assert moved.by_hand


def test_what_is_drained_is_forgotten_with_its_link(world: World) -> None:
    world.set_link("leaf1", "spine2", drained=True)
    world.set_link("leaf2", "spine2", drained=True)
    world.run()
    for document in (SQUARE, TWO_BY_TWO):
        world.move(document)
        world.run()
        assert world.machine.jobs.drained == {("leaf2", "spine2")}
    world.crash()
    assert world.machine.jobs.drained == {("leaf2", "spine2")}


def test_a_save_that_fails_is_tried_again(world: World) -> None:
    world.move(SQUARE)
    world.run_until_waiting(AdvanceMove)
    world.carry_out(world.waiting(AdvanceMove)[0])
    for _ in range(2):
        (save,) = world.waiting(Save)
        world.carry_out(save, fails=True)
        (alarm,) = (one for one in world.waiting(SetAlarm) if one.alarm.kind == "move")
        world.carry_out(alarm)
    world.run()
    assert world.machine.moves.stage == "standing"
    assert ("leaf1", "leaf2") in links(world.machine.jobs.whole_fabric)


def test_a_dry_run_has_the_plan_for_the_new_links(world: World) -> None:
    request = world.dry_run(lambda number: MoveLinks(number, spec(SQUARE)))
    world.run()
    outcome = world.answer(request)
    assert isinstance(outcome, ChangeOutcome)
    assert {one.switch for one in outcome.differences} >= {"leaf1", "leaf2"}
    assert links(world.machine.jobs.whole_fabric) == links(two_by_two())
    # The plan of the dry run is that which comes.
    added = {one.switch: {entry for _, entry in one.added} for one in outcome.differences}
    world.move(SQUARE)
    world.run()
    assert world.machine.in_force is not None
    for switch, entries in added.items():
        assert entries <= {*world.machine.in_force.planned.intents[switch].entries}
