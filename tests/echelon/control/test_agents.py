"""The connections that agents report, and those that switches then recognise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.controller.changes import ReportConnections
from echelon.controller.machine.effects import MakePlan, Refuse, Save
from echelon.controller.machine.errors import ServiceError
from echelon.switches.lowering.identity import FiveTuple
from echelon.switches.lowering.intent import TableEntry
from echelon.switches.lowering.parts import ipv4
from echelon.switches.targets.softswitch.capabilities import softswitch
from tests.drawing import examples
from tests.echelon.control.world import World, ring, two_by_two

FABRIC = two_by_two()
HOSTS = tuple(FABRIC.hosts)
AGENT = {"recognition": {"by": "agent", "idle_gap": "50 ms"}}


def between(src: str, src_port: int, dst: str, dst_port: int) -> FiveTuple:
    return "tcp", FABRIC.hosts[src].ipv4, FABRIC.hosts[dst].ipv4, src_port, dst_port


def report(world: World, job: str, host: str, *connections: FiveTuple) -> int:
    return world.carry_out_change(
        lambda request: ReportConnections(request, job, host, connections)
    )


def entries(world: World, switch: str, table: str) -> list[TableEntry]:
    return [
        one for part in world.switches[switch].held for one in part.entries if one.table == table
    ]


def key(connection: FiveTuple) -> tuple[tuple[str, int], ...]:
    _, src, dst, src_port, dst_port = connection
    return ("src", ipv4(src)), ("dst", ipv4(dst)), ("src_port", src_port), ("dst_port", dst_port)


def recognised(world: World, switch: str = "leaf1") -> set[Any]:
    return {one.match for one in entries(world, switch, "tcp_connection")}


def both_ways(*connections: FiveTuple) -> set[Any]:
    return {key(one) for one in connections} | {
        key((p, d, s, dp, sp)) for p, s, d, sp, dp in connections
    }


@pytest.fixture
def world() -> World:
    world = World(FABRIC)
    world.start()
    for name in world.switches:
        world.connect(name)
    world.register({**ring("a", "h1", "h2"), **AGENT})
    world.run()
    return world


def refusal(world: World, request: int) -> ServiceError:
    answer = world.answers[request]
    assert isinstance(answer, Refuse)
    assert isinstance(answer.error, ServiceError)
    assert answer.error.reason.isprintable()
    assert answer.error.reason.endswith(")"), "does not say what to do"
    return answer.error


def test_before_any_report_no_connection_is_recognised(world: World) -> None:
    assert recognised(world) == set()
    assert world.state("a") == "installed"
    assert entries(world, "leaf1", "segment")


def test_reported_connections_are_recognised_in_both_directions(world: World) -> None:
    first, second = between("h1", 40000, "h2", 29500), between("h1", 29501, "h2", 50000)
    report(world, "a", "h1", first, second)
    world.run()
    assert recognised(world) == both_ways(first, second)
    assert world.state("a") == "installed"


def test_connections_between_two_hosts_are_counted_as_one(world: World) -> None:
    report(world, "a", "h1", between("h1", 40000, "h2", 29500), between("h1", 29501, "h2", 50000))
    world.run()
    forth = [
        dict(one.actions[0].arguments)
        for one in entries(world, "leaf1", "tcp_connection")
        if dict(one.match)["src"] == ipv4(FABRIC.hosts["h1"].ipv4)
    ]
    assert (
        len({arguments.pop("sequence_of") for arguments in forth}) == 2
    )  # each has sequence numbers of its own
    first, second = forth
    assert first == second
    assert first["connection"] in {
        dict(one.match)["connection"] for one in entries(world, "leaf1", "segment")
    }


def test_a_reconnect_changes_only_entries_of_connections(world: World) -> None:
    report(world, "a", "h1", between("h1", 40000, "h2", 29500))
    world.run()
    segments, before = entries(world, "leaf1", "segment"), entries(world, "leaf1", "tcp_connection")
    again = between("h1", 40001, "h2", 29500)
    report(world, "a", "h1", again)
    world.run()
    assert recognised(world) == both_ways(again)
    assert entries(world, "leaf1", "segment") == segments
    assert {one.actions for one in entries(world, "leaf1", "tcp_connection")} == {
        one.actions for one in before
    }


def test_what_both_ends_report_stays_until_both_have_seen_it_close(world: World) -> None:
    report(world, "a", "h1", between("h1", 40000, "h2", 29500))
    report(world, "a", "h2", between("h2", 29500, "h1", 40000))
    world.run()
    report(world, "a", "h1")
    world.run()
    assert recognised(world) == both_ways(between("h1", 40000, "h2", 29500))
    report(world, "a", "h2")
    world.run()
    assert recognised(world) == set()


def test_the_same_report_again_changes_nothing(world: World) -> None:
    connections = (between("h1", 40000, "h2", 29500), between("h1", 40001, "h2", 29500))
    report(world, "a", "h1", *connections)
    world.run()
    generation = world.machine.jobs.generation
    again = report(world, "a", "h1", *reversed(connections))
    assert again in world.answers
    assert not world.waiting(Save)
    assert not world.waiting(MakePlan)
    assert world.machine.jobs.generation == generation


def test_the_graph_is_not_built_anew(world: World) -> None:
    graph = world.machine.jobs.jobs["a"].job
    report(world, "a", "h1", between("h1", 40000, "h2", 29500))
    world.run()
    assert world.machine.jobs.jobs["a"].job is graph


def test_a_restart_keeps_what_was_acknowledged(world: World) -> None:
    connection = between("h1", 40000, "h2", 29500)
    report(world, "a", "h1", connection)
    world.run()
    world.disconnect("leaf1", restart=True)
    world.pending.clear()
    world.start()
    for name in world.switches:
        world.disconnect(name)
        world.connect(name)
    world.run()
    assert recognised(world) == both_ways(connection)


def test_another_file_of_the_job_keeps_the_connections_between_its_hosts(world: World) -> None:
    stays, goes = between("h1", 40000, "h2", 29500), between("h1", 40001, "h3", 29500)
    world.register({**ring("a", "h1", "h2", "h3"), **AGENT}, replace=True)
    world.run()
    report(world, "a", "h1", stays, goes)
    world.register({**ring("a", "h1", "h2", gradient="2 MB"), **AGENT}, replace=True)
    world.run()
    assert recognised(world) == both_ways(stays)
    world.register(ring("a", "h1", "h2"), replace=True)
    world.run()
    assert recognised(world) == set()
    assert world.machine.jobs.jobs["a"].connections == {}


def test_a_removed_job_leaves_nothing(world: World) -> None:
    report(world, "a", "h1", between("h1", 40000, "h2", 29500))
    world.remove("a")
    world.run()
    assert recognised(world) == set()


@pytest.mark.parametrize(
    ("job", "host", "connections", "code", "path"),
    [
        ("b", "h1", [], "unknown-job", ""),
        ("a", "h3", [], "unknown-host", ""),
        ("a", "h9", [], "unknown-host", ""),
        ("a", "h1", [between("h2", 1, "h1", 2)], "not-allowed", "connections[0].local"),
        (
            "a",
            "h1",
            [("tcp", "8.8.8.8", FABRIC.hosts["h2"].ipv4, 1, 2)],
            "not-allowed",
            "connections[0].local",
        ),
        (
            "a",
            "h1",
            [between("h1", 1, "h2", 2), between("h1", 1, "h3", 2)],
            "not-allowed",
            "connections[1].remote",
        ),
        ("a", "h1", [between("h1", 1, "h1", 2)], "not-allowed", "connections[0].remote"),
        (
            "a",
            "h1",
            [between("h1", port, "h2", 2) for port in range(1, 4098)],
            "limit-reached",
            "connections",
        ),
    ],
)
def test_what_is_not_the_jobs_is_refused(
    world: World, job: str, host: str, connections: Iterable[FiveTuple], code: str, path: str
) -> None:
    error = refusal(world, report(world, job, host, *connections))
    assert (error.code, error.path) == (code, path)
    world.run()
    assert recognised(world) == set()


@pytest.mark.parametrize(
    "by",
    [
        {},
        {
            "recognition": {
                "by": "bytes",
                "source_port": 5,
                "destination_port": 6,
                "idle_gap": "1 s",
            }
        },
    ],
)
def test_a_job_that_does_not_ask_for_agents_has_no_reports(
    world: World, by: dict[str, Any]
) -> None:
    world.register({**ring("b", "h3", "h4"), **by})
    world.run()
    assert refusal(world, report(world, "b", "h3", between("h3", 1, "h4", 2))).code == "not-allowed"


@pytest.mark.parametrize("backwards", [False, True])
def test_the_connection_of_another_job_is_refused(world: World, backwards: bool) -> None:
    world.register({**ring("b", "h1", "h2"), **AGENT})
    world.run()
    report(world, "a", "h1", between("h1", 40000, "h2", 29500))
    world.run()
    host, taken = (
        ("h2", between("h2", 29500, "h1", 40000))
        if backwards
        else ("h1", between("h1", 40000, "h2", 29500))
    )
    error = refusal(world, report(world, "b", host, taken))
    assert (error.code, error.status) == ("duplicate", 409)
    report(world, "a", "h1")
    world.run()
    report(world, "b", host, taken)
    world.run()
    assert recognised(world) == both_ways(taken)


def test_of_two_jobs_that_claim_a_connection_at_once_the_second_is_refused(world: World) -> None:
    world.register({**ring("b", "h1", "h2"), **AGENT})
    world.run()
    taken = between("h1", 40000, "h2", 29500)
    first, second = report(world, "a", "h1", taken), report(world, "b", "h1", taken)
    assert first not in world.answers, "it is being saved"
    assert refusal(world, second).code == "duplicate"
    world.run()
    assert recognised(world) == both_ways(taken)


def test_a_connection_that_another_jobs_file_names_is_refused(world: World) -> None:
    ports = {
        "recognition": {
            "by": "bytes",
            "source_port": 5001,
            "destination_port": 5002,
            "idle_gap": "50 ms",
        }
    }
    world.register({**ring("b", "h1", "h2"), **ports})
    world.run()
    for host, taken in (
        ("h1", between("h1", 5001, "h2", 5002)),
        ("h2", between("h2", 5002, "h1", 5001)),
    ):
        assert refusal(world, report(world, "a", host, taken)).code == "duplicate"
    report(world, "a", "h1", between("h1", 5001, "h2", 5003))
    world.run()
    assert world.state("a") == world.state("b") == "installed"


ENDS = st.tuples(st.sampled_from(HOSTS[:3]), st.sampled_from(HOSTS[:3])).filter(
    lambda ends: ends[0] != ends[1]
)
CONNECTIONS = st.builds(
    lambda ends, ports: (*ends, *ports), ENDS, st.tuples(st.integers(1, 3), st.integers(1, 3))
)


@given(
    st.lists(st.tuples(st.sampled_from(HOSTS[:3]), st.lists(CONNECTIONS, max_size=4)), max_size=6)
)
@settings(max_examples=examples(30), deadline=None)
def test_switches_recognise_the_latest_report_of_every_host(
    reports: list[tuple[str, list[Any]]],
) -> None:
    world = World(FABRIC)
    world.start()
    for name in world.switches:
        world.connect(name)
    # In the ring, h1 sends to h2, h2 to h3, and h3 to h1.
    world.register({**ring("a", "h1", "h2", "h3"), **AGENT})
    world.run()
    latest: dict[str, set[tuple[str, str, int, int]]] = {}
    for host, seen in reports:
        latest[host] = {(a, b, pa, pb) for a, b, pa, pb in seen if a == host}
        report(world, "a", host, *(between(a, pa, b, pb) for a, b, pa, pb in latest[host]))
    world.run()
    wanted = {
        key(between(a, pa, b, pb))
        for seen in latest.values()
        for one in seen
        for a, b, pa, pb in (one, (one[1], one[0], one[3], one[2]))
        if (a, b) in {("h1", "h2"), ("h2", "h3"), ("h3", "h1")}
    }
    assert recognised(world, "leaf1") | recognised(world, "leaf2") == wanted


def test_more_connections_than_a_switch_has_room_for_leave_the_job_out_and_no_other() -> None:
    world = World(FABRIC, capabilities=replace(softswitch(), max_connections=10))
    world.start()
    for name in world.switches:
        world.connect(name)
    for job in ("a", "b"):
        world.register({**ring(job, "h1", "h2"), **AGENT})
        world.run()
    report(world, "a", "h1", *(between("h1", port, "h2", 1) for port in (1, 2)))
    world.run()
    report(world, "b", "h1", *(between("h1", port, "h2", 1) for port in (3, 4)))
    world.run()
    assert (world.state("a"), world.state("b")) == ("installed", "unplanned")
    assert recognised(world) == both_ways(between("h1", 1, "h2", 1), between("h1", 2, "h2", 1))
    report(world, "b", "h1", between("h1", 3, "h2", 1))
    world.run()
    assert (world.state("a"), world.state("b")) == ("installed", "installed")
    assert len(recognised(world)) == 6


ROCE = {"recognition": {"by": "agent", "protocol": "roce", "mtu": "1024 B", "idle_gap": "50 ms"}}


def test_reported_queue_pairs_are_recognised_in_both_directions(world: World) -> None:
    world.register({**ring("r", "h3", "h4"), **ROCE})
    world.run()
    several = [between("h3", 17 + place, "h4", 0xABCDE0 + place) for place in range(3)]
    report(world, "r", "h3", *several)
    world.run()
    switch = next(name for name in world.switches if entries(world, name, "roce_connection"))
    found = entries(world, switch, "roce_connection")
    assert {(dict(one.match)["dst"], dict(one.match)["queue_pair"]) for one in found} == {
        (ipv4(FABRIC.hosts[host].ipv4), pair)
        for _, _, _, own, its in several
        for host, pair in (("h3", own), ("h4", its))
    }
    # Those of one direction are one connection, and each has packet numbers of its own.
    arguments = [dict(one.actions[0].arguments) for one in found]
    assert len({one["connection"] for one in arguments}) == 2
    assert len({one["queue_pair"] for one in arguments}) == 6
    assert {one.actions[0].name for one in found} == {"set_queue_pair_1024"}
    assert not entries(world, switch, "tcp_answer")
    assert {one[0] for one in world.machine.jobs.find("r").five_tuples} == {"roce"}


def test_a_port_of_tcp_has_sixteen_bits(world: World) -> None:
    error = refusal(world, report(world, "a", "h1", between("h1", 0x10000, "h2", 29500)))
    assert error.code == "out-of-range"
    assert "65536" in error.reason
