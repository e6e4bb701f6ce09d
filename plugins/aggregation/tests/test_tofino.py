"""The program for Tofino, executed from its assembly, does with every packet what the model of the
page does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from fractions import Fraction
from functools import partial

import pytest
from finsy.proto import p4r
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.builders import one_tor
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.p4program import program
from echelon.switches.lowering.capabilities import Capabilities
from echelon.switches.lowering.intent import Intent, Part
from echelon.switches.lowering.parts import fabric_part
from echelon.switches.targets import TARGETS
from echelon_aggregation.frames import Endpoint, Frames, read
from echelon_aggregation.installed import TreeAtSwitch, TreeRun, WorkerPort
from echelon_aggregation.memory import TAKES, Grant
from echelon_aggregation.wire import PORT, Kind, Packet
from plugins.aggregation.tests.program_switch import Programs
from plugins.aggregation.tests.sequences import run_many
from plugins.aggregation.tests.tofino_switch import BUILD, VALUES, InAssembly, tofino_programs
from tests.drawing import examples

WORKERS, WORKER_PORT = 3, 5000
SUMS = b"".join((111 * (at + 1)).to_bytes(4, "big") for at in range(VALUES))
EXPECTED = Packet(Kind.RESULT, 1, 1, 5, 7, 9, 2, values=SUMS)


@pytest.fixture(scope="module")
def tofinos() -> Iterator[Programs]:
    with tofino_programs() as found:
        yield found


@settings(max_examples=examples(48), deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_the_assembly_does_as_the_page_says(tofinos: Programs, seed: int) -> None:
    tofinos.run(seed)


@pytest.mark.long
def test_the_assembly_runs_many_sequences() -> None:
    run_many(range(1000), "tofino")


@pytest.mark.parametrize("pass_", [1, 2])
@pytest.mark.parametrize("worker", range(WORKERS))
def test_a_sum_that_lacks_what_the_loop_lost_does_not_leave(worker: int, pass_: int) -> None:
    fabric, at_switch = _tree()
    switch = InAssembly()
    switch.write(
        p4r.Update.INSERT,
        [
            *fabric_part("tor", fabric, 0, _capabilities()).entries,
            *at_switch.entries(hands_over=False),
        ],
    )
    switch.write(p4r.Update.INSERT, [at_switch.group])

    def contribute(rank: int, lost: int | None = None) -> list[Packet]:
        host = list(fabric.hosts.values())[rank]
        frame = _frame(fabric, rank)
        switch.lose = lost
        left = [
            frame for _, frame in switch.process([(fabric.port_to["tor", host.name], frame)])[0]
        ]
        return [arrived.packet for frame in left if (arrived := read(frame)) is not None]

    left = [contribute(rank, pass_ if rank == worker else None) for rank in range(WORKERS)]
    assert left == [[]] * WORKERS
    left = [contribute(rank) for rank in range(WORKERS)]
    if worker < WORKERS - 1:
        # The last one has freed the place.
        assert left == [[], [], [EXPECTED] * WORKERS]
    else:
        # The first one finds the sum complete, but not whole, and frees the place.
        assert left == [[]] * WORKERS
        assert contribute(0) == [EXPECTED] * WORKERS


def test_a_session_installs_a_tree_and_workers_get_its_sum() -> None:
    target = TARGETS["tofino"]
    options = target.options()
    fabric, at_switch = _tree()
    hosts = list(fabric.hosts.values())
    parts = (
        fabric_part("tor", fabric, 0, target.capabilities(options)),
        Part("aggregation", at_switch.entries(hands_over=False)),
    )
    intent = Intent("tor", parts, groups=(at_switch.group,))
    testbed_of = target.virtual_fabric()
    assert testbed_of is not None
    with testbed_of(fabric, Fraction(0), 1 << 20) as testbed:
        session = target.session_factory(options)(
            "tor", testbed.addresses["tor"], 1, program("tna", BUILD), queues=None
        )

        async def write() -> None:
            async with session:
                (await session.reconcile(intent)).require()
                assert not await session.compare(intent)

        asyncio.run(write())
        found: dict[int, Packet] = {}

        def deliver(rank: int, _now_ns: int, frame: bytes) -> None:
            arrived = read(frame)
            assert arrived is not None
            assert (arrived.ip, arrived.port) == (hosts[rank].ipv4, WORKER_PORT)
            found[rank] = arrived.packet

        for rank, host in enumerate(hosts):
            testbed.receive_with(host.name, partial(deliver, rank))
        for rank, host in enumerate(hosts):
            testbed.nics[host.name].send(_frame(fabric, rank))
        testbed.run(lambda: len(found) == WORKERS)
    assert found == dict.fromkeys(range(WORKERS), EXPECTED)


def _tree() -> tuple[Fabric, TreeAtSwitch]:
    """Return a fabric of one switch, and the tree of all its hosts."""
    fabric = build_fabric(one_tor(WORKERS, 10**10, Fraction(1, 10**6)))
    workers = [WorkerPort(host, WORKER_PORT) for host in fabric.hosts]
    places = {"tor": Grant(0, 7, 0, TAKES["share"])}
    return fabric, TreeAtSwitch(
        TreeRun(1, 1, workers, workers[0].host, {}, "tor", places), "tor", fabric
    )


def _capabilities() -> Capabilities:
    target = TARGETS["tofino"]
    return target.capabilities(target.options())


def _frame(fabric: Fabric, rank: int) -> bytes:
    """Return a worker's contribution to block 5."""
    hosts = list(fabric.hosts.values())
    values = b"".join((10**rank * (at + 1)).to_bytes(4, "big") for at in range(VALUES))
    sent = Packet(Kind.CONTRIBUTION, 1, 1, 5, 1 << rank, 9, rank, values=values)
    own, server = hosts[rank], Endpoint(hosts[0].ipv4, hosts[0].mac, PORT)
    return Frames(Endpoint(own.ipv4, own.mac, WORKER_PORT)).encode(server, sent)
