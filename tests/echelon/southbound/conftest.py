"""A softswitch with its P4Runtime and gNMI server, and intents of a fabric in which every kind of
entry occurs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import pytest
from finsy.proto import U128, p4r

from echelon.model.fabric.model import Fabric
from echelon.model.p4program import program
from echelon.planning.plan import LEVELS, FlowPlan, Plan, QueuePlan
from echelon.planning.rankings.deadline import Deadline
from echelon.planning.rankings.fixed import Fixed
from echelon.switches.lowering.identity import Identity, SegmentIdentity, ShimIdentity
from echelon.switches.lowering.intent import ActionCall, Intent, Part, TableEntry
from echelon.switches.lowering.lower import lower
from echelon.switches.southbound.session import SwitchSession
from echelon.switches.targets.softswitch.capabilities import softswitch
from echelon.switches.targets.softswitch.queues import GnmiQueues
from softswitch.gnmi.service import GnmiService
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.server import Server
from tests.echelon.lowering.test_lower import diamond
from tests.softswitch.tm.native import SchedulerInC

PRIMARY = 10
"""The election id that sessions take."""


class Rig:
    """One switch: what sessions connect to, over sockets or in this process, and what stands behind
    it.
    """

    def __init__(self, connect: str = "over sockets") -> None:
        self.now_ns = 0
        self.ports = {port: SchedulerInC(10_000_000) for port in (1, 2, 3)}
        self.device = Device(None, 1, ports=self.ports, now_ns=lambda: self.now_ns)
        self.server = Server(self.device)
        self.connect = (
            (lambda *_: self.server.local_channel()) if connect == "in this process" else None
        )

    def session(self, name: str = "s1", device_id: int = 1) -> SwitchSession:
        queues = GnmiQueues(name)
        return SwitchSession(
            name, self.server.address, device_id, program(), queues=queues, connect=self.connect
        )

    def kinds(self) -> list[str]:
        """Return the kind of every message since the last call."""
        with self.device.lock:
            kinds = [record.kind for record in self.device.rpc_log]
            self.device.rpc_log.clear()
        return kinds

    def held(self) -> list[p4r.TableEntry]:
        """Return every entry, read past all clients; without counters, and without the program's
        own entries.
        """
        request = p4r.ReadRequest(device_id=1, entities=[p4r.Entity(table_entry=p4r.TableEntry())])
        entries = [
            entity.table_entry
            for response in self.device.read(request)
            for entity in response.entities
        ]
        out = []
        for entry in entries:
            if not entry.is_default_action and not entry.is_const:
                entry.ClearField("counter_data")
                out.append(entry)
        return out

    def meddle(self, kind: int, *entries: p4r.TableEntry) -> None:
        """Write behind the controller's back."""
        updates = [p4r.Update(type=kind, entity=p4r.Entity(table_entry=entry)) for entry in entries]  # type: ignore[arg-type]
        self.device.write_all(
            p4r.WriteRequest(device_id=1, election_id=U128.encode(PRIMARY), updates=updates)
        )


@pytest.fixture
def gnmi_speaks(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Return an event, set at first, that gNMI's calls to later servers wait for.

    P4Runtime does not.
    """
    speaks = threading.Event()
    speaks.set()

    def waiting(call: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*arguments: Any) -> Any:
            speaks.wait()
            return call(*arguments)

        return answer

    monkeypatch.setattr(GnmiService, "get", waiting(GnmiService.get))
    monkeypatch.setattr(GnmiService, "set", waiting(GnmiService.set))
    monkeypatch.setattr(GnmiService, "subscribe", waiting(GnmiService.subscribe))
    yield speaks
    speaks.set()


@pytest.fixture(params=["over sockets", "in this process"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    rig = Rig(request.param)
    with rig.server:
        yield rig


@pytest.fixture
def diamond_fabric() -> Fabric:
    return diamond()


DEADLINES = tuple(Fraction(n, 10) for n in range(1, 8))
STRICT = tuple(QueuePlan(level=level) for level in range(LEVELS))


def _segment(protocol: str, start: int, end: int) -> SegmentIdentity:
    return SegmentIdentity(
        "10.0.0.1", "10.0.0.2", protocol, 4000, 5000, start, end, 3000, Fraction(1, 100)
    )


def intent_of(
    offset_s: Fraction = Fraction(1),
    thresholds_s: Sequence[Fraction] = DEADLINES,
    schedule: tuple[QueuePlan, ...] = STRICT,
    fixed_queue: int = 3,
    without: Sequence[str] = (),
) -> Intent:
    """Return the intent for s1 of the diamond, for flows of every ranking, known by shim and by TCP
    and UDP segments.
    """
    late = Deadline("e", offset_s, tuple(thresholds_s))
    rankings = {
        "by_deadline": late,
        "by_queue": Fixed(fixed_queue),
        "tcp_1": late,
        "tcp_2": Fixed(2),
        "udp": late,
    }
    identities: dict[tuple[str, str], Identity] = {
        ("a", "by_deadline"): ShimIdentity(1, 0),
        ("a", "by_queue"): ShimIdentity(1, 1),
        ("a", "tcp_1"): _segment("tcp", 0, 1000),
        ("a", "tcp_2"): _segment("tcp", 1000, 3000),
        ("a", "udp"): _segment("udp", 0, 3000),
    }
    path = ("h1", "s1", "s3", "s4", "h2")
    flows = tuple(
        FlowPlan("a", name, ranking, path)
        for name, ranking in rankings.items()
        if name not in without
    )
    plan = Plan("test", flows, STRICT, {("s1", "s3"): schedule})
    return lower(plan, diamond(), identities, softswitch())["s1"]


def flow_entry(number: int, queue: int = 1) -> TableEntry:
    call = ActionCall("fixed", (("port", 1), ("dst_mac", 2), ("queue", queue)))
    return TableEntry("flow", (("flow", number),), (call,))


def bare(*entries: TableEntry) -> Intent:
    """Return an intent of one part, without queues and digests."""
    return Intent("s1", (Part("test", entries),))


class Unaware(SwitchSession):
    """A session that never hears of its successor."""

    def _handle(self, message: p4r.StreamMessageResponse) -> None:
        pass


@pytest.fixture(scope="session")
def make_intent() -> Callable[..., Intent]:
    return intent_of
