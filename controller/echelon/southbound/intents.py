"""The part of a session that knows intents: what a switch should hold, what it holds, and the difference.

How entries travel is the business of subclasses: `echelon.southbound.session` for P4Runtime, and each target whose
tables are reached otherwise.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, Self

from finsy import GRPCStatusCode

from echelon.lowering.intent import DigestSetting, Intent, QueueSetting, TableEntry
from echelon.southbound.codec import OWNER, EncodedEntry
from echelon.southbound.errors import SouthboundError
from echelon.southbound.outcome import Applied, Comparison, RefusedEntry
from echelon.southbound.queues import QueueCount, QueueCounter, QueueDriver
from echelon.southbound.reconcile import Chunk, InvalidEntry, Turn, WantedEntries, difference, turned
from echelon.southbound.texts import EntryText
from echelon.southbound.values import value_text
from echelon.southbound.wire import UpdateKind
from echelon.southbound.writer import FOREIGN, Found, LookUp, Refusal, Send, Writing, carry_out

if TYPE_CHECKING:
    from types import TracebackType

    from finsy import GRPCCredentialsTLS

    from echelon.p4program import P4Program

__all__ = ["DigestReport", "EntryCodec", "IntentSession", "SessionFactory", "Tables"]


@dataclass(frozen=True, slots=True)
class DigestReport:
    """One list of digests: the fields of each, by name, and the token by which it is acknowledged."""

    fields: tuple[Mapping[str, int], ...]
    received: object
    """The list as the channel gave it."""


class EntryCodec(Protocol):
    """A translation of an intent's entries to a channel's bytes."""

    @property
    def stages(self) -> Mapping[str, int]:
        """The stage of each table; see `EncodedEntry.stage`."""
        ...

    def spread(self, entry: TableEntry) -> Sequence[TableEntry]:
        """Return the entries that the channel needs for one of an intent, each of which can be encoded."""
        ...

    def encode(self, entry: TableEntry) -> EncodedEntry:
        """Return the bytes of `entry`. Raise ValueError that names table and field."""
        ...

    def describe(self, entry: TableEntry | EncodedEntry) -> EntryText:
        """Describe an entry for people. Raise ValueError as `encode` does."""
        ...


@dataclass(slots=True)
class Tables:
    """The entries of a switch, except those that belong to its program."""

    ours: dict[bytes, EncodedEntry] = field(default_factory=dict)
    foreign: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class _Seconds:
    """The durations of the phases of a change."""

    encoding: float = 0.0
    read: float = 0.0
    rpc: float = 0.0


async def _encoded(turn: Turn) -> None:
    """Encode all of it piece by piece, so that other switches get the event loop in between."""
    for _ in turn.come:
        await asyncio.sleep(0)


def _timed(chunks: Iterator[Chunk], seconds: _Seconds) -> Iterator[Chunk]:
    """Yield the same items, counting the time that it takes to make them."""
    while True:
        started = time.perf_counter()
        chunk = next(chunks, None)
        seconds.encoding += time.perf_counter() - started
        if chunk is None:
            return
        yield chunk


class IntentSession(ABC):
    """A session with one switch, which brings the switch to its intent. An async context manager: connected inside.

    Calls that read or write must not overlap; `digests`, `acknowledge`, `wait_lost` and `ping` may run beside them.

    Args:
        name: of the switch, for messages.
        codec: the translation of entries.
        queues: the driver of the switch's queues (`echelon.targets.Target.queue_driver`). Without one, an intent that
            configures queues is refused.
    """

    def __init__(self, name: str, codec: EntryCodec, queues: QueueDriver | None) -> None:
        self.name = name
        self._codec = codec
        self._queue_driver = queues
        self._queues_open = False
        self._wanted = self._new_wanted()
        self._held: dict[bytes, EncodedEntry] | None = None
        """Our entries on the switch, by key; None while unknown."""
        self._foreign: set[bytes] = set()
        self._standing: dict[bytes, RefusedEntry] = {}
        """The entries that the switch refused to write or to delete, by key."""
        self._queues: dict[tuple[int, int], QueueSetting] = {}
        self._digests: dict[str, DigestSetting] = {}

    # -- the channel -------------------------------------------------------------------------------------------------

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Open the session.

        Raise `SouthboundError` for a switch that cannot be reached or refuses the program, and `NotPrimaryError` for
        one that obeys another controller.
        """

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    @abstractmethod
    async def wait_lost(self) -> SouthboundError:
        """Wait until the session is over, and return why: `NotPrimaryError` if another controller took over."""

    @abstractmethod
    async def ping(self, timeout_s: float) -> None:
        """Send one cheap RPC. Raise `SouthboundError` if the switch does not answer in time."""

    @abstractmethod
    async def bytes_seen(self, entries: Iterable[TableEntry]) -> dict[TableEntry, int]:
        """Return the direct byte counters of `entries`; 0 for what the switch does not hold."""

    @abstractmethod
    def digests(self, name: str) -> AsyncIterator[DigestReport]:
        """Yield digest lists as the switch sends them, oldest first. Raise `SouthboundError` when the session ends."""

    @abstractmethod
    async def acknowledge(self, report: DigestReport) -> None:
        """Acknowledge a list of digests. Raise `SouthboundError`."""

    @abstractmethod
    def _errors(self, what: str) -> AbstractContextManager[None]:
        """Turn whatever goes wrong between here and the switch into a `SouthboundError`."""

    @abstractmethod
    def _check_up(self) -> None:
        """Raise `SouthboundError` if the session is over."""

    @abstractmethod
    async def _read_all(self, expected: Mapping[bytes, EncodedEntry]) -> Tables:
        """Return every entry of every table except constant and default ones; cheapest for those that are as
        `expected`."""

    @abstractmethod
    async def _write(self, send: Send) -> None:
        """Write a batch. Raise `CallError`."""

    @abstractmethod
    async def _look_up(self, lookup: LookUp) -> Mapping[bytes, Found]:
        """Return what the switch holds under those keys."""

    @abstractmethod
    async def _read_digests(self, settings: Sequence[DigestSetting]) -> dict[str, DigestSetting]:
        """Return the settings of those digests that are in force."""

    @abstractmethod
    async def _write_digests(self, settings: Sequence[DigestSetting]) -> int:
        """Put settings into force; return how many changed."""

    @abstractmethod
    async def _open_queues(self, driver: QueueDriver) -> None:
        """Prepare the driver of the queues for this session, over the channel that it uses."""

    # -- intents -----------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> int:
        """Our table entries on the switch, by the last `reconcile` and what was written since."""
        return len(self._held or ())

    @property
    def foreign(self) -> int:
        """Others' table entries on the switch, by the last `reconcile`."""
        return len(self._foreign)

    def describe(self, entry: TableEntry) -> EntryText:
        """Describe an entry for people. Raise `SouthboundError` for an entry that the program does not know."""
        try:
            return self._codec.describe(entry)
        except ValueError as error:
            raise SouthboundError(f"switch {self.name}: {error}") from None

    async def read_entries(self) -> dict[bytes, EncodedEntry]:
        """Return our entries of every table, by key. Raise `SouthboundError`."""
        return (await self._read_all({})).ours

    async def reconcile(self, intent: Intent) -> Applied:
        """Read what the switch holds, and write the difference. Raise `SouthboundError`."""
        with self._changing():
            started = time.perf_counter()
            await _encoded(self._wanted.turn_to(intent.parts))
            seconds = _Seconds(encoding=time.perf_counter() - started)
            tables = await self._read_all(self._wanted.by_key)
            self._queues = await self._read_queues() if intent.queues else {}
            self._digests = await self._read_digests(intent.digests)
            seconds.read = time.perf_counter() - started - seconds.encoding
            self._foreign = tables.foreign
            change = difference(tables.ours, self._wanted.by_key, tables.foreign)
            blocked = [Refusal(UpdateKind.INSERT, entry, FOREIGN) for entry in change.blocked]
            self._standing = {refusal.entry.key: self._refused(refusal) for refusal in blocked}
            writing = Writing(change.chunks(), tables.ours, deletes=bool(change.deletes))
            return await self._apply(intent, writing, tables.ours, seconds)

    async def update(self, intent: Intent) -> Applied:
        """Write what differs from the last `reconcile` or `update`, without reading. Raise `SouthboundError`.

        The cost is that of the parts that are not the same object as before. If nothing is known of what the switch
        holds (at first, and after an error), this is `reconcile`.
        """
        if self._held is None:
            return await self.reconcile(intent)
        held = self._held
        with self._changing():
            started = time.perf_counter()
            turn = self._wanted.turn_to(intent.parts)
            # A deletion may make room for an entry that was refused before.
            self._standing = {key: refused for key, refused in self._standing.items() if key not in turn.gone}
            again = list(self._standing) if turn.gone else []
            seconds = _Seconds(encoding=time.perf_counter() - started)
            chunks = _timed(turned(turn, self._wanted.by_key, held, again), seconds)
            return await self._apply(intent, Writing(chunks, held, deletes=bool(turn.gone)), held, seconds)

    async def compare(self, intent: Intent) -> Comparison:
        """Read what the switch holds; write nothing, and remember nothing of it. Raise `SouthboundError`."""
        wanted = self._new_wanted()
        await _encoded(wanted.turn_to(intent.parts))
        tables = await self._read_all(wanted.by_key)
        queues = await self._read_queues() if intent.queues else {}
        digests = await self._read_digests(intent.digests)
        change = difference(tables.ours, wanted.by_key, tables.foreign)
        owners = wanted.owners({entry.key for entry in (*change.inserts, *change.modifies, *change.blocked)})

        def texts(entries: Iterable[EncodedEntry]) -> tuple[EntryText, ...]:
            return tuple(replace(self._codec.describe(entry), owner=owners.get(entry.key, "")) for entry in entries)

        return Comparison(
            texts(change.inserts),
            texts(change.modifies),
            texts(change.deletes),
            texts(change.blocked),
            len(tables.foreign),
            tuple(setting for setting in intent.queues if queues.get((setting.port, setting.queue)) != setting),
            tuple(setting for setting in intent.digests if digests.get(setting.name) != setting),
        )

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Forget what the switch holds, and what of the intent is encoded, if the block raises."""
        self._held = None
        try:
            yield
        except BaseException:
            self._wanted = self._new_wanted()
            raise

    def _new_wanted(self) -> WantedEntries:
        return WantedEntries(self._codec.encode, self._codec.stages, self._codec.spread)

    async def _apply(
        self, intent: Intent, writing: Writing, held: dict[bytes, EncodedEntry], seconds: _Seconds
    ) -> Applied:
        started = time.perf_counter()
        # Queues before entries: a packet must not enter a queue that is not yet what its class expects.
        queues = await self._write_queues(intent.queues)
        digests = await self._write_digests(intent.digests)
        with self._errors("writing tables"):
            await carry_out(writing, self._write, self._look_up)
        seconds.rpc += time.perf_counter() - started
        self._standing = {key: refused for key, refused in self._standing.items() if not self._is_right(key, held)}
        self._standing.update((refusal.entry.key, self._refused(refusal)) for refusal in writing.refused)
        self._held = held
        return Applied(
            writing.done[UpdateKind.INSERT],
            writing.done[UpdateKind.MODIFY],
            writing.done[UpdateKind.DELETE],
            (*map(self._invalid, self._wanted.invalid), *self._standing.values()),
            len(self._foreign),
            queues,
            digests,
            seconds.encoding,
            seconds.read,
            seconds.rpc,
        )

    def _is_right(self, key: bytes, held: Mapping[bytes, EncodedEntry]) -> bool:
        wanted, there = self._wanted.by_key.get(key), held.get(key)
        return wanted is there if wanted is None or there is None else wanted.value == there.value

    def _refused(self, refusal: Refusal) -> RefusedEntry:
        text = self._codec.describe(refusal.entry)
        reason = refusal.status.message or f"the switch refuses to {refusal.kind.name.lower()} it, without a reason"
        return RefusedEntry(self.name, text.table, text.key, reason, GRPCStatusCode(refusal.status.code).name)

    def _invalid(self, invalid: InvalidEntry) -> RefusedEntry:
        match = ", ".join(f"{name}={value_text(value)}" for name, value in invalid.entry.match)
        reason = invalid.reason.removeprefix(f"table {invalid.entry.table}: ")
        return RefusedEntry(self.name, invalid.entry.table, match, reason, "INVALID_ARGUMENT")

    async def _read_queues(self) -> dict[tuple[int, int], QueueSetting]:
        self._check_up()
        driver = self._queue_driver
        if driver is None:
            raise SouthboundError(f"switch {self.name}: its session has no queue driver (give it that of its target)")
        with self._errors("reading queues"):
            if not self._queues_open:
                await self._open_queues(driver)
                self._queues_open = True
            return dict(await driver.read())

    async def queue_counts(self) -> Mapping[tuple[int, int], QueueCount]:
        """Return what has passed each queue, by (port, queue); empty if the switch's driver does not count."""
        self._check_up()
        driver = self._queue_driver
        if not isinstance(driver, QueueCounter):
            return {}
        if not self._queues_open:
            await self._open_queues(driver)
            self._queues_open = True
        return await driver.counted()

    async def _write_queues(self, settings: Sequence[QueueSetting]) -> int:
        changed = [s for s in settings if self._queues.get((s.port, s.queue)) != s]
        if changed and self._queue_driver is not None:
            with self._errors("setting queues"):
                await self._queue_driver.write(changed)
            self._queues.update({(s.port, s.queue): s for s in changed})
        return len(changed)


class SessionFactory(Protocol):
    """A maker of sessions with switches of one kind."""

    def __call__(
        self,
        name: str,
        address: str,
        device_id: int,
        program: P4Program,
        *,
        election_id: int | None = None,
        credentials: GRPCCredentialsTLS | None = None,
        owner: bytes = OWNER,
        queues: QueueDriver | None = None,
    ) -> IntentSession:
        """Return a session that connects to nothing yet.

        Args:
            name: of the switch, for messages.
            address: host:port of the service that holds its tables.
            device_id: the number by which that service knows the switch.
            program: pushed if the switch runs another one.
            election_id: of the leader; every later leader's is higher. None: there is one controller.
            credentials: of TLS; None is plain text.
            owner: what marks our entries, where the switch can hold a mark; entries with another are left alone.
            queues: the driver of the switch's queues.
        """
        ...
