"""Connections with real servers, in this process and in others, that fail, return, and are meddled
with.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import re
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

import pytest
from finsy.proto import U128, p4r

from echelon.model.p4program import program
from echelon.planning.plan import LEVELS, QueuePlan
from echelon.switches.lowering.intent import FIRST_GROUP, Intent, MulticastGroup, QueueSetting
from echelon.switches.processes import free_port
from echelon.switches.southbound.connection import Endpoint, SwitchConnection
from echelon.switches.southbound.election import election_id
from echelon.switches.southbound.errors import SouthboundError
from echelon.switches.southbound.events import (
    Acknowledged,
    DriftRepaired,
    HigherPrimary,
    IntentRefused,
    PortsChanged,
    PortsUnwatched,
    SwitchChanged,
    SwitchConnected,
    SwitchEvent,
)
from echelon.switches.southbound.lifecycle import Timing
from echelon.switches.southbound.queues import QueueDriver
from echelon.switches.southbound.session import DigestReport, SessionFactory, SwitchSession
from echelon.switches.targets.softswitch.queues import GnmiQueues
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.server import Server
from softswitch.tm import QueueConfig
from tests.echelon.southbound.bmv2_process import Bmv2
from tests.echelon.southbound.conftest import Unaware, bare, flow_entry
from tests.echelon.southbound.refusing import Refusals, RefusingSwitch
from tests.echelon.southbound.switch_process import (
    SwitchProcess,
    read_entries,
    serialized,
    switch_process,
)
from tests.faults import coded
from tests.needs import needs
from tests.softswitch.tm.native import SchedulerInC

MakeIntent = Callable[..., Intent]
Wanted = Callable[[Intent], Awaitable[list[bytes]]]
E = TypeVar("E")

TERM = 1000


def bid(term: int) -> p4r.Uint128:
    """Return the election id of the leader of a term."""
    return U128.encode(election_id(term))


OFTEN = Timing(audit_s=0.2, heartbeat_s=0.1)
SHARED = (QueuePlan(level=1, weight=2),) * LEVELS
"""Queues that are not those of a switch without a plan."""
SELDOM = Timing(audit_s=3600, heartbeat_s=0.1)
DIGEST = "flow_event_t"
WATCHING = ("gnmi_capabilities", "gnmi_subscribe")
"""The calls that a connection makes again in each session, to hear of ports."""
PATIENCE_S = 15


class Station:
    """One switch at one address, with as many servers one after the other as a test wants."""

    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.erase()
        self._server: Server | None = None

    def erase(self) -> None:
        """Erase the switch, as a restart does."""
        self.ports = {port: SchedulerInC(10_000_000) for port in (1, 2, 3)}
        self.device = Device(None, 1, ports=self.ports)

    def start(self) -> None:
        self._server = Server(self.device, self.address)
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def kinds(self) -> Counter[str]:
        """Return the kinds of the controllers' messages since the last call."""
        with self.device.lock:
            kinds = Counter(record.kind for record in self.device.rpc_log)
            self.device.rpc_log.clear()
        return kinds

    def held(self) -> list[bytes]:
        """Return the entries, read past all clients."""
        return serialized(iter(self._read()))

    def state(self) -> object:
        queues = {
            port: [scheduler.config(queue) for queue in range(8)]
            for port, scheduler in self.ports.items()
        }
        return self.held(), queues, self.digest_config()

    def _read(self) -> list[p4r.TableEntry]:
        request = p4r.ReadRequest(device_id=1, entities=[p4r.Entity(table_entry=p4r.TableEntry())])
        return [
            entity.table_entry
            for response in self.device.read(request)
            for entity in response.entities
        ]

    def entry(self, action_id: int) -> p4r.TableEntry:
        """Return an entry with this action."""
        found = next(entry for entry in self._read() if entry.action.action.action_id == action_id)
        found.ClearField("counter_data")
        return found

    def digest_config(self) -> bytes:
        request = p4r.ReadRequest(
            device_id=1, entities=[p4r.Entity(digest_entry=p4r.DigestEntry())]
        )
        return b"".join(
            reply.SerializeToString(deterministic=True) for reply in self.device.read(request)
        )

    def meddle(self, kind: int, *entities: p4r.Entity, term: int = TERM) -> None:
        """Write behind the controller's back."""
        updates = [p4r.Update(type=kind, entity=entity) for entity in entities]  # type: ignore[arg-type]
        self.device.write_all(p4r.WriteRequest(device_id=1, election_id=bid(term), updates=updates))

    def report(self, flow: int) -> None:
        """Report a flow event, as the data plane makes it."""
        with self.device.lock:
            switch = self.device.switch
            assert switch is not None
            assert switch.on_digest is not None
            switch.on_digest(self.device.now_ns(), DIGEST, 1, (2, flow, 7, 99, 1234))


class Owner:
    """An owner that records what a connection reports."""

    def __init__(self) -> None:
        self.events: list[SwitchEvent] = []
        self._news = asyncio.Event()

    def __call__(self, event: SwitchEvent) -> None:
        self.events.append(event)
        self._news.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def states(self) -> list[str]:
        """The states without repetitions."""
        states = [event.state for event in self.of(SwitchChanged)]
        return [
            state for before, state in zip([None, *states], states, strict=False) if state != before
        ]

    @property
    def installed(self) -> list[int]:
        return [event.version for event in self.of(Acknowledged)]


@asynccontextmanager
async def connected(
    address: str,
    *,
    term: int = TERM,
    timing: Timing = SELDOM,
    device_id: int = 1,
    queues: QueueDriver | None = None,
    session: SessionFactory = SwitchSession,
    **arguments: Any,
) -> AsyncIterator[tuple[SwitchConnection, Owner]]:
    owner = Owner()
    queues = queues or GnmiQueues("s1")
    endpoint = Endpoint(
        "s1", address, device_id, program(), "softswitch", queues=queues, session=session
    )
    rng = random.Random(1)
    connection = SwitchConnection(
        endpoint, term=term, on_event=owner, rng=rng, timing=timing, **arguments
    )
    running = asyncio.create_task(connection.run())
    try:
        yield connection, owner
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.wait([running], timeout=PATIENCE_S)
        assert running.cancelled()


@asynccontextmanager
async def installed(
    station: Station, intent: Intent, **arguments: Any
) -> AsyncIterator[tuple[SwitchConnection, Owner]]:
    """Start a server of the station, and yield a connection that has installed an intent as version
    1.
    """
    station.start()
    async with connected(station.address, **arguments) as (connection, owner):
        connection.set_intent(intent, 1)
        await owner.until(lambda: owner.installed)
        yield connection, owner


@pytest.fixture
def station() -> Any:
    station = Station()
    yield station
    station.stop()


@pytest.fixture(scope="module")
def wanted() -> Wanted:
    """Return a function that returns the entries of a fresh switch to which one session has written
    an intent.
    """

    async def entries(intent: Intent) -> list[bytes]:
        station = Station()
        station.start()
        queues = GnmiQueues("reference")
        try:
            async with SwitchSession(
                "reference", station.address, 1, program(), queues=queues
            ) as session:
                await session.reconcile(intent)
            return station.held()
        finally:
            await asyncio.to_thread(station.stop)

    return entries


# -- coming and going ------------------------------------------------------------------------------


async def test_a_switch_that_is_there_later(
    station: Station, make_intent: MakeIntent, wanted: Wanted
) -> None:
    intent = make_intent()
    entries = await wanted(intent)
    async with connected(station.address) as (connection, owner):
        connection.set_intent(intent, 1)
        await owner.until(lambda: owner.of(SwitchChanged))
        snapshot = connection.snapshot()
        assert snapshot.state == "connecting"
        assert snapshot.problem is not None
        assert snapshot.problem.startswith("switch s1: ")
        assert f" {station.address}: Connection refused" in snapshot.problem
        assert (snapshot.sessions, snapshot.entries, snapshot.wanted_entries) == (
            0,
            0,
            len(intent.entries),
        )
        assert snapshot.installed_version is None
        nobody = coded("switch-failed", f" {station.address}: Connection refused")
        with pytest.raises(SouthboundError, check=nobody):
            await connection.difference(intent)
        before = time.time()
        station.start()
        await owner.until(lambda: owner.installed)
        assert station.held() == entries
        snapshot = connection.snapshot()
        assert (snapshot.state, snapshot.problem) == ("ready", None)
        assert (snapshot.wanted_version, snapshot.installed_version) == (1, 1)
        assert snapshot.entries == snapshot.wanted_entries == len(intent.entries)
        assert snapshot.since >= before
        assert snapshot.last_written_at is not None
        assert snapshot.last_written_at >= before
        assert (snapshot.term, snapshot.device_id, snapshot.target) == (TERM, 1, "softswitch")
    assert owner.states == ["connecting", "writing", "ready"]
    assert owner.installed == [1]
    assert station.kinds()["set_pipeline"] == 1


async def test_a_session_that_breaks_leaves_tables_and_pipeline_alone(
    station: Station, make_intent: MakeIntent
) -> None:
    async with installed(station, make_intent()) as (connection, owner):
        before = station.state()
        assert station.kinds()["set_pipeline"] == 1
        await asyncio.to_thread(station.stop)
        await owner.until(lambda: "away" in owner.states)
        assert connection.snapshot().problem is not None
        station.start()
        await owner.until(
            lambda: (
                owner.states[-2:] == ["writing", "ready"] and len(owner.of(SwitchConnected)) == 2
            )
        )
        kinds = station.kinds()
        assert kinds["read"] > 0
        assert kinds["get_pipeline"] > 0
        assert (kinds["set_pipeline"], kinds["write"], kinds["gnmi_set"]) == (0, 0, 0)
        assert station.state() == before
        assert owner.installed == [1], "nothing new"
        assert connection.snapshot().sessions == 2


async def test_what_is_wanted_meanwhile_is_written_on_return(
    station: Station, make_intent: MakeIntent, wanted: Wanted
) -> None:
    entries = await wanted(make_intent(fixed_queue=5))
    async with installed(station, make_intent()) as (connection, owner):
        await asyncio.to_thread(station.stop)
        await owner.until(lambda: "away" in owner.states)
        for version in range(2, 6):
            connection.set_intent(make_intent(fixed_queue=version), version)
        assert connection.snapshot().wanted_version == 5
        assert connection.snapshot().installed_version == 1
        station.start()
        await owner.until(lambda: owner.installed == [1, 5])
        assert station.held() == entries


# -- silence ---------------------------------------------------------------------------------------


async def test_gnmi_that_hangs_is_a_problem_and_ends_when_it_answers(
    gnmi_speaks: threading.Event, station: Station, make_intent: MakeIntent
) -> None:
    async with installed(station, make_intent(), queues=GnmiQueues("s1", answer_s=0.3)) as (
        connection,
        owner,
    ):
        gnmi_speaks.clear()
        connection.set_intent(make_intent(fixed_queue=5), 2)
        await owner.until(lambda: owner.installed[-1] == 2)
        silent = coded("switch-failed", "switch s1: reading queues: ", " 0.3 s")
        with pytest.raises(SouthboundError, check=silent):
            await connection.difference(make_intent())
        shallow = replace(make_intent(), queues=(QueueSetting(1, 1, 6, 1, 0, None),))
        connection.set_intent(shallow, 3)
        await owner.until(lambda: connection.snapshot().problem)
        assert " 0.3 s" in (connection.snapshot().problem or "")
        with pytest.raises(SouthboundError, check=silent):
            await connection.difference(shallow)
        gnmi_speaks.set()
        await owner.until(lambda: owner.installed[-1] == 3)
        assert connection.snapshot().problem is None


class Endless(GnmiQueues):
    """A driver without deadlines, whose second reading never ends."""

    readings = 0

    async def read(self) -> Mapping[tuple[int, int], QueueSetting]:
        self.readings += 1
        if self.readings == 2:
            await asyncio.get_running_loop().create_future()
        return await super().read()


async def test_a_write_has_a_limit(station: Station, make_intent: MakeIntent) -> None:
    station.start()
    timing = Timing(audit_s=0.05, heartbeat_s=0.1, write_s=0.5, entry_s=0.01)
    async with connected(station.address, queues=Endless("s1"), timing=timing) as (
        connection,
        owner,
    ):
        connection.set_intent(make_intent(), 1)
        await owner.until(lambda: "refused" in owner.states)
        problems = [event.problem for event in owner.of(SwitchChanged) if event.state == "refused"]
        assert re.match(r"switch s1: writing: .* [\d.]+ s\b", problems[0] or "")
        await owner.until(lambda: owner.states[-1] == "ready")


async def test_a_call_does_not_wait_for_ever_for_a_write(
    station: Station, make_intent: MakeIntent
) -> None:
    timing = Timing(audit_s=0.05, heartbeat_s=0.1, turn_s=0.05)
    queues = Endless("s1")
    async with installed(station, make_intent(), queues=queues, timing=timing) as (connection, _):
        while queues.readings < 2:
            await asyncio.sleep(0.01)
        busy = coded("switch-failed", "switch s1: ", " 0.05 s")
        with pytest.raises(SouthboundError, check=busy):
            await connection.difference(make_intent())


class Deaf(SwitchSession):
    """A session whose first acknowledgement of digests fails."""

    failures = 0

    async def acknowledge(self, report: DigestReport) -> None:
        if not Deaf.failures:
            Deaf.failures += 1
            raise SouthboundError("switch s1: acknowledgement of digests: no answer")
        await super().acknowledge(report)


async def test_a_session_that_cannot_acknowledge_digests_is_replaced(
    station: Station, make_intent: MakeIntent
) -> None:
    flows: list[int] = []

    async def take(switch: str, report: DigestReport) -> None:
        flows.extend(fields["flow"] for fields in report.fields)

    intent = make_intent()
    digests = tuple(replace(setting, max_list_size=1) for setting in intent.digests)
    intent = replace(intent, digests=digests)
    async with installed(station, intent, session=Deaf, on_digests=take) as (_, owner):
        station.report(7)
        await owner.until(
            lambda: len(owner.of(SwitchConnected)) == 2 and owner.states[-1] == "ready"
        )
        station.report(8)
        while 8 not in flows:
            await asyncio.sleep(0.01)


async def test_a_switch_process_that_is_killed_and_comes_back_empty(
    make_intent: MakeIntent, wanted: Wanted
) -> None:
    """The test prints how long it takes from the opening of the port to the last entry."""
    # It has no ports, so no queues.
    intent = replace(make_intent(), queues=())
    entries = await wanted(intent)
    port = free_port()
    took_ms = []

    async def opens() -> float:
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return time.monotonic()
            await asyncio.sleep(0.002)

    first = SwitchProcess(port)
    switches = [first]
    try:
        async with connected(first.address) as (connection, owner):
            connection.set_intent(intent, 1)
            await owner.until(lambda: owner.installed)
            for round_ in range(2):
                switches[-1].kill()
                await owner.until(lambda: owner.states[-1] == "away")
                opening = asyncio.create_task(opens())
                switches.append(SwitchProcess(port))
                sessions = 2 + round_
                await owner.until(
                    lambda n=sessions: (
                        len(owner.of(SwitchConnected)) == n and owner.states[-1] == "ready"
                    )
                )
                took_ms.append(1000 * (time.monotonic() - await opening))
                assert switches[-1].held() == entries
            assert owner.installed == [1]
    finally:
        switches[-1].kill()
    print(f"\nat its intent after its port opened: {', '.join(f'{ms:.0f} ms' for ms in took_ms)}")


async def test_a_switch_that_falls_silent_is_missed() -> None:
    """A switch that closes nothing and sends nothing is noticed by its missing sign of life."""
    with switch_process() as switch:
        async with connected(switch.address, timing=replace(SELDOM, answer_s=0.3)) as (
            connection,
            owner,
        ):
            connection.set_intent(bare(flow_entry(1)), 1)
            await owner.until(lambda: owner.installed)
            switch.freeze()
            try:
                await owner.until(lambda: owner.states[-1] == "away")
                assert (connection.snapshot().problem or "").startswith("switch s1: ")
            finally:
                switch.thaw()
            await owner.until(lambda: owner.states[-1] == "ready")


async def test_a_switch_that_is_stuck_holds_up_no_other(station: Station) -> None:
    station.start()
    with switch_process() as stuck:
        stuck.freeze()
        try:
            async with (
                connected(stuck.address) as (a, of_a),
                connected(station.address) as (b, of_b),
            ):
                for connection in (a, b):
                    connection.set_intent(bare(flow_entry(1)), 1)
                await of_b.until(lambda: of_b.installed)
                assert a.snapshot().state == "connecting"
                assert of_a.events == []
        finally:
            stuck.thaw()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:{port}", "Connection refused"),
        ("localhost:{port}", "Connection refused"),
        ("[::1]:{port}", "(Connection refused|Cannot assign requested address|not supported)"),
        ("no-such-switch.invalid:9559", "[Nn]ame"),
    ],
)
async def test_why_nobody_is_there(address: str, reason: str) -> None:
    address = address.format(port=free_port())
    async with connected(address) as (_, owner):
        await owner.until(lambda: owner.events)
        event = owner.events[0]
        assert isinstance(event, SwitchChanged)
        assert event.state == "connecting"
        pattern = rf"switch s1: .* {re.escape(address)}: .*{reason}"
        assert re.match(pattern, event.problem or "")
        assert "\n" not in (event.problem or "")


async def test_a_switch_known_by_name(station: Station) -> None:
    station.start()
    # gRPC takes it in its own notation, too.
    for term, prefix in enumerate(("localhost:", "dns:///localhost:"), TERM):
        async with connected(prefix + station.address.rpartition(":")[2], term=term) as (
            connection,
            owner,
        ):
            connection.set_intent(bare(flow_entry(1)), 1)
            await owner.until(lambda: owner.installed)


# -- changes of intent -----------------------------------------------------------------------------


async def test_intents_that_come_faster_than_they_can_be_written(station: Station) -> None:
    station.start()

    def intent(version: int) -> Intent:
        return bare(
            *(flow_entry(number, queue=version % 8) for number in range(version, version + 50))
        )

    async with connected(station.address) as (connection, owner):
        connection.set_intent(intent(1), 1)
        await owner.until(lambda: owner.installed == [1])
        # While the switch's lock is held it answers no Write.
        with station.device.lock:
            connection.set_intent(intent(2), 2)
            for version in (3, 7, 5, 9, 8):
                connection.set_intent(intent(version), version)
                await asyncio.sleep(0)
            assert connection.snapshot().state == "writing"
            assert connection.snapshot().wanted_version == 9
        await owner.until(lambda: owner.states[-1] == "ready")
        assert owner.installed == [1, 2, 9]
        for version in range(10, 40):
            connection.set_intent(intent(version), version)
            await asyncio.sleep(random.Random(version).choice([0, 0, 0.001, 0.01]))
        await owner.until(lambda: owner.installed[-1] == 39)
        assert owner.installed == sorted(set(owner.installed))
        assert len(station.held()) == 50
        # Whatever was written on the way, a reading finds nothing to do.
        station.kinds()
        before = station.held()
        await asyncio.to_thread(station.stop)
        await owner.until(lambda: owner.states[-1] == "away")
        station.start()
        await owner.until(lambda: owner.states[-1] == "ready")
        assert station.kinds()["write"] == 0
        assert station.held() == before


async def test_an_older_version_changes_nothing(station: Station) -> None:
    station.start()
    async with connected(station.address) as (connection, owner):
        connection.set_intent(bare(flow_entry(5)), 5)
        await owner.until(lambda: owner.installed)
        told = len(owner.events)
        for version in (4, 5):
            connection.set_intent(bare(), version)
        assert len(owner.events) == told
        assert connection.snapshot().state == "ready"
        connection.set_intent(bare(flow_entry(5), flow_entry(6)), 6)
        await owner.until(lambda: owner.installed == [5, 6])
        assert len(station.held()) == 2


async def test_an_intent_that_stays_the_same_is_acknowledged_at_once(station: Station) -> None:
    station.start()
    async with connected(station.address) as (connection, owner):
        intent = bare(flow_entry(5))
        connection.set_intent(intent, 1)
        await owner.until(lambda: owner.installed)
        told = len(owner.events)
        connection.set_intent(intent, 2)
        assert owner.events[told:] == [Acknowledged("s1", 2)]
        assert connection.snapshot().installed_version == 2


async def test_what_a_callback_asks_for_is_done(station: Station) -> None:
    """An owner may set the next intent from within an event; what it raises is logged and harms
    nothing.
    """
    station.start()
    told: list[SwitchEvent] = []
    done = asyncio.Event()

    def on_event(event: SwitchEvent) -> None:
        told.append(event)
        if isinstance(event, Acknowledged):
            if event.version < 5:
                connection.set_intent(bare(flow_entry(event.version)), event.version + 1)
            else:
                done.set()
            raise RuntimeError("the owner's own fault")

    endpoint = Endpoint("s1", station.address, 1, program(), "softswitch", queues=GnmiQueues("s1"))
    connection = SwitchConnection(
        endpoint, term=TERM, on_event=on_event, rng=random.Random(1), timing=SELDOM
    )
    connection.set_intent(bare(), 1)

    logging.disable()
    running = asyncio.create_task(connection.run())
    try:
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        running.cancel()
        await asyncio.wait([running])
    finally:
        logging.disable(logging.NOTSET)
    assert [event.version for event in told if isinstance(event, Acknowledged)] == [1, 2, 3, 4, 5]


# -- audits ----------------------------------------------------------------------------------------


def table_entity(entry: p4r.TableEntry) -> p4r.Entity:
    return p4r.Entity(table_entry=entry)


async def test_an_audit_finds_and_mends_what_was_changed_behind_our_back(
    station: Station, make_intent: MakeIntent
) -> None:
    async with installed(station, make_intent(), timing=OFTEN) as (connection, owner):
        before = station.state()
        # By `fixed`.
        rank = station.entry(0x01000111)
        changed, extra = p4r.TableEntry(), p4r.TableEntry()
        changed.CopyFrom(rank)
        changed.action.action.params[1].value = b"\x06"
        extra.CopyFrom(rank)
        extra.match[0].exact.value = b"\x63"
        other_digests = p4r.ReadResponse.FromString(station.digest_config()).entities[0]
        other_digests.digest_entry.config.max_list_size += 1
        changes: list[tuple[str, Callable[[], object]]] = [
            ("missing in flow", lambda: station.meddle(p4r.Update.DELETE, table_entity(rank))),
            ("changed in flow", lambda: station.meddle(p4r.Update.MODIFY, table_entity(changed))),
            ("added to flow", lambda: station.meddle(p4r.Update.INSERT, table_entity(extra))),
            ("queues", lambda: station.ports[2].configure(4, QueueConfig(level=0, weight=77), 0)),
            ("digests", lambda: station.meddle(p4r.Update.MODIFY, other_digests)),
        ]
        for number, (name, change) in enumerate(changes, 1):
            with station.device.lock:
                change()
                assert station.state() != before, name
            began = time.monotonic()
            await owner.until(lambda n=number: len(owner.of(DriftRepaired)) == n)
            print(
                f"{name}: repaired after {1000 * (time.monotonic() - began):.0f} ms (period"
                f" {OFTEN.audit_s} s)"
            )
            assert station.state() == before, name
            assert owner.of(DriftRepaired)[-1] == DriftRepaired("s1", {name: 1})
            assert connection.snapshot().drift_found == number
            assert connection.snapshot().state == "ready"
        assert owner.installed == [1]
        assert owner.states == ["writing", "ready"]


async def test_a_pipeline_that_somebody_replaces_is_pushed_again_and_told(
    station: Station, make_intent: MakeIntent
) -> None:
    intent = make_intent()
    async with installed(station, intent, timing=OFTEN) as (connection, owner):
        before = station.state()
        config = p4r.ForwardingPipelineConfig()
        config.CopyFrom(station.device._committed.config)  # type: ignore[union-attr]  # noqa: SLF001
        config.cookie.cookie += 1
        station.device.install(config)
        await owner.until(lambda: owner.of(DriftRepaired))
        (repaired,) = owner.of(DriftRepaired)
        assert repaired.differences["programs replaced"] == 1
        assert repaired.differences["digests"] == 1
        missing = [n for kind, n in repaired.differences.items() if kind.startswith("missing in")]
        assert sum(missing) == intent.size
        assert station.state() == before
        assert connection.snapshot().state == "ready"
        assert owner.states == ["writing", "ready"], "in the same session"
        assert owner.installed == [1]


async def test_an_audit_leaves_what_is_not_ours(station: Station) -> None:
    async with installed(station, bare(flow_entry(1)), timing=OFTEN) as (connection, owner):
        foreign = station.entry(0x01000111)
        foreign.metadata = b"somebody else"
        foreign.match[0].exact.value = b"\x63"
        station.meddle(p4r.Update.INSERT, table_entity(foreign))
        station.kinds()
        async with asyncio.timeout(PATIENCE_S):
            while connection.snapshot().foreign_entries != 1:
                await asyncio.sleep(OFTEN.audit_s / 4)
        assert station.kinds()["write"] == 0
        assert len(station.held()) == 2
        connection.set_intent(bare(flow_entry(2)), 2)
        await owner.until(lambda: owner.installed == [1, 2])
        assert foreign.SerializeToString(deterministic=True) in station.held()
        assert owner.of(DriftRepaired) == []
        assert connection.snapshot().entries == 1


# -- refusals --------------------------------------------------------------------------------------


async def test_what_is_refused_is_told_and_the_rest_written(station: Station) -> None:
    async with installed(station, bare(flow_entry(7)), timing=OFTEN) as (connection, owner):
        foreign = station.entry(0x01000111)
        foreign.metadata = b"somebody else"
        connection.set_intent(bare(), 2)
        await owner.until(lambda: owner.installed == [1, 2])
        station.meddle(p4r.Update.INSERT, table_entity(foreign))
        connection.set_intent(bare(*(flow_entry(number) for number in range(20))), 3)
        await owner.until(lambda: owner.of(IntentRefused))
        (refused,) = owner.of(IntentRefused)
        assert refused.version == 3
        assert len(refused.parts) == 1
        for word in ("switch s1", "table flow", "flow=7"):
            assert word in refused.problem
        snapshot = connection.snapshot()
        assert (snapshot.state, snapshot.problem) == ("refused", refused.problem)
        assert snapshot.installed_version == 2
        assert len(station.held()) == 20
        audited = snapshot.last_audit_at
        async with asyncio.timeout(PATIENCE_S):
            while connection.snapshot().last_audit_at == audited:
                await asyncio.sleep(OFTEN.audit_s / 4)
        assert owner.of(IntentRefused) == [refused], "told once"
        assert owner.of(DriftRepaired) == []
        assert foreign.SerializeToString(deterministic=True) in station.held()
        # Whoever it was has gone: the next audit completes the intent.
        station.meddle(p4r.Update.DELETE, table_entity(foreign))
        await owner.until(lambda: owner.installed == [1, 2, 3])
        assert connection.snapshot().state == "ready"
        assert len(station.held()) == 20
    assert owner.states == ["writing", "ready", "writing", "ready", "writing", "refused", "ready"]


async def test_an_intent_that_fails_as_a_whole_is_tried_again_and_a_better_one_taken(
    station: Station, make_intent: MakeIntent
) -> None:
    station.start()
    good = make_intent()
    refusals = Refusals(everything="closed")
    with RefusingSwitch(station.address, refusals) as proxy:
        async with connected(proxy.address) as (connection, owner):
            await refuse_as_a_whole(connection, owner, good)
            refusals.everything = ""
            connection.set_intent(make_intent(fixed_queue=5), 2)
            await owner.until(lambda: owner.installed[-1:] == [2])
            assert connection.snapshot().state == "ready"


async def refuse_as_a_whole(connection: SwitchConnection, owner: Owner, intent: Intent) -> None:
    connection.set_intent(intent, 1)
    await owner.until(lambda: owner.of(IntentRefused))
    (refused,) = owner.of(IntentRefused)
    assert refused.parts == ()
    assert "switch s1" in refused.problem
    assert "closed" in refused.problem
    # Again, and with another session: it may have been the session's fault.
    await owner.until(lambda: len(owner.of(SwitchConnected)) >= 2)
    assert owner.of(IntentRefused) == [refused]


async def test_queues_of_one_port_are_refused_and_the_rest_is_there(
    station: Station, make_intent: MakeIntent
) -> None:
    station.start()
    intent = make_intent(schedule=SHARED)
    refusals = Refusals(ports=[3])
    with RefusingSwitch(station.address, refusals) as proxy:
        async with connected(proxy.address) as (connection, owner):
            connection.set_intent(intent, 1)
            await owner.until(lambda: owner.of(IntentRefused))
            (refused,) = owner.of(IntentRefused)
            assert [(part.ports, part.takes_links) for part in refused.parts] == [({3}, True)]
            assert refused.is_clear
            assert "switch s1: queues of port 3: " in refused.problem
            assert len(station.held()) == intent.size
            await asyncio.sleep(0.5)
            assert len(owner.of(SwitchConnected)) == 1, "no other session helps"
            assert owner.of(IntentRefused) == [refused]

            # The next reading, two seconds later, finds that it is accepted.
            refusals.ports = ()
            await owner.until(lambda: owner.installed == [1])
            assert connection.snapshot().state == "ready"
            assert owner.of(DriftRepaired) == [], "it had never been there"


async def test_a_multicast_group_is_refused_and_the_rest_is_there(station: Station) -> None:
    station.start()
    group = MulticastGroup(FIRST_GROUP, ((1, 1), (2, 1)))
    intent = replace(bare(flow_entry(1)), groups=(group,))
    refusals = Refusals(groups=True)
    with RefusingSwitch(station.address, refusals) as proxy:
        async with connected(proxy.address) as (connection, owner):
            connection.set_intent(intent, 1)
            await owner.until(lambda: owner.of(IntentRefused))
            (refused,) = owner.of(IntentRefused)
            (part,) = refused.parts
            assert (part.ports, part.takes_links) == ({1, 2}, False)
            assert f"switch s1: multicast group {FIRST_GROUP}: " in refused.problem
            assert len(station.held()) == 1
            refusals.groups = False
            await owner.until(lambda: owner.installed == [1])


async def test_a_refusal_is_tried_again_when_a_port_changes(
    station: Station, make_intent: MakeIntent
) -> None:
    station.start()
    refusals = Refusals(ports=[3])
    timing = replace(SELDOM, refused_retry_s=3600.0)
    with RefusingSwitch(station.address, refusals) as proxy:
        async with connected(proxy.address, timing=timing) as (connection, owner):
            connection.set_intent(make_intent(schedule=SHARED), 1)
            await owner.until(lambda: owner.of(IntentRefused))
            async with asyncio.timeout(PATIENCE_S):
                while "Subscribe" not in refusals.calls:
                    await asyncio.sleep(0.01)
            refusals.ports = ()
            await asyncio.sleep(0.2)
            assert connection.snapshot().state == "refused"
            await asyncio.to_thread(station.device.set_port_up, 2, False)
            await owner.until(lambda: owner.installed == [1])


async def test_a_wrong_device_id(station: Station) -> None:
    station.start()
    owner = Owner()
    endpoint = Endpoint("s1", station.address, 9, program(), "softswitch", queues=GnmiQueues("s1"))
    connection = SwitchConnection(endpoint, term=TERM, on_event=owner, rng=random.Random(1))
    running = asyncio.create_task(connection.run())
    await owner.until(lambda: owner.events)
    assert connection.snapshot().state == "connecting"
    assert " device 9;" in (connection.snapshot().problem or "")
    running.cancel()
    await asyncio.wait([running])


# -- two controllers -------------------------------------------------------------------------------


async def test_the_later_leader_takes_over_and_the_former_stays_out(
    station: Station, wanted: Wanted
) -> None:
    old_intent, new_intent = bare(flow_entry(1)), bare(flow_entry(1, queue=5), flow_entry(2))
    last_intent = bare(flow_entry(3))
    new_entries, last_entries = await wanted(new_intent), await wanted(last_intent)
    async with (
        installed(station, old_intent, term=100) as (old, of_old),
        connected(station.address, term=200) as (new, of_new),
    ):
        new.set_intent(new_intent, 1)
        await of_new.until(lambda: of_new.installed)
        await of_old.until(lambda: of_old.states[-1] == "backup")
        assert of_old.of(HigherPrimary) == [HigherPrimary("s1", election_id(200))]
        assert f"election id {election_id(200)}" in (old.snapshot().problem or "")
        assert station.held() == new_entries
        # The former leader does not know yet that it was deposed, and plans on.
        station.kinds()
        old.set_intent(last_intent, 2)
        deposed = coded("switch-failed", "switch s1: ", f"election id {election_id(200)}")
        with pytest.raises(SouthboundError, check=deposed):
            await old.difference(old_intent)
        await asyncio.to_thread(station.stop)
        await of_new.until(lambda: of_new.states[-1] == "away")
        station.erase()
        station.start()
        await of_new.until(lambda: of_new.states[-1] == "ready")
        assert station.held() == new_entries
        assert new.snapshot().sessions == 2
        assert old.snapshot().sessions == 1
        assert old.snapshot().state == "backup"
        assert station.kinds()["arbitration"] == 1, "the former one does not even bid"
        assert of_old.installed == [1]
        assert of_new.states.count("backup") == 0
        # Should it hold the lease after all, the store gives it a higher term.
        old.set_term(200)
        assert old.snapshot().state == "backup"
        old.set_term(201)
        await of_old.until(lambda: of_old.installed == [1, 2])
        await of_new.until(lambda: of_new.states[-1] == "backup")
        assert station.held() == last_entries


async def test_a_write_of_a_deposed_leader_is_refused_by_the_switch(station: Station) -> None:
    """The write comes between the moment in which another one takes over, and the moment in which
    the deposed leader learns of it: here, never.
    """
    async with installed(station, bare(flow_entry(1)), term=100, session=Unaware) as (old, of_old):
        stream = station.device.open_stream(lambda _message: None, lambda _status: None)
        claim = p4r.MasterArbitrationUpdate(device_id=1, election_id=bid(200))
        await asyncio.to_thread(stream.receive, p4r.StreamMessageRequest(arbitration=claim))
        before = station.held()
        assert old.snapshot().state == "ready"
        old.set_intent(bare(flow_entry(2)), 2)
        await of_old.until(lambda: of_old.states[-1] == "backup")
        assert station.held() == before
        assert of_old.installed == [1]
        assert of_old.of(HigherPrimary) == [HigherPrimary("s1", election_id(200))], (
            "asked again, to be told"
        )


async def test_our_own_lost_stream_is_outranked(station: Station) -> None:
    """The switch has not noticed that a session ended, whose election id is still ours."""
    station.start()
    stream = station.device.open_stream(lambda _message: None, lambda _status: None)
    claim = p4r.MasterArbitrationUpdate(device_id=1, election_id=bid(TERM))
    stream.receive(p4r.StreamMessageRequest(arbitration=claim))

    async with connected(station.address) as (connection, owner):
        connection.set_intent(bare(flow_entry(1)), 1)
        await owner.until(lambda: owner.of(HigherPrimary))
        assert owner.of(HigherPrimary) == [HigherPrimary("s1", election_id(TERM), is_ours=True)]
        connection.set_term(TERM + 1)
        await owner.until(lambda: owner.installed)
        assert connection.snapshot().term == TERM + 1


@pytest.mark.bmv2
@needs("bmv2")
async def test_with_bmv2_takeover_restart_and_no_return_of_the_former_leader() -> None:
    """BMv2 makes a connected backup primary when its primary leaves, whatever the election ids."""
    switch = Bmv2(device_id=5)
    address = switch.address

    def entries() -> int:
        return len(read_entries(address, 5))

    switch.launch()
    try:
        async with connected(address, term=100, device_id=5) as (old, of_old):
            old.set_intent(bare(*(flow_entry(number) for number in range(10))), 1)
            await of_old.until(lambda: of_old.installed)
            assert entries() == 10
            async with connected(address, term=200, device_id=5) as (new, of_new):
                new.set_intent(bare(*(flow_entry(number) for number in range(5, 20))), 1)
                await of_new.until(lambda: of_new.installed)
                await of_old.until(lambda: of_old.states[-1] == "backup")
                assert entries() == 15
                old.set_intent(bare(), 2)
                switch.kill()
                await of_new.until(lambda: of_new.states[-1] == "away")
                switch.launch()
                await of_new.until(lambda: of_new.states[-1] == "ready")
                assert entries() == 15
            # The new leader is gone as well; the old one does not take that for an invitation.
            assert old.snapshot().state == "backup"
            assert old.snapshot().sessions == 1
            assert entries() == 15
            old.set_term(201)
            await of_old.until(lambda: of_old.installed == [1, 2])
            assert entries() == 0
    finally:
        switch.kill()


# -- beside writing --------------------------------------------------------------------------------


async def test_digests_are_delivered_and_acknowledged(
    station: Station, make_intent: MakeIntent
) -> None:
    station.start()
    intent = make_intent()
    received: list[tuple[str, list[int]]] = []
    news = asyncio.Event()
    fail = [False]

    async def take(switch: str, report: DigestReport) -> None:
        received.append((switch, [fields["flow"] for fields in report.fields]))
        news.set()
        if fail[0]:
            raise RuntimeError("the owner's own fault")

    async def delivered(count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(received) < count:
                news.clear()
                await news.wait()

    async with connected(station.address, on_digests=take) as (connection, owner):
        digests = tuple(
            replace(setting, max_list_size=1, ack_timeout_ns=10**12) for setting in intent.digests
        )
        connection.set_intent(replace(intent, digests=digests), 1)
        await owner.until(lambda: owner.installed)
        station.report(flow=3)
        await delivered(1)
        connection.set_intent(replace(intent, digests=digests, parts=intent.parts[:-1]), 2)
        await owner.until(lambda: owner.installed == [1, 2])
        station.report(flow=4)
        await delivered(2)
        logging.disable()
        fail[0] = True
        station.report(flow=5)
        await delivered(3)
        fail[0] = False
        logging.disable(logging.NOTSET)
        assert await asyncio.to_thread(station.device.wait_acknowledged, PATIENCE_S)
        await asyncio.to_thread(station.stop)
        await owner.until(lambda: owner.states[-1] == "away")
        station.start()
        await owner.until(lambda: owner.states[-1] == "ready")
        station.report(flow=6)
        await delivered(4)
        assert await asyncio.to_thread(station.device.wait_acknowledged, PATIENCE_S)
    assert received == [("s1", [3]), ("s1", [4]), ("s1", [5]), ("s1", [6])]


class _Nonsense(GnmiQueues):
    """The queues of a switch that answers nonsense when it is asked for its ports, as long as it is
    `broken`.
    """

    broken = True

    async def ports_down(self) -> AsyncGenerator[frozenset[int], None]:
        if self.broken:
            int("port one")
        async with aclosing(super().ports_down()) as news:
            async for down in news:
                yield down


async def test_a_switch_that_does_not_tell_of_its_ports_is_told_of_once(station: Station) -> None:
    queues = _Nonsense("s1")
    async with installed(station, bare(flow_entry(1)), timing=OFTEN, queues=queues) as (
        connection,
        owner,
    ):
        await owner.until(lambda: owner.of(PortsUnwatched))
        (told,) = owner.of(PortsUnwatched)
        assert "port one" in told.problem
        assert connection.snapshot().unwatched == told.problem
        audited = connection.snapshot().last_audit_at
        assert connection.snapshot().state == "ready"
        while connection.snapshot().last_audit_at == audited:
            await asyncio.sleep(0.01)
        queues.broken = False
        await asyncio.to_thread(station.device.set_port_up, 2, False)
        await owner.until(lambda: owner.of(PortsChanged))
        assert connection.snapshot().unwatched is None
        assert owner.of(PortsUnwatched) == [told]


async def test_ports_that_go_down_are_told_in_every_session(station: Station) -> None:
    async with installed(station, bare(flow_entry(1))) as (_, owner):
        await asyncio.to_thread(station.device.set_port_up, 2, False)
        await owner.until(lambda: owner.of(PortsChanged))
        await asyncio.to_thread(station.stop)
        await owner.until(lambda: owner.states[-1] == "away")
        await asyncio.to_thread(station.device.set_port_up, 3, False)
        await asyncio.to_thread(station.start)
        await owner.until(lambda: len(owner.of(PortsChanged)) == 2)
        assert [event.down for event in owner.of(PortsChanged)] == [{2}, {2, 3}]


async def test_a_difference_is_read_and_not_written(station: Station) -> None:
    async with installed(station, bare(flow_entry(1), flow_entry(2))) as (connection, owner):
        before = station.state()
        station.kinds()
        comparison = await connection.difference(bare(flow_entry(2, queue=4), flow_entry(3)))
        assert (len(comparison.inserts), len(comparison.modifies), len(comparison.deletes)) == (
            1,
            1,
            1,
        )
        nothing = await connection.difference(bare(flow_entry(1), flow_entry(2)))
        assert (len(nothing.inserts), len(nothing.modifies), len(nothing.deletes)) == (0, 0, 0)
        assert set(station.kinds()) <= {"read", "gnmi_get", "capabilities", *WATCHING}
        assert station.state() == before
        # What was asked has not become what is wanted.
        connection.set_intent(bare(flow_entry(1), flow_entry(2), flow_entry(9)), 2)
        await owner.until(lambda: owner.installed == [1, 2])
        assert len(station.held()) == 3


async def test_bytes_are_counted_and_calls_wait_their_turn(station: Station) -> None:
    entries = [flow_entry(number) for number in range(3)]
    async with installed(station, bare(*entries[:2])) as (connection, owner):
        counted = station.entry(0x01000111)
        counted.counter_data.byte_count, counted.counter_data.packet_count = 12345, 9
        station.meddle(p4r.Update.MODIFY, table_entity(counted))
        flow = int.from_bytes(counted.match[0].exact.value, "big")
        expected = dict.fromkeys(entries, 0) | {entries[flow]: 12345}
        connection.set_intent(bare(*(flow_entry(n) for n in range(500))), 2)
        results = await asyncio.gather(
            *(connection.bytes_seen(entries) for _ in range(5)), return_exceptions=True
        )
        assert results == [expected] * 5
        await owner.until(lambda: owner.installed == [1, 2])


async def test_a_call_ends_with_its_session_and_not_with_its_caller(station: Station) -> None:
    async with installed(station, bare(flow_entry(1))) as (connection, owner):
        with station.device.lock:
            # It hangs at the switch, as does the one behind it.
            calls = [asyncio.create_task(connection.difference(bare())) for _ in range(2)]
            await asyncio.sleep(0.05)
            stopping = asyncio.create_task(asyncio.to_thread(station.stop))
            await owner.until(lambda: owner.states[-1] == "away")
        for result in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(result, SouthboundError)
            assert coded("switch-failed", "switch s1: ")(result)
        await stopping


# -- nothing stays behind --------------------------------------------------------------------------


def alive(kind: type) -> int:
    gc.collect()
    # `isinstance` would look behind weak references, also those whose object is gone.
    return sum(type(thing) is kind for thing in gc.get_objects())


async def test_sessions_of_the_past_leave_nothing_behind(station: Station) -> None:
    station.start()
    sessions = 12
    before = alive(SwitchSession)
    async with connected(station.address) as (connection, owner):
        connection.set_intent(bare(*(flow_entry(number) for number in range(100))), 1)
        for number in range(1, sessions + 1):
            await owner.until(
                lambda n=number: len(owner.of(SwitchConnected)) == n and owner.states[-1] == "ready"
            )
            await asyncio.to_thread(station.stop)
            await owner.until(lambda: owner.states[-1] == "away")
            station.start()
        await owner.until(lambda: owner.states[-1] == "ready")
        async with asyncio.timeout(PATIENCE_S):
            while alive(SwitchSession) > before + 1:
                await asyncio.sleep(0.01)
    assert alive(SwitchSession) <= before + 1


@pytest.mark.parametrize("seed", range(6))
async def test_it_ends_cleanly_at_any_moment(station: Station, seed: int) -> None:
    """`run` checks that no task is left; here, that the switch has no stream of ours either."""
    rng = random.Random(seed)
    station.start()
    for number in range(5):
        async with connected(station.address, term=TERM + number, timing=OFTEN) as (
            connection,
            owner,
        ):
            connection.set_intent(bare(*(flow_entry(n, queue=number) for n in range(300))), 1)
            await asyncio.sleep(rng.choice([0, 0.001, 0.01, 0.02, 0.05, 0.1]))
            if rng.random() < 0.3 and owner.events:
                await asyncio.to_thread(station.stop)
                station.start()
    # Nobody else is primary any more, and nothing of all that is in the way.
    async with connected(station.address, term=2 * TERM) as (connection, owner):
        connection.set_intent(bare(flow_entry(1)), 1)
        await owner.until(lambda: owner.installed)
        assert len(station.held()) == 1


async def test_without_an_intent_a_switch_is_left_as_it_is(
    station: Station, make_intent: MakeIntent
) -> None:
    """A controller that has just started does not know its intent yet."""
    async with installed(station, make_intent(offset_s=Fraction(2))):
        pass
    before = station.state()
    station.kinds()
    async with connected(station.address, term=TERM + 1, timing=OFTEN) as (connection, owner):
        await owner.until(lambda: owner.of(SwitchConnected))
        assert connection.snapshot().state == "writing"
        comparison = await connection.difference(make_intent(offset_s=Fraction(2)))
        assert not comparison.modifies
        assert not comparison.deletes
    assert station.kinds()["write"] == 0
    assert station.state() == before
