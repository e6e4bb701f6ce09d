"""A running service, real switches and sockets: trees come and go with their jobs, whoever dies in
between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
import yaml
from finsy import P4Schema
from finsy.proto import p4r
from typer.testing import CliRunner

from echelon.cli.usage import BAD_INPUT
from echelon.controller.client import Client
from echelon.model.documents import parse_document
from echelon.model.p4program import program
from echelon.switches.lowering.intent import FIRST_GROUP
from echelon_aggregation.commands.app import app
from echelon_aggregation.frames import Endpoint, Frames, read
from echelon_aggregation.membership import Membership
from echelon_aggregation.program import BUILDS
from echelon_aggregation.station import Station
from echelon_aggregation.wire import Kind, Packet
from echelon_aggregation.worker import all_reduce
from plugins.aggregation.tests.test_door import document
from plugins.aggregation.tests.test_station import wait_for
from tests.echelon.service.conftest import building
from tests.echelon.service.lab import PATIENCE_S, TWO_BY_TWO, Daemon, Host, Lab, Switch, settle
from tests.faults import mentions

HOSTS = ["h1", "h2", "h3", "h4"]
PLACES = 4096


@pytest.fixture
def lab() -> Iterator[Lab]:
    with building() as build:
        yield build(TWO_BY_TWO, policy={"name": "fair"})


def serve(lab: Lab) -> Daemon:
    switches = {
        name: {"address": of.address, "program": "aggregation"} for name, of in lab.switches.items()
    }
    return lab.daemon(switches=switches)


def held(switch: Switch) -> tuple[Mapping[str, int], Mapping[int, int]]:
    """Return how many entries of each table of trees a switch holds, and the number of copies of
    our groups, as plain gRPC tells."""
    schema = P4Schema(program("v1model", BUILDS / "v1model").p4info)
    tables: dict[str, int] = {}
    for entry in switch.entries():
        name = schema.tables[entry.table_id].alias
        if name.startswith("aggregation_") or name in ("flow", "shim_flow"):
            tables[name] = tables.get(name, 0) + 1
    query = p4r.PacketReplicationEngineEntry(multicast_group_entry=p4r.MulticastGroupEntry())
    with switch.stub() as stub:
        entities = [p4r.Entity(packet_replication_engine_entry=query)]
        request = p4r.ReadRequest(device_id=switch.device_id, entities=entities)
        groups = [
            entity.packet_replication_engine_entry.multicast_group_entry
            for reply in stub.Read(request, timeout=PATIENCE_S)
            for entity in reply.entities
        ]
    return tables, {group.multicast_group_id: len(group.replicas) for group in groups}


def everything(lab: Lab) -> dict[str, Any]:
    return {
        name: (
            held(switch),
            sorted(entry.SerializeToString(deterministic=True) for entry in switch.entries()),
        )
        for name, switch in lab.switches.items()
    }


def group_of(lab: Lab, client: Client, job: str) -> Membership:
    (told,) = client.job(job).trees
    workers = []
    for worker in told["workers"]:
        (leaf,) = (node for node, other in lab.fabric.port_to if other == worker["host"])
        wire = f"unix:{lab.switches[leaf].path(lab.fabric.port_to[leaf, worker['host']])}"
        workers.append({"wire": wire, **{key: of for key, of in worker.items() if key != "host"}})
    return parse_document(Membership, {**told, "workers": workers}, job)


def add_up(found: Sequence[Station], values: int = 32 * 40) -> None:
    """Check a sum of all workers."""
    collectives = [
        all_reduce(np.arange(values, dtype=np.int32) * rank) for rank in range(len(found))
    ]
    assert wait_for(list(zip(found, collectives, strict=True))) == [None] * len(found)
    expected = np.arange(values, dtype=np.int32) * sum(range(len(found)))
    assert all(np.array_equal(one.result, expected) for one in collectives)


@contextmanager
def stations(of: Membership) -> Iterator[list[Station]]:
    with ExitStack() as closing:
        found = [Station(of, rank) for rank in range(len(of.workers))]
        for station in found:
            closing.callback(station.close)
        yield found


def test_trees_live_as_long_as_their_jobs(lab: Lab) -> None:
    daemon = serve(lab)
    with lab.client(daemon) as client:
        settle(client)
        empty = everything(lab)
        client.register_job(document("a", HOSTS))
        settle(client)
        assert client.job("a").state == "installed"
        of = group_of(lab, client, "a")
        printed = CliRunner().invoke(
            app, ["group", "a", "--url", daemon.wait_listening(), "--wire", "eth9"]
        )
        assert printed.exit_code == 0, printed.output
        file = parse_document(Membership, yaml.safe_load(printed.output), "group")
        assert {worker.wire for worker in file.workers} == {"eth9"}
        assert (file.group, file.job, file.flow, file.answers) == (
            of.group,
            of.job,
            of.flow,
            of.answers,
        )
        assert [(worker.ip, worker.port) for worker in file.workers] == [
            (one.ip, one.port) for one in of.workers
        ]
        none = CliRunner().invoke(
            app, ["group", "a", "--tree", "2", "--url", daemon.wait_listening()]
        )
        assert none.exit_code == BAD_INPUT
    before = everything(lab)
    in_tree = [name for name, ((tables, _), _) in before.items() if "aggregation_tree" in tables]
    assert sorted(in_tree) in (["leaf1", "leaf2", "spine1"], ["leaf1", "leaf2", "spine2"])
    for (tables, groups), _ in (before[name] for name in in_tree):
        assert (tables["aggregation_tree"], tables["aggregation_holder"]) == (1, 1)
        assert groups == {FIRST_GROUP + of.tree: 2}
    with stations(of) as found:
        add_up(found)
        # Nobody needs the controller for a sum, and the next one finds everything as it was.
        daemon.kill()
        add_up(found)
        daemon = serve(lab)
        with lab.client(daemon) as client:
            settle(client)
            assert everything(lab) == before
            assert group_of(lab, client, "a") == of
            add_up(found)
    # Worker 0 goes on alone and dies: each of its blocks holds a place of its leaf.
    with ExitStack() as closing:
        hosts = [closing.enter_context(lab.host(name)) for name in HOSTS]
        send(of, hosts, 0, range(1000, 1000 + PLACES))
        with lab.client(daemon) as client:
            client.remove_job("a")
            settle(client)
            assert everything(lab) == empty
            client.register_job(document("b", HOSTS))
            settle(client)
            next_of = group_of(lab, client, "b")
            assert (next_of.tree, next_of.session) != (of.tree, of.session)
            assert next_of.memory == "first"
            # Old packets of the former job do nothing.
            send(of, hosts, 0, range(1000 + PLACES, 1000 + PLACES + 100))
        # If a place was not free, the contribution would come to the fallback on the first host.
        for rank in range(4):
            send(next_of, hosts, rank, range(2))
        for host in hosts:
            for block in range(2):
                packet = received(host)
                # Where processors are slow, the fallback of the former job has asked for a block,
                # and the answer may still be under way.
                while packet.kind is Kind.ANSWER and packet.session == of.session:
                    packet = received(host)
                assert (packet.kind, packet.block, packet.workers) == (Kind.RESULT, block, 15)
                assert packet.values == (10).to_bytes(4, "big") * next_of.values
    with lab.client(daemon) as client:
        client.remove_job("b")
        settle(client)
    assert everything(lab) == empty


def received(host: Host) -> Packet:
    """Return the next packet of an aggregation that a host gets."""
    arrived = read(host.receive())
    assert arrived is not None
    return arrived.packet


def send(of: Membership, hosts: Sequence[Host], rank: int, blocks: Iterable[int]) -> None:
    """Send a worker's contributions to blocks: its rank plus 1, 32 times."""
    worker = of.workers[rank]
    frames = Frames(Endpoint(str(worker.ip), worker.mac, worker.port), of.job, of.flow)
    values = (rank + 1).to_bytes(4, "big") * of.values
    for block in blocks:
        packet = Packet(Kind.CONTRIBUTION, of.tree, of.session, block, 1 << rank, values=values)
        hosts[rank].send(frames.encode(of.fallback_endpoint, packet))


def test_a_switch_without_the_program_keeps_the_job_out(lab: Lab) -> None:
    daemon = lab.daemon()
    with lab.client(daemon) as client:
        client.register_job(document("a", HOSTS))
        client.register_job(document("b", HOSTS, "ring"))
        job = client.job("a", wait_s=PATIENCE_S)
        assert job.state == "unplanned"
        assert mentions(job.problem or "", "'program: aggregation'")
        assert client.job("b", wait_s=PATIENCE_S).state == "installed"
