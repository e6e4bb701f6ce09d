"""A lasting connection with one switch.

It survives restarts of the switch, lost sessions and changes of intent.
`echelon.switches.southbound.lifecycle` decides what to do when, and has the picture of states. This
module does it, in the same order: open, write, listen, close. Everything runs on the event loop
that runs `SwitchConnection.run`. No call of one connection waits for another switch, except that
few are opened and read at a time (`echelon.switches.southbound.places`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import random
import socket
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

from echelon.model.p4program import P4Program
from echelon.switches.lowering.intent import Intent, TableEntry
from echelon.switches.southbound import lifecycle
from echelon.switches.southbound.codec import OWNER
from echelon.switches.southbound.deadlines import deadline, patience
from echelon.switches.southbound.election import election_id, term_of
from echelon.switches.southbound.errors import (
    NotPrimaryError,
    ProgramRefusedError,
    SouthboundError,
)
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
from echelon.switches.southbound.lifecycle import Lifecycle, State, Timing
from echelon.switches.southbound.outcomes import Applied, Comparison, Refused, RefusedSetting
from echelon.switches.southbound.places import SharedPlaces
from echelon.switches.southbound.queues import QueueCount, QueueDriver
from echelon.switches.southbound.session import (
    DigestReport,
    IntentSession,
    SessionFactory,
    SwitchSession,
)
from echelon.switches.southbound.tls import TlsError, TlsFiles, explained

T = TypeVar("T")

_REACH_S = 0.5
"""The timeout for a switch to accept a TCP connection.

A lost SYN is sent again only after a second, which is more than a switch that has just started may
take.
"""

_RESOLVE_S = 5.0
"""The timeout for a switch's name to resolve."""

_OPEN_S = 30.0
"""The timeout of arbitration and, where needed, the pipeline."""

_CLOSE_S = 5.0

_MARKED_S = 5.0
"""The timeout for the entries of a switch when the store is empty."""

_STREAM_FIRST_S = 0.1
"""The time to wait for the stream to fail after a call has failed.

When a switch dies, the stream fails last.
"""

_log = logging.getLogger(__name__)


# -- what is known of a switch, and what is told ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A switch and how to reach it."""

    name: str
    address: str
    """host:port of the service of its tables: P4Runtime, unless `session` says otherwise."""
    device_id: int
    program: P4Program
    target: str
    """The name of the switch's target, for `ConnectionSnapshot` only."""
    tls: TlsFiles | None = None
    """None means plain text."""
    queues: QueueDriver | None = None
    """The driver of the switch's queues; None: an intent that configures queues is refused.

    All sessions have the same one.
    """
    owner: bytes = OWNER
    """The mark of our entries (`echelon.switches.southbound.codec.owner_of`)."""
    session: SessionFactory = SwitchSession
    """The maker of its sessions (`echelon.switches.targets.Target.session_factory`)."""


@dataclass(frozen=True, slots=True)
class ConnectionSnapshot:
    """The state of a switch as known now. Times are seconds since 1970."""

    name: str
    address: str
    target: str
    device_id: int
    state: State
    problem: str | None
    """The problem in one line; None if there is none."""
    since: float
    """Time at which the switch came into `state`."""
    term: int
    """The term of the session, or of the next one: the high word of its election id."""
    entries: int | None
    """Number of our entries on the switch, as far as is known; None: another controller has it."""
    foreign_entries: int
    """Number of others' entries that the last reading found."""
    wanted_entries: int
    """Number of entries of the newest intent."""
    wanted_version: int | None
    """The version of the newest intent; None if there is none yet."""
    installed_version: int | None
    """The version of the last intent that the switch acknowledged as a whole, in any session."""
    sessions: int
    """Number of sessions opened so far."""
    unwatched: str | None
    """The reason why the switch does not tell which ports are down; None: it does, or is not asked.
    """
    drift_found: int
    """Number of entries and settings that audits found different from what was written."""
    last_audit_at: float | None
    """Time at which the whole switch was last read."""
    last_written_at: float | None
    """Time at which a write last changed anything."""


OnEvent: TypeAlias = Callable[[SwitchEvent], None]
OnDigests: TypeAlias = Callable[[str, DigestReport], Awaitable[None]]
"""A function that takes the name of a switch and one of its reports."""


class SwitchConnection:
    """A connection that keeps one switch at the newest intent.

    For each version that is written there is exactly one `Acknowledged` or (first) `IntentRefused`;
    versions that were superseded before their turn are skipped silently. After `HigherPrimary` it
    stays out (state `backup`) until `set_term` gives it a term above that id. Callbacks must not
    block; exceptions that they raise are logged and otherwise ignored.

    Args:
        endpoint: the switch.
        term: of its sessions (`echelon.switches.southbound.election`).
        on_event: called with every event, in order, after `snapshot` shows it.
        rng: source of jitter.
        timing: delays and periods.
        places: those of all connections; None: this one has places of its own.
        on_digests: awaited for each list of digests, in order for each kind of digest; the list is
            acknowledged when it returns. None: the connection does not listen to digests.
        clock: seconds since 1970, for `snapshot`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        term: int,
        on_event: OnEvent,
        rng: random.Random,
        timing: Timing | None = None,
        places: SharedPlaces | None = None,
        on_digests: OnDigests | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._endpoint = endpoint
        self._on_event = on_event
        self._on_digests = on_digests
        self._clock = clock
        timing = timing or Timing()
        self._timing = timing
        self._places = places or SharedPlaces()
        self._lifecycle = Lifecycle(election_id(term), timing, rng)
        self._running = False
        self._waiting: deque[lifecycle.Event] = deque()
        """Events that came while the machine was at work on another one."""
        self._feeding = False
        self._alarm: asyncio.TimerHandle | None = None
        self._since = clock()
        self._reported: tuple[State, str | None] = (self._lifecycle.state, None)
        """The state and the problem that the owner knows."""

        self._session: IntentSession | None = None
        self._session_number = 0
        """Number of the session that is open or being opened.

        Events of an earlier one are dropped.
        """
        self._operation: asyncio.Task[None] | None = None
        """The task that opens, writes or closes."""
        self._followers: set[asyncio.Task[Any]] = set()
        """Tasks that run during operations and end with the session.

        They watch it, ping, follow digests, and make the calls of others.
        """
        self._turn = asyncio.Lock()
        """Held by calls that read or write: a session takes one at a time."""
        self._closed = asyncio.Event()
        self._closed.set()

        self._intents: dict[int, Intent] = {}
        """Intents by version: the newest, and the one being written."""
        self._installed: int | None = None
        self._refused: tuple[IntentRefused, int] | None = None
        """The refusal that was reported last, and its session; None: there was none."""
        self._standing: frozenset[Refused] = frozenset()
        """The parts that the switch refuses."""
        self._followed: set[str] = set()
        """The digests that are followed in this session."""
        self._watches_ports = False
        self._ports_down: frozenset[int] = frozenset()
        self._unwatched: str | None = None
        self._entries = 0
        self._foreign = 0
        self._drift = 0
        self._last_audit_at: float | None = None
        self._last_written_at: float | None = None

    # -- for the owner -----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The switch's name."""
        return self._endpoint.name

    async def run(self) -> None:
        """Connect and keep the switch at its intent until cancelled, then close. Call it once."""
        self._running = True
        try:
            self._feed(lifecycle.Start())
            await asyncio.get_running_loop().create_future()
        finally:
            self._feed(lifecycle.Stop())
            await self._closed.wait()
            if self._alarm is not None:
                self._alarm.cancel()
            self._running = False

    def set_intent(self, intent: Intent, version: int) -> None:
        """Set what the switch should hold from now on, whether it is there or not. Returns at once.

        Versions count upwards; a version that is not above all before it is ignored. An intent that
        is superseded before it could be written is never written.
        """
        if self._lifecycle.wanted is not None and version <= self._lifecycle.wanted:
            return
        same = intent is self._newest()
        self._intents[version] = intent
        self._feed(lifecycle.IntentWanted(version, same))

    def set_term(self, term: int) -> None:
        """Set the term of later sessions, if it is higher.

        A session that is open stays as it is.
        """
        self._feed(lifecycle.TermRaised(election_id(term)))

    def snapshot(self) -> ConnectionSnapshot:
        """Return what is known of the switch now."""
        machine = self._lifecycle
        endpoint = self._endpoint
        newest = self._newest()
        return ConnectionSnapshot(
            name=endpoint.name,
            address=endpoint.address,
            target=endpoint.target,
            device_id=endpoint.device_id,
            state=machine.state,
            problem=machine.problem,
            since=self._since,
            term=term_of(machine.term),
            entries=None if machine.state == "backup" else self._entries,
            foreign_entries=self._foreign,
            wanted_entries=0 if newest is None else newest.size,
            wanted_version=machine.wanted,
            installed_version=self._installed,
            sessions=machine.session_count,
            unwatched=self._unwatched,
            drift_found=self._drift,
            last_audit_at=self._last_audit_at,
            last_written_at=self._last_written_at,
        )

    async def marked(self) -> int:
        """Return how many entries with our mark the switch holds; 0 if it does not say soon.

        Needs no session.
        """
        with suppress(_NobodyThereError, SouthboundError, TlsError, TimeoutError):
            await _reach(self.name, self._endpoint.address)
            async with asyncio.timeout(_MARKED_S):
                return await self._new_session(self._lifecycle.term).marked()
        return 0

    async def difference(self, intent: Intent) -> Comparison:
        """Return what would have to be written now to bring the switch to `intent`.

        Reads; writes nothing. Raise `SouthboundError` if there is no session.
        """
        return await self._call(lambda session: session.compare(intent))

    async def bytes_seen(self, entries: Iterable[TableEntry]) -> Mapping[TableEntry, int]:
        """Return the bytes that matched each entry, by its direct counter.

        They are 0 for an entry that the switch does not hold. Raise `SouthboundError` if there is
        no session.
        """
        return await self._call(lambda session: session.bytes_seen(entries))

    async def queue_counts(self) -> Mapping[tuple[int, int], QueueCount]:
        """Return what has passed each queue, by (port, queue).

        It is empty if the switch's driver does not count. Raise `SouthboundError` if there is no
        session.
        """
        return await self._call(lambda session: session.queue_counts())

    async def _call(self, work: Callable[[IntentSession], Coroutine[Any, Any, T]]) -> T:
        """Return what a call of the session returns, when it is its turn."""
        session = self._session
        if session is None:
            machine = self._lifecycle
            raise SouthboundError(
                machine.problem or f"switch {self.name}: no session yet ({machine.state})"
            )

        async def in_turn() -> T:
            try:
                async with asyncio.timeout(self._timing.turn_s):
                    await self._turn.acquire()
            except TimeoutError:
                text = (
                    f"switch {self.name}: another call to it has taken {self._timing.turn_s:g} s"
                    " (ask again later)"
                )
                raise SouthboundError(text) from None
            try:
                return await work(session)
            finally:
                self._turn.release()

        # A task of its own: the end of the session ends the call, not its caller.
        task = self._task("call", in_turn())
        self._add_follower(task)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
        if task.cancelled():
            raise SouthboundError(
                f"switch {self.name}: the session at {self._endpoint.address} ended meanwhile"
            )
        return task.result()

    # -- the machine -------------------------------------------------------------------------------

    def _feed(self, event: lifecycle.Event, *tell: SwitchEvent) -> None:
        """Feed the machine an event, carry out its instructions, then tell the owner of `tell`.

        Callbacks may call back; what they feed waits until the machine is ready.
        """
        self._waiting.append(event)
        if self._feeding:
            assert not tell, "outcomes come from tasks, which do not run while the machine does"
            return
        self._feeding = True
        try:
            while self._waiting:
                self._step(self._waiting.popleft())
        finally:
            self._feeding = False
        for switch_event in tell:
            self._tell(switch_event)

    def _step(self, event: lifecycle.Event) -> None:
        machine = self._lifecycle
        instructions = machine.handle(event, time.monotonic())
        if isinstance(event, lifecycle.IntentWanted):
            # Until now the one before could still be ordered.
            for version in list(self._intents):
                if version < event.version:
                    del self._intents[version]
            if machine.attempted == event.version:
                self._installed = event.version
                self._tell(Acknowledged(self.name, event.version))
        for instruction in instructions:
            self._carry_out(instruction)
        self._set_alarm(machine.wake_at)

        current = (machine.state, machine.problem)
        if current != self._reported:
            if machine.state != self._reported[0]:
                self._since = self._clock()
            self._reported = current
            self._tell(SwitchChanged(self.name, *current, self._installed))

    def _set_alarm(self, wake_at: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if wake_at is not None and self._running:
            loop = asyncio.get_running_loop()
            delay_s = max(0.0, wake_at - time.monotonic())
            self._alarm = loop.call_later(delay_s, self._feed, lifecycle.Tick())

    def _tell(self, event: SwitchEvent) -> None:
        try:
            self._on_event(event)
        except Exception:
            _log.exception(
                "switch %s: the owner of the connection failed at %s",
                self.name,
                type(event).__name__,
            )

    def _carry_out(self, instruction: lifecycle.Instruction) -> None:
        match instruction:
            case lifecycle.Open(term):
                self._closed.clear()
                self._session_number += 1
                work = self._open(self._session_number, term)
                self._operation = self._task("open", work)
            case lifecycle.Write():
                assert self._session is not None
                intent = self._intents[instruction.version]
                session = self._session
                work = self._write(self._session_number, session, instruction, intent)
                self._operation = self._task("write", work)
            case lifecycle.Ping():
                assert self._session is not None
                work = self._ping(self._session_number, self._session)
                self._follow_session(work)
            case lifecycle.Close():
                self._session_number += 1
                work = self._close(self._operation)
                self._operation = self._task("close", work)
            case lifecycle.ReportPrimary(primary_id):
                self._tell(HigherPrimary(self.name, primary_id, primary_id == self._lifecycle.term))

    def _answer(
        self,
        number: int,
        event: lifecycle.Event,
        *tell: SwitchEvent,
    ) -> None:
        """Handle an event of session `number`, if that is still the current one."""
        if number == self._session_number:
            self._feed(event, *tell)

    def _task(self, action: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return asyncio.create_task(work, name=f"switch {self.name}: {action}")

    def _follow_session(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` until it ends or the session does; its failure is the loss of the session."""
        number = self._session_number
        task = self._task("session", work)
        self._add_follower(task)

        def ended(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is None:
                return
            if isinstance(error, SouthboundError):
                self._answer(number, _loss(error))
            else:
                _log.error("switch %s: following the session failed", self.name, exc_info=error)
                lost = lifecycle.Lost(self._unexpected(error))
                self._answer(number, lost)

        task.add_done_callback(ended)

    def _add_follower(self, task: asyncio.Task[Any]) -> None:
        self._followers.add(task)
        task.add_done_callback(self._followers.discard)

    def _unexpected(self, error: BaseException) -> str:
        return f"switch {self.name}: {type(error).__name__}: {error}"

    # -- opening -----------------------------------------------------------------------------------

    async def _open(self, number: int, term: int) -> None:
        tell: list[SwitchEvent] = []
        event = await self._try_to_open(term)
        session = self._session
        if session is not None:
            tell.append(SwitchConnected(self.name))
            self._followed.clear()
            self._watches_ports = False
            self._follow_session(self._watch(number, session))
            # Listen first: what the switch reports as soon as it is configured must not be missed.
            self._follow_digests(session, self._newest())
        else:
            self._closed.set()
        self._operation = None
        self._answer(number, event, *tell)

    async def _try_to_open(self, term: int) -> lifecycle.Event:
        """Open a session, which is `_session` then; return what came of it."""
        address = self._endpoint.address
        try:
            await _reach(self.name, address)
            with await self._places.opening.take():
                session = self._new_session(term)
                async with patience(_OPEN_S):
                    await session.__aenter__()
        except _NobodyThereError as error:
            return lifecycle.OpenFailed(str(error), answered=False)
        except NotPrimaryError as error:
            return lifecycle.Outranked(error.primary_id, str(error))
        except ProgramRefusedError as error:
            return lifecycle.OpenFailed(str(error), answered=True, refused=True)
        except SouthboundError as error:
            problem = explained(str(error), self._endpoint.tls)
        except TlsError as error:
            problem = f"switch {self.name}: {error}"
        except TimeoutError:
            problem = (
                f"switch {self.name}: no session at {address} within {_OPEN_S:g} s; it may be stuck"
            )
        except Exception as error:
            _log.exception("switch %s: opening a session failed", self.name)
            problem = self._unexpected(error)
        else:
            self._session = session
            return lifecycle.Opened()
        return lifecycle.OpenFailed(problem, answered=True)

    def _new_session(self, term: int) -> IntentSession:
        endpoint = self._endpoint
        return endpoint.session(
            endpoint.name,
            endpoint.address,
            endpoint.device_id,
            endpoint.program,
            election_id=term,
            credentials=None if endpoint.tls is None else endpoint.tls.credentials(),
            owner=endpoint.owner,
            queues=endpoint.queues,
        )

    def _newest(self) -> Intent | None:
        wanted = self._lifecycle.wanted
        if wanted is None:
            return None
        return self._intents.get(wanted)

    async def _watch(self, number: int, session: IntentSession) -> None:
        error = await session.wait_lost()
        self._answer(number, _loss(error))

    async def _guarded(self, work: Awaitable[T]) -> T:
        """Run a call of a session.

        Calls on a closed channel end as if they had been cancelled; the caller was not.
        """
        try:
            return await work
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise SouthboundError(
                f"switch {self.name}: the session at {self._endpoint.address} broke"
            ) from None

    # -- writing -----------------------------------------------------------------------------------

    async def _write(
        self,
        number: int,
        session: IntentSession,
        order: lifecycle.Write,
        intent: Intent,
    ) -> None:
        self._follow_digests(session, intent)
        tell: list[SwitchEvent] = []
        event: lifecycle.Event
        entry_count = intent.size + self._entries + self._foreign
        limit_s = self._timing.write_s + self._timing.entry_s * entry_count
        place = await self._places.reading.take() if order.afresh else None
        try:
            async with deadline(limit_s, self.name, "writing"), self._turn:
                if place is None:
                    work = session.update(intent)
                else:
                    work = session.reconcile(intent, place.give_up)
                applied = await self._guarded(work)
                if order.audit:
                    tell += await self._drift_repaired(session, applied)
            await self._check_alive(session, applied)
        except NotPrimaryError as error:
            event = _loss(error)
        except SouthboundError as error:
            event = await self._diagnose(session, error)
        except Exception as error:
            _log.exception("switch %s: writing failed", self.name)
            event = lifecycle.WriteFailed(self._unexpected(error))
        else:
            event, news = self._applied(session, order, applied)
            tell += news
            if order.afresh and not self._watches_ports:
                self._watches_ports = True
                self._follow_session(self._watch_ports(session))
        finally:
            if place is not None:
                place.give_up()
        if isinstance(event, lifecycle.WriteFailed):
            refused = IntentRefused(self.name, event.problem, order.version)
            tell += self._refusal(refused)
        self._operation = None
        self._answer(number, event, *tell)

    async def _drift_repaired(self, session: IntentSession, applied: Applied) -> list[SwitchEvent]:
        """Return what to tell of an audit that has repaired something."""
        settings = {
            "queues": applied.queues,
            "digests": applied.digests,
            "multicast groups": applied.groups,
        }
        differences = session.differences + Counter(settings)
        # A setting that was refused and is accepted now was never on the switch.
        accepted = 0
        for part in self._standing.difference(applied.refused):
            accepted += part.settings
        if differences.total() <= accepted:
            return []
        self._drift += differences.total()
        writer = None
        with suppress(SouthboundError):
            writer = await self._guarded(session.foreign_writer())
        return [DriftRepaired(self.name, differences, writer)]

    async def _check_alive(self, session: IntentSession, applied: Applied) -> None:
        """Raise `SouthboundError` if settings are refused because the session has broken."""
        for part in applied.refused:
            if isinstance(part, RefusedSetting) and part not in self._standing:
                await self._guarded(session.ping(self._timing.answer_s))
                return

    async def _diagnose(self, session: IntentSession, error: SouthboundError) -> lifecycle.Event:
        """Return whether a call failed because the switch refused it, or is away."""
        with suppress(TimeoutError):
            lost = await asyncio.wait_for(session.wait_lost(), _STREAM_FIRST_S)
            return _loss(lost)
        try:
            await self._guarded(session.ping(self._timing.answer_s))
        except SouthboundError:
            return lifecycle.Lost(str(error))
        return lifecycle.WriteFailed(str(error))

    def _applied(
        self,
        session: IntentSession,
        order: lifecycle.Write,
        applied: Applied,
    ) -> tuple[lifecycle.Event, list[SwitchEvent]]:
        now = self._clock()
        self._entries = session.entries
        self._foreign = applied.foreign
        if order.afresh:
            self._last_audit_at = now
        if applied:
            self._last_written_at = now
        self._standing = frozenset(applied.refused)
        tell: list[SwitchEvent] = []
        problem = applied.problem
        if problem is not None:
            refused = IntentRefused(
                self.name, problem, order.version, applied.refused, applied.is_clear
            )
            tell += self._refusal(refused)
            return lifecycle.Written(problem), tell
        if self._installed != order.version or self._refused is not None:
            acknowledged = Acknowledged(
                self.name,
                order.version,
                applied.encoding_s,
                applied.rpc_s,
                applied.inserts,
                applied.modifies,
                applied.deletes,
            )
            tell.append(acknowledged)
        self._installed = order.version
        self._refused = None
        return lifecycle.Written(None), tell

    def _refusal(self, refused: IntentRefused) -> list[SwitchEvent]:
        """Return what to tell of a refusal, if it is news."""
        # The owner forgets the parts that a switch lacks when the session is lost.
        session = self._session_number if refused.parts else 0
        if self._refused == (refused, session):
            return []
        self._refused = refused, session
        return [refused]

    # -- listening ---------------------------------------------------------------------------------

    async def _ping(self, number: int, session: IntentSession) -> None:
        event: lifecycle.Event = lifecycle.Answered()
        try:
            await self._guarded(session.ping(self._timing.answer_s))
        except SouthboundError as error:
            event = _loss(error)
        self._answer(number, event)

    async def _watch_ports(self, session: IntentSession) -> None:
        try:
            async with self._turn:
                subscription = await session.ports_down()
            if subscription is None:
                return
            is_first = True
            async with aclosing(subscription) as updates:
                async for down in updates:
                    self._unwatched = None
                    if not is_first:
                        self._feed(lifecycle.PortsMoved())
                    is_first = False
                    if down != self._ports_down:
                        self._ports_down = down
                        self._tell(PortsChanged(self.name, down))
            failure = SouthboundError(f"switch {self.name}: it ended the subscription to its ports")
        except SouthboundError as error:
            failure = error
        except Exception as error:
            # It answers nonsense.
            failure = SouthboundError(
                f"switch {self.name}: watching ports: {type(error).__name__}: {error}"
            )
        # If the session has broken, its own watch says so.
        event = await self._diagnose(session, failure)
        if isinstance(event, lifecycle.WriteFailed):
            # The next audit tries once more.
            self._watches_ports = False
            was_watched = self._unwatched is None
            self._unwatched = str(failure)
            if was_watched:
                self._tell(PortsUnwatched(self.name, self._unwatched))

    def _follow_digests(self, session: IntentSession, intent: Intent | None) -> None:
        if self._on_digests is None or intent is None:
            return
        for setting in intent.digests:
            if setting.name not in self._followed:
                self._followed.add(setting.name)
                work = self._follow(session, setting.name, self._on_digests)
                self._follow_session(work)

    async def _follow(
        self,
        session: IntentSession,
        digest: str,
        deliver: OnDigests,
    ) -> None:
        digests = cast(AsyncGenerator[DigestReport, None], session.digests(digest))
        async with aclosing(digests) as reports:
            async for report in reports:
                try:
                    await deliver(self.name, report)
                except Exception:
                    _log.exception(
                        "switch %s: a report of %s could not be handled", self.name, digest
                    )
                await session.acknowledge(report)

    # -- closing -----------------------------------------------------------------------------------

    async def _close(self, operation: asyncio.Task[None] | None) -> None:
        session = self._session
        self._session = None
        ending = set(self._followers)
        if operation is not None:
            ending.add(operation)
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)
        if session is not None:
            await self._close_session(session)
        self._operation = None
        self._closed.set()
        self._feed(lifecycle.Closed())

    async def _close_session(self, session: IntentSession) -> None:
        try:
            async with asyncio.timeout(_CLOSE_S):
                await session.__aexit__(None, None, None)
        except TimeoutError:
            _log.warning("switch %s: closing the session took more than %g s", self.name, _CLOSE_S)
        except Exception:
            _log.exception("switch %s: closing the session failed", self.name)


class _NobodyThereError(Exception):
    """The error for a switch's address at which nothing accepts connections."""


async def _reach(name: str, address: str) -> None:
    """Check that something accepts TCP connections at an address.

    That is cheaper than a session, and answered in time. Raise `_NobodyThereError`. An address of
    gRPC's own kind (`unix:PATH`, `dns:///...`) is left to gRPC.
    """
    host, colon, port = address.rpartition(":")
    is_tcp = colon and port.isdecimal()
    if not is_tcp or "/" in host or host == "unix":
        return
    reason = "has no address"
    try:
        for numeric in await _resolve(host.strip("[]")):
            try:
                await _connect(numeric, int(port))
            except TimeoutError:
                reason = f"no answer within {_REACH_S:g} s"
            except OSError as error:
                # asyncio words its own text around the number.
                reason = os.strerror(error.errno) if error.errno else str(error)
            else:
                return
    except TimeoutError:
        reason = f"its name was not resolved within {_RESOLVE_S:g} s"
    except OSError as error:
        reason = error.strerror or str(error)
    raise _NobodyThereError(
        f"switch {name}: cannot connect to {address}: {reason}; is the switch running?"
    )


async def _connect(host: str, port: int) -> None:
    async with patience(_REACH_S):
        _, writer = await asyncio.open_connection(host, port)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def _resolve(host: str) -> list[str]:
    """Return numeric addresses. Raise OSError or TimeoutError."""
    with suppress(ValueError):
        return [str(ipaddress.ip_address(host))]
    loop = asyncio.get_running_loop()
    async with patience(_RESOLVE_S):
        answers = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    # Each address comes once for each protocol.
    addresses = [str(sockaddr[0]) for *_, sockaddr in answers]
    return list(dict.fromkeys(addresses))


def _loss(error: SouthboundError) -> lifecycle.Event:
    if isinstance(error, NotPrimaryError):
        return lifecycle.Outranked(error.primary_id, str(error))
    return lifecycle.Lost(str(error))
