"""Reconciliation against BMv2, whose P4Runtime server is another implementation."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc

from echelon.model.p4program import program
from echelon.planning.plan import LEVELS
from echelon.planning.policies import make_policy
from echelon.switches.lowering.identity import number_shims
from echelon.switches.lowering.intent import Intent
from echelon.switches.lowering.lower import lower
from echelon.switches.southbound.codec import OWNER
from echelon.switches.southbound.session import SwitchSession
from echelon.switches.targets.bmv2.htb import bmv2
from echelon_lab.scenarios.scenario import load_scenario
from tests.echelon.southbound import shaped_bmv2
from tests.echelon.southbound.bmv2_process import bmv2_process
from tests.needs import needs, require

SCENARIOS = Path(__file__).parents[3] / "topologies" / "scenarios"

pytestmark = [pytest.mark.bmv2, needs("bmv2")]


@pytest.fixture
def address() -> Iterator[str]:
    """Yield the address of a switch without interfaces and without a program."""
    with bmv2_process() as switch:
        yield switch.address


def leaf(policy: str) -> Intent:
    """Return an intent without queues: this switch has no ports to shape."""
    scenario = load_scenario(SCENARIOS / "shared_link.yaml")
    plan = make_policy(policy).plan(scenario.jobs, scenario.fabric)
    return replace(
        lower(plan, scenario.fabric, number_shims(scenario.jobs), bmv2())["leaf1"], queues=()
    )


@pytest.mark.parametrize("policy", ["fair", "echelon"])
def test_a_second_reconcile_finds_nothing_to_do(address: str, policy: str) -> None:
    intent = leaf(policy)

    async def reconcile_twice() -> tuple[int, int]:
        async with SwitchSession("leaf1", address, 1, program()) as session:
            return len(await session.reconcile(intent)), len(await session.reconcile(intent))

    assert asyncio.run(asyncio.wait_for(reconcile_twice(), 60)) == (len(intent.entries), 0)


async def test_entries_come_back_with_our_mark_and_those_without_it_stay(address: str) -> None:
    intent = leaf("echelon")
    foreign = p4r.TableEntry(table_id=0x02000304)
    foreign.match.add(field_id=1).exact.value = b"\x02\xff"
    foreign.action.action.action_id = 0x01000301
    foreign.action.action.params.add(param_id=1, value=b"\x07")
    async with SwitchSession("leaf1", address, 1, program(), election_id=5) as session:
        await session.reconcile(intent)
        with grpc.insecure_channel(address) as channel:
            stub = p4r_grpc.P4RuntimeStub(channel)
            update = p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=foreign))
            stub.Write(
                p4r.WriteRequest(device_id=1, election_id=p4r.Uint128(low=5), updates=[update])
            )

            def held() -> list[p4r.TableEntry]:
                query = p4r.ReadRequest(
                    device_id=1, entities=[p4r.Entity(table_entry=p4r.TableEntry())]
                )
                read = [
                    entity.table_entry for answer in stub.Read(query) for entity in answer.entities
                ]
                return [
                    entry for entry in read if not entry.is_default_action and not entry.is_const
                ]

            marks = Counter(entry.metadata for entry in held())
            assert marks == {OWNER: len(intent.entries), b"": 1}
            again = await session.reconcile(intent)
            assert (len(again), again.foreign) == (0, 1)
            gone = await session.reconcile(Intent("leaf1", ()))
            assert gone.deletes == len(intent.entries)
            assert [entry.match[0].exact.value for entry in held()] == [b"\x02\xff"]


# -- with shaped ports -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shaped() -> Iterator[Callable[[str], Any]]:
    require("HTB trees")
    with shaped_bmv2.looking() as look:
        yield look


def test_queues_and_entries_are_written_once(shaped: Callable[[str], Any]) -> None:
    seen = shaped("twice")
    first, again, other, other_again, third, third_again = seen["changes"]
    assert first == {"entries": seen["entries"], "queues": seen["queues"], "refused": 0}
    assert seen["queues"] == 3 * LEVELS
    nothing = {"entries": 0, "queues": 0, "refused": 0}
    assert [again, other, other_again, third_again] == [nothing] * 4
    # The third wants other levels; queue 0 alone stays as it is, at every port.
    # Nor do the others keep their minimum rates, which bound how long a flow waits to leave them.
    assert third == {"entries": 3 * (LEVELS - 1), "queues": 3 * (LEVELS - 1), "refused": 0}
    before, same, after = seen["shown"]
    assert before == same != after
    # Port of 10 Mbit/s: level 3 and weight 8 of queue 7 (7 : 8 with queue 6), 7 %, half the port.
    assert before.count("leaf ec17: prio 4 quantum") == before.count("rate 700Kbit ceil 5Mbit") == 3
    assert after.count("leaf ec17: prio 0 quantum") == 3


def test_what_is_late_leaves_before_what_has_time(shaped: Callable[[str], Any]) -> None:
    (head, *others) = [tuple(arrival) for arrival in shaped("order")["arrivals"]]
    assert head == ("late", 0)
    late = [n for name, n in others if name == "late"]
    early = [n for name, n in others if name == "early"]
    assert (late, early) == (list(range(1, 9)), list(range(1, shaped_bmv2.EARLY + 1))), (
        "no flow is reordered"
    )
    # In order of arrival all that has time would be first. A few get away while the others are on
    # their way.
    last = others.index(("late", 8))
    assert sum(name == "early" for name, _ in others[last:]) >= shaped_bmv2.EARLY - 5


def test_a_promoted_flow_keeps_its_order(shaped: Callable[[str], Any]) -> None:
    arrivals = [tuple(arrival) for arrival in shaped("promotion")["arrivals"]]
    assert [number for _, number, _, _ in arrivals] == list(range(15))
    marks = [(queue, drain) for _, _, queue, drain in arrivals]
    # Late, with packets of the flow on their way: it stays, and asks to drain. Then nothing is left
    # behind.
    assert [queue for queue, _ in marks[:10]] == [0] * 10
    assert marks[10:] == [(0, True)] * 3 + [(7, False)] * 2


def test_a_flow_that_pauses_for_the_hold_time_is_promoted(shaped: Callable[[str], Any]) -> None:
    arrivals = shaped("hold")["arrivals"]
    assert [(number, queue) for _, number, queue, _ in arrivals] == [
        *((n, 0) for n in range(5)),
        (5, 7),
    ]


def test_a_virtual_queue_marks_what_would_wait(shaped: Callable[[str], Any]) -> None:
    marked = shaped("marks")["marked"]
    # 1000 bytes each; above 7570 bytes packets are marked, and in so short a time next to nothing
    # drains.
    assert marked == sorted(marked)
    assert not any(marked[:7])
    assert marked[-1]


def test_without_its_thrift_server_all_but_queues_is_written(shaped: Callable[[str], Any]) -> None:
    seen = shaped("depths")
    assert seen["entries"] > 0
    assert seen["queues"] == 0
    assert seen["refused"]
    for part in seen["refused"]:
        assert part.startswith("switch s1: queues")
        assert " Thrift server at 127.0.0.1:" in part


def test_the_daemon_keeps_the_trees(shaped: Callable[[str], Any]) -> None:
    seen = shaped("service")
    assert seen["state"] == "installed"
    # The policy `echelon`: strict levels, in the order of ranks, without minimum rates.
    wanted = {str(queue): f"prio {7 - queue} rate 1Kbit" for queue in range(LEVELS)}
    assert seen["ranked"] == seen["mended"] == wanted
    # The policy `fifo`: all in one level, but for acknowledgements; no minimum rates.
    assert seen["fifo"] == {
        str(queue): f"prio {6 if queue == 7 else 7} rate 1Kbit" for queue in range(LEVELS)
    }
