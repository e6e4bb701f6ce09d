"""A session with one switch: arbitration and pipeline by finsy, intents by reconciliation."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from finsy import (
    GRPCCredentialsTLS,
    GRPCStatusCode,
    P4ClientError,
    P4DigestEntry,
    P4DigestList,
    P4Schema,
    Switch,
    SwitchEvent,
    SwitchOptions,
)
from finsy.gnmiclient import GNMIClientError
from finsy.proto import p4i, p4r
from google.protobuf import text_format  # type: ignore[import-untyped]

from echelon.lowering.intent import DigestSetting, Intent, QueueSetting, TableEntry
from echelon.p4program import P4Program
from echelon.southbound.arbitration import FixedArbitrator
from echelon.southbound.channel import BulkChannel, CallError
from echelon.southbound.codec import OWNER, EncodedEntry, codec_of, encode_digest
from echelon.southbound.errors import NotPrimaryError, SouthboundError
from echelon.southbound.outcome import Applied, Comparison, RefusedEntry
from echelon.southbound.queues import QueueDriver
from echelon.southbound.reconcile import Chunk, InvalidEntry, Turn, WantedEntries, difference, turned
from echelon.southbound.texts import EntryText
from echelon.southbound.values import value_text
from echelon.southbound.wire import UpdateKind, read_request, table_entries, write_header, write_request
from echelon.southbound.writer import FOREIGN, Found, LookUp, Refusal, Send, Writing, carry_out

__all__ = [
    "Applied",
    "Comparison",
    "DigestReport",
    "NotPrimaryError",
    "RefusedEntry",
    "SouthboundError",
    "SwitchSession",
]

_DIGEST_QUEUE = 1 << 16
_TAKEOVER_S = 5.0
"""How long to wait for a switch to release its previous primary."""

_ENTRIES_AT_ONCE = 1000
"""Number of entries to read before other tasks get the event loop."""
_WITH_COUNTER = b"\x3a\x00"
"""Field 7 of TableEntry, empty: in a query it asks for the direct counter."""

# Errors are raised here; finsy would print them as well where logging is not configured.
logging.getLogger("finsy").addHandler(logging.NullHandler())


def _is_news(record: logging.LogRecord) -> bool:
    """Drop what finsy says of every switch whose queues and ports are not configured by gNMI."""
    return not record.getMessage().endswith(("gNMI is not implemented", "No switch ports exist"))


logging.getLogger("finsy").addFilter(_is_news)


@lru_cache(maxsize=4)
def _parsed(p4info: str) -> p4i.P4Info:
    """Return a P4Info from its text. Parsing takes 50 ms, and every session with every switch needs the same one."""
    message = p4i.P4Info()
    text_format.Parse(p4info, message)
    return message


@dataclass(frozen=True, slots=True)
class DigestReport:
    """One list of digests: the fields of each, by name, and the token by which it is acknowledged."""

    fields: tuple[Mapping[str, int], ...]
    received: P4DigestList


@dataclass(slots=True)
class _Tables:
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


class _ProgrammedSwitch(Switch):  # type: ignore[misc]  # final, but finsy tells the reason only to its log
    """finsy's switch, which keeps the reason why the switch does not take the program."""

    refusal: Exception | None = None
    """The answer of the switch if it did not take the program, or the reason why the program could not be sent."""

    async def _ready(self) -> None:
        try:
            await super()._ready()  # type: ignore[no-untyped-call]
        except Exception as error:  # any other way out of a task of finsy's would cancel ours
            self.refusal = error
            self._channel_ready()  # type: ignore[no-untyped-call]


class SwitchSession:
    """A primary controller's session with one switch. An async context manager: connected inside, closed after.

    Calls that read or write must not overlap; `digests`, `acknowledge`, `wait_lost` and `ping` may run beside them.

    Args:
        name: of the switch, for messages.
        address: host:port of its P4Runtime service.
        device_id: of P4Runtime.
        program: pushed if the switch runs another one.
        election_id: bid exactly this one, and be primary or fail. Once another controller has a higher one, this
            session is over: every later write raises `NotPrimaryError`, and it never bids again. None: any id that
            wins while no other controller is connected.
        credentials: of TLS; None is plain text.
        owner: metadata of our entries; entries with another or none are not touched.
        queues: the driver of the switch's queues (`echelon.targets.Target.queue_driver`). Without one, an intent that
            configures queues is refused.
    """

    def __init__(
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
    ) -> None:
        self.name = name
        self._exact_id = election_id
        self._credentials = credentials
        # finsy parses a file anew for every session; it takes a message as well, although its types name paths only.
        p4info = cast(Path, _parsed(program.p4info.read_text("utf-8")))
        options = SwitchOptions(
            p4info=p4info, p4blob=program.binary, device_id=device_id, channel_credentials=credentials
        )
        if election_id is not None:
            options = options(initial_election_id=election_id)
        self._switch = _ProgrammedSwitch(name, address, options)
        if election_id is not None:
            self._switch._arbitrator = FixedArbitrator(election_id)  # noqa: SLF001
        self._entered = False
        self._bulk: BulkChannel | None = None
        self._queue_driver = queues
        self._queues_open = False
        self._lost = asyncio.Event()
        self._deposed: NotPrimaryError | None = None
        self._closing: asyncio.Future[None] | None = None
        self.codec = codec_of(self._switch.p4info, owner)
        self._wanted = self._new_wanted()
        self._held: dict[bytes, EncodedEntry] | None = None
        """Our entries on the switch, by key; None while unknown."""
        self._foreign: set[bytes] = set()
        self._standing: dict[bytes, RefusedEntry] = {}
        """The entries that the switch refused to write or to delete, by key."""
        self._queues: dict[tuple[int, int], QueueSetting] = {}
        self._digests: dict[str, DigestSetting] = {}

    async def __aenter__(self) -> Self:
        """Open the session.

        Raise `SouthboundError` for a switch that cannot be reached or refuses the program, and `NotPrimaryError` for
        one that obeys another controller, or if the given election id is in use.
        """
        try:
            await self._switch.__aenter__()
        except (P4ClientError, GNMIClientError) as error:
            raise self._no_session(error) from None
        self._entered = True
        try:
            # If the bid is fixed, being a backup is final.
            if self._exact_id is None and not self._switch.is_primary:
                await self._wait_for_primary()
            if not self._switch.is_primary:
                raise self._not_primary()
            if (refusal := self._switch.refusal) is not None:
                reason = refusal.message if isinstance(refusal, P4ClientError) else refusal
                raise SouthboundError(
                    f"switch {self.name} at {self._switch.address} does not take the P4 program: {reason}; "
                    "check that it is built for this kind of switch"
                )
        except BaseException:
            await self._close()
            raise
        self._switch.ee.once(SwitchEvent.CHANNEL_DOWN, lambda _switch: self._lost.set())
        self._switch.ee.once(SwitchEvent.BECOME_BACKUP, lambda _switch: self._depose())
        self._bulk = BulkChannel(self._switch.address, self._credentials)
        return self

    def _no_session(self, error: P4ClientError | GNMIClientError) -> SouthboundError:
        where = f"switch {self.name}: no P4Runtime session at {self._switch.address}"
        if self._exact_id is not None and isinstance(error, P4ClientError) and error.is_election_id_used:
            return NotPrimaryError(
                f"{where}: election id {self._exact_id} is in use; the switch may not have noticed yet that an "
                "earlier session ended",
                self._exact_id,
            )
        return SouthboundError(f"{where}: {error.message}; check address, device id, TLS files and election")

    async def _wait_for_primary(self) -> None:
        ready = asyncio.Event()
        self._switch.ee.once(SwitchEvent.CHANNEL_READY, lambda _switch: ready.set())
        with suppress(TimeoutError):
            await asyncio.wait_for(ready.wait(), _TAKEOVER_S)

    def _not_primary(self) -> NotPrimaryError:
        """Return the error for the current state of arbitration."""
        primary = self._switch.primary_id
        if self._exact_id is None:
            advice = "stop that one first"
        else:
            advice = f"this one has {self._exact_id} and leaves the switch to it"
        return NotPrimaryError(
            f"switch {self.name}: another controller is primary (election id {primary}); {advice}", primary
        )

    def _depose(self) -> None:
        if self._exact_id is not None and self._deposed is None:
            self._deposed = self._not_primary()
            self._lost.set()
            # Now, not when the owner gets round to it: nothing may be written, nor bid, from here on.
            self._closing = asyncio.ensure_future(self._close())

    async def _close(self) -> None:
        """Close the session. Idempotent."""
        if self._bulk is not None:
            await self._bulk.close()
        if self._entered:
            self._entered = False
            await self._switch.__aexit__(None, None, None)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def wait_lost(self) -> SouthboundError:
        """Wait until the session is over, and return why: `NotPrimaryError` if another controller took over."""
        await self._lost.wait()
        return self._why_lost()

    def _why_lost(self) -> SouthboundError:
        return self._deposed or SouthboundError(
            f"switch {self.name}: the session at {self._switch.address} is closed or broken"
        )

    async def ping(self, timeout_s: float) -> None:
        """Send one cheap RPC. Raise `SouthboundError` if the switch does not answer in time."""
        self._check_up()
        assert self._bulk is not None
        try:
            await self._bulk.ping(timeout_s)
        except CallError as error:
            raise SouthboundError(
                f"switch {self.name}: no answer at {self._switch.address} within {timeout_s:g} s: {error}"
            ) from None

    @property
    def entries(self) -> int:
        """Our table entries on the switch, by the last `reconcile` and what was written since."""
        return len(self._held or ())

    @property
    def foreign(self) -> int:
        """Others' table entries on the switch, by the last `reconcile`."""
        return len(self._foreign)

    @property
    def schema(self) -> P4Schema:
        """The P4Info of the program, as finsy reads it."""
        return self._switch.p4info

    def describe(self, entry: TableEntry) -> EntryText:
        """Describe an entry for people. Raise `SouthboundError` for an entry that the program does not know."""
        try:
            return self.codec.describe(entry)
        except ValueError as error:
            raise SouthboundError(f"switch {self.name}: {error}") from None

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Turn whatever goes wrong between here and the switch into a `SouthboundError`."""
        self._check_up()
        try:
            yield
        except P4ClientError as error:
            raise self._failed(what, error.code, error.message) from None
        except CallError as error:
            raise self._failed(what, error.whole.code, error.whole.message) from None

    def _failed(self, what: str, code: int, reason: str) -> SouthboundError:
        if self._deposed is not None:
            return self._deposed
        if code == GRPCStatusCode.PERMISSION_DENIED:
            text = f"switch {self.name}: {what} refused: {reason}; another controller is primary"
            return NotPrimaryError(text, max(0, self._switch.primary_id))
        return SouthboundError(f"switch {self.name}: {what} refused: {reason} [{GRPCStatusCode(code).name}]")

    def _check_up(self) -> None:
        if self._lost.is_set() or not self._switch.is_up:
            raise self._why_lost()

    # -- entries -----------------------------------------------------------------------------------------------------

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
            return tuple(replace(self.codec.describe(entry), owner=owners.get(entry.key, "")) for entry in entries)

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
        return WantedEntries(self.codec.encode, self.codec.stages)

    async def _read_all(self, expected: Mapping[bytes, EncodedEntry]) -> _Tables:
        """Return every entry of every table except constant and default ones; cheapest for those that are as
        `expected`."""
        tables = _Tables()
        by_wire = {entry.wire: entry for entry in expected.values()}
        async for raw in self._read([b""]):
            entry = by_wire.get(raw)
            if entry is not None:
                tables.ours[entry.key] = entry
            elif (decoded := self.codec.decode(raw)) is not None:
                entry, ours = decoded
                if ours:
                    tables.ours[entry.key] = entry
                else:
                    tables.foreign.add(entry.key)
        return tables

    async def _read(self, queries: Iterable[bytes]) -> AsyncIterator[bytes]:
        """Yield the serialized entries that serialized TableEntry messages select."""
        with self._errors("reading tables"):
            assert self._bulk is not None
            responses = self._bulk.read(read_request(self._switch.device_id, queries, self._switch.role_name))
            async with aclosing(responses):
                async for response in responses:
                    # BMv2 sends all in one response, which must not keep other switches waiting.
                    for number, raw in enumerate(table_entries(response), start=1):
                        yield raw
                        if not number % _ENTRIES_AT_ONCE:
                            await asyncio.sleep(0)

    async def _apply(
        self, intent: Intent, writing: Writing, held: dict[bytes, EncodedEntry], seconds: _Seconds
    ) -> Applied:
        started = time.perf_counter()
        # Queues before entries: a packet must not enter a queue that is not yet what its class expects.
        queues = await self._write_queues(intent.queues)
        digests = await self._write_digests(intent.digests)
        header = write_header(self._switch.device_id, self._switch.election_id, self._switch.role_name)
        with self._errors("writing tables"):
            await carry_out(writing, lambda send: self._write(header, send), self._look_up)
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
        text = self.codec.describe(refusal.entry)
        reason = refusal.status.message or f"the switch refuses to {refusal.kind.name.lower()} it, without a reason"
        return RefusedEntry(self.name, text.table, text.key, reason, GRPCStatusCode(refusal.status.code).name)

    def _invalid(self, invalid: InvalidEntry) -> RefusedEntry:
        match = ", ".join(f"{name}={value_text(value)}" for name, value in invalid.entry.match)
        reason = invalid.reason.removeprefix(f"table {invalid.entry.table}: ")
        return RefusedEntry(self.name, invalid.entry.table, match, reason, "INVALID_ARGUMENT")

    async def _write(self, header: bytes, send: Send) -> None:
        self._check_up()
        assert self._bulk is not None
        kind, entries = send.kind, send.entries
        raw = [entry.key for entry in entries] if kind is UpdateKind.DELETE else [entry.wire for entry in entries]
        await self._bulk.write(write_request(header, kind, raw), len(raw))

    async def _look_up(self, lookup: LookUp) -> Mapping[bytes, Found]:
        found = {}
        async for raw in self._read([entry.key for entry in lookup.entries]):
            if (decoded := self.codec.decode(raw)) is not None:
                entry, ours = decoded
                found[entry.key] = Found(entry, ours)
        return found

    async def bytes_seen(self, entries: Iterable[TableEntry]) -> dict[TableEntry, int]:
        """Return the direct byte counters of `entries`, in one read; 0 for what the switch does not hold."""
        wanted = {self.codec.encode(entry).key: entry for entry in entries}
        out = dict.fromkeys(wanted.values(), 0)
        self._check_up()
        if wanted:
            async for raw in self._read([key + _WITH_COUNTER for key in wanted]):
                message = p4r.TableEntry.FromString(raw)
                entry = wanted.get(self.codec.of_message(message).key)
                if entry is not None:
                    out[entry] = message.counter_data.byte_count
        return out

    # -- queues and digests ------------------------------------------------------------------------------------------

    async def _read_queues(self) -> dict[tuple[int, int], QueueSetting]:
        self._check_up()
        driver = self._queue_driver
        if driver is None:
            raise SouthboundError(f"switch {self.name}: its session has no queue driver (give it that of its target)")
        if not self._queues_open:
            await driver.open(self._switch.gnmi_client)
            self._queues_open = True
        return dict(await driver.read())

    async def _write_queues(self, settings: Sequence[QueueSetting]) -> int:
        changed = [s for s in settings if self._queues.get((s.port, s.queue)) != s]
        if changed and self._queue_driver is not None:
            self._check_up()
            await self._queue_driver.write(changed)
            self._queues.update({(s.port, s.queue): s for s in changed})
        return len(changed)

    async def _read_digests(self, settings: Sequence[DigestSetting]) -> dict[str, DigestSetting]:
        read: list[P4DigestEntry] = []
        for setting in settings:
            with self._errors("reading digests"):
                try:
                    # finsy declares the overloads of this generator as coroutines, which mypy takes literally.
                    replies = cast(AsyncIterator[Any], self._switch.read(P4DigestEntry(setting.name)))
                    read += [entry async for entry in replies]
                except P4ClientError as error:
                    # PI answers so for a digest that was not configured; the specification says to answer with nothing.
                    if "not configured" not in error.message:
                        raise
        return {
            entry.digest_id: DigestSetting(
                entry.digest_id, entry.max_list_size, entry.max_timeout_ns, entry.ack_timeout_ns
            )
            for entry in read
        }

    async def _write_digests(self, settings: Sequence[DigestSetting]) -> int:
        changed = [setting for setting in settings if self._digests.get(setting.name) != setting]
        for setting in changed:
            write = self._switch.modify if setting.name in self._digests else self._switch.insert
            with self._errors(f"digest {setting.name}"):
                await write([encode_digest(setting, self.schema)])
            self._digests[setting.name] = setting
        return len(changed)

    async def digests(self, name: str) -> AsyncIterator[DigestReport]:
        """Yield digest lists as the switch sends them, oldest first. Raise `SouthboundError` when the session ends."""
        self._check_up()
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            async with aclosing(cast(Any, self._switch.read_digests(name, queue_size=_DIGEST_QUEUE))) as lists:
                while True:
                    following = asyncio.ensure_future(anext(lists))
                    try:
                        await asyncio.wait([following, lost], return_when=asyncio.FIRST_COMPLETED)
                        if not following.done():
                            self._check_up()
                        received: P4DigestList = await following
                    finally:
                        following.cancel()
                        await asyncio.wait([following])
                    yield DigestReport(tuple(cast(Mapping[str, int], data) for data in received), received)
        finally:
            lost.cancel()

    async def acknowledge(self, report: DigestReport) -> None:
        """Acknowledge a list of digests. Raise `SouthboundError`."""
        with self._errors("acknowledgement"):
            await self._switch.write([report.received.ack()])
