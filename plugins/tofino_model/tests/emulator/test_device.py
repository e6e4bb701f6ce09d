"""A Tofino program behind BF Runtime: what clients write is what packets meet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from echelon_tofino_model.bfruntime.device import (
    BfrtProgram,
    Data,
    Entries,
    Key,
    Lpm,
    Range,
    Ternary,
)
from echelon_tofino_model.bfruntime.schema import parse
from echelon_tofino_model.bfruntime.traffic import TrafficManager
from echelon_tofino_model.emulator import TofinoSwitch
from echelon_tofino_model.emulator.device import TofinoDevice
from plugins.tofino_model.tests.emulator.test_router import frame
from softswitch.rpc.status import Code, RefusedError
from tests.faults import naming
from tests.softswitch.tm.native import SchedulerInC

PROGRAMS = Path(__file__).parent / "programs"


def field(
    number: int, name: str, bits: int, match: str = "", kind: str = "bytes"
) -> dict[str, Any]:
    described: dict[str, Any] = {"type": kind, "width": bits} if kind == "bytes" else {"type": kind}
    found = {
        "id": number,
        "name": name,
        "repeated": False,
        "mandatory": False,
        "read_only": False,
        "type": described,
    }
    return {**found, "match_type": match} if match else found


def table(
    number: int,
    name: str,
    size: int,
    key: list[Any],
    actions: Mapping[str, list[Any]],
    data: list[Any],
) -> Any:
    return {
        "name": name,
        "id": number,
        "table_type": "MatchAction_Direct",
        "size": size,
        "key": key,
        "action_specs": [
            {"id": place, "name": action, "action_scope": "TableAndDefault", "data": params}
            for place, (action, params) in enumerate(actions.items(), 1)
        ],
        "data": [{"mandatory": False, "read_only": False, "singleton": item} for item in data],
    }


DESCRIPTION = {
    "tables": [
        table(
            1,
            "pipe.Ingress.route",
            64,
            [field(1, "hdr.ip.dst", 32, "LPM")],
            {
                "Ingress.forward": [field(1, "out", 9), field(2, "mac", 48)],
                "Ingress.spread": [field(1, "to", 16)],
            },
            [
                field(3, "$COUNTER_SPEC_BYTES", 0, kind="uint64"),
                field(4, "$COUNTER_SPEC_PKTS", 0, kind="uint64"),
            ],
        ),
        table(
            2,
            "pipe.Ingress.classes",
            16,
            [
                field(1, "hdr.ip.length", 16, "Range"),
                field(2, "class", 8, "Ternary"),
                field(3, "$MATCH_PRIORITY", 0, "Exact", kind="uint32"),
            ],
            {"Ingress.enqueue": [field(1, "queue", 5)]},
            [],
        ),
    ],
    "learn_filters": [
        {
            "id": 9,
            "name": "pipe.Ingress.unknown",
            "fields": [field(1, "source", 48), field(2, "port", 9)],
        }
    ],
}
GATEWAY = 0x020000000009


class Running:
    """A device with the router, on a switch with ports 1 and 5."""

    def __init__(self) -> None:
        schema = parse(json.dumps(DESCRIPTION).encode(), "bf-rt.json")
        self.program = BfrtProgram("edge", schema, binary=(PROGRAMS / "edge.bfa").read_bytes())
        self.switches: list[TofinoSwitch] = []
        self.traffic = TrafficManager({port: SchedulerInC(None) for port in (1, 5)}, lambda: 0)
        self.device = TofinoDevice(self.traffic, self.switches.append, self.program)

    def entries(self, name: str) -> Entries:
        found = self.device.entries(name, None)
        assert found is not None
        return found

    def ports(self) -> list[int]:
        return [port for port, _ in self.switches[-1].process(1, bytes(frame("10.2.3.4")), 0)]


@pytest.fixture
def running() -> Running:
    return Running()


ROUTE: Key = (Lpm(0x0A000000, 8),)


def test_entries_reach_packets_and_counters_come_back(running: Running) -> None:
    route = running.entries("pipe.Ingress.route")
    assert running.ports() == []
    route.insert(ROUTE, Data("Ingress.forward", {"out": 5, "mac": GATEWAY}))
    assert running.ports() == [5]
    counted = route.get(ROUTE)
    assert counted.action == "Ingress.forward"
    octets = len(frame("10.2.3.4")) + 4
    assert counted.fields == {
        "out": 5,
        "mac": GATEWAY,
        "$COUNTER_SPEC_PKTS": 1,
        "$COUNTER_SPEC_BYTES": octets,
    }
    route.modify(ROUTE, Data("Ingress.forward", {"out": 6, "mac": GATEWAY}))
    assert running.ports() == [6]
    route.modify(ROUTE, Data(None, {"$COUNTER_SPEC_PKTS": 70}))
    assert route.get(ROUTE).fields["$COUNTER_SPEC_PKTS"] == 70
    route.delete(ROUTE)
    assert running.ports() == []
    route.insert(ROUTE, Data("Ingress.forward", {"out": 5, "mac": GATEWAY}))
    route.clear()
    assert (running.ports(), route.usage()) == ([], 0)


def test_the_entries_of_the_program_itself_are_there(running: Running) -> None:
    classes = running.entries("pipe.Ingress.classes")
    assert dict(classes.all()) == {
        (Range(0, 0x40), Ternary(0, 0), 0): Data("Ingress.enqueue", {"queue": 7}),
        (Range(0, 0xFFFF), Ternary(2, 0xFF), 1): Data("Ingress.enqueue", {"queue": 3}),
    }


def test_the_lower_priority_number_wins_and_queues_follow_the_port_map(running: Running) -> None:
    running.entries("pipe.Ingress.route").insert(
        ROUTE, Data("Ingress.forward", {"out": 5, "mac": GATEWAY})
    )
    classes = running.entries("pipe.Ingress.classes")

    def queue() -> int:
        (queued,) = running.switches[-1].ingress(1, bytes(frame("10.2.3.4", length=500)), 0)
        return queued.queue

    classes.insert((Range(0, 0xFFFF), Ternary(0, 0), 20), Data("Ingress.enqueue", {"queue": 4}))
    classes.insert((Range(100, 0xFFFF), Ternary(0, 0), 10), Data("Ingress.enqueue", {"queue": 13}))
    assert queue() == running.traffic.queue_nr(5, 13) == 5
    classes.delete((Range(100, 0xFFFF), Ternary(0, 0), 10))
    assert queue() == 4
    classes.clear()
    classes.set_default(Data("Ingress.enqueue", {"queue": 2}))
    assert queue() == 2
    classes.set_default(None)
    assert queue() == 1


def test_what_the_program_refuses_is_not_kept(running: Running) -> None:
    route = running.entries("pipe.Ingress.route")
    route.insert(ROUTE, Data("Ingress.forward", {"out": 5, "mac": GATEWAY}))
    with pytest.raises(RefusedError) as refused:
        route.insert(ROUTE, Data("Ingress.spread", {"to": 1}))
    assert refused.value.status.code is Code.ALREADY_EXISTS
    with pytest.raises(RefusedError) as refused:
        route.insert((Lpm(0x0B000001, 8),), Data("Ingress.spread", {"to": 1}))
    assert refused.value.status.code is Code.INVALID_ARGUMENT
    assert (route.usage(), running.ports()) == (1, [5])


def test_digests_have_the_names_of_the_description(running: Running) -> None:
    heard: list[tuple[str, Any]] = []
    running.device.on_digest = lambda name, messages: heard.append((name, messages))
    running.entries("pipe.Ingress.route").insert(
        ROUTE, Data("Ingress.forward", {"out": 5, "mac": GATEWAY})
    )
    running.ports()
    assert heard == [("pipe.Ingress.unknown", [{"source": 0x020000000001, "port": 1}])]


def test_a_digest_of_other_fields_is_refused(running: Running) -> None:
    one = {
        **DESCRIPTION,
        "learn_filters": [{"id": 9, "name": "pipe.Ingress.unknown", "fields": [field(1, "a", 48)]}],
    }
    schema = parse(json.dumps(one).encode(), "bf-rt.json")
    with pytest.raises(ValueError, check=naming("edge.bfa", "digest", "'Ingress.unknown'")):
        running.device.load(BfrtProgram("edge", schema, binary=running.program.binary))


def test_a_program_is_replaced_as_a_whole_or_not_at_all(running: Running) -> None:
    running.entries("pipe.Ingress.route").insert(
        ROUTE, Data("Ingress.forward", {"out": 5, "mac": GATEWAY})
    )
    with pytest.raises(ValueError, check=naming("broken.bfa, line 1:")):
        running.device.load(
            BfrtProgram("broken", running.program.schema, binary=b"nonsense ingress:\n  a: 1\n")
        )
    assert running.ports() == [5]
    running.device.load(running.program)
    assert len(running.switches) == 2
    assert running.ports() == []
