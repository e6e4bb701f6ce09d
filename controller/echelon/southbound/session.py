"""A session with one switch over P4Runtime: arbitration and pipeline by finsy, entries in bulk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
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
from finsy.p4client import P4Client
from finsy.proto import p4i, p4r
from google.protobuf import text_format  # type: ignore[import-untyped]

from echelon.lowering.intent import DigestSetting, TableEntry
from echelon.p4program import P4Program
from echelon.southbound.arbitration import FixedArbitrator
from echelon.southbound.channel import BulkChannel, CallError
from echelon.southbound.codec import OWNER, EncodedEntry, codec_of, encode_digest
from echelon.southbound.deadlines import deadline, within
from echelon.southbound.errors import NotPrimaryError, SouthboundError
from echelon.southbound.intents import DigestReport, IntentSession, Tables
from echelon.southbound.outcome import Applied, Comparison, RefusedEntry
from echelon.southbound.queues import QueueDriver
from echelon.southbound.wire import UpdateKind, read_request, table_entries, write_header, write_request
from echelon.southbound.writer import Found, LookUp, Send

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

_ANSWER_S = 10.0
"""How long to wait for a call of finsy's that has no deadline of its own."""

_ENTRIES_AT_ONCE = 1000
"""Number of entries to read before other tasks get the event loop."""
_WITH_COUNTER = b"\x3a\x00"
"""Field 7 of TableEntry, empty: in a query it asks for the direct counter."""

# Errors are raised here; finsy would print them as well where logging is not configured.
logging.getLogger("finsy").addHandler(logging.NullHandler())


_UNREADABLE = (ValueError, TypeError, AttributeError)
"""What follows from an answer that is no message, or not of the kind that was asked for: protobuf raises ValueError;
gRPC hands on None."""


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


class _Untimed:
    """finsy's stub of P4Runtime, without the deadline of 10 s that finsy gives every unary call."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._stub, name)
        return lambda *request, timeout=None, **options: call(*request, **options)


class _Client(P4Client):
    """finsy's client, whose calls have deadlines only where others' have."""

    async def open(self, **options: Any) -> None:
        await super().open(**options)
        if within(_ANSWER_S) is None:
            self._stub = cast(Any, _Untimed(self._stub))


class _ProgrammedSwitch(Switch):  # type: ignore[misc]  # final, but finsy tells the reason only to its log
    """finsy's switch, which keeps the reason why the switch does not take the program."""

    refusal: Exception | None = None
    """The answer of the switch if it did not take the program, or the reason why the program could not be sent."""

    def _switch_start(self) -> None:
        self._p4client = _Client(self.address, self.options.channel_credentials, wait_for_ready=False)
        super()._switch_start()  # type: ignore[no-untyped-call]

    async def _ready(self) -> None:
        try:
            await super()._ready()  # type: ignore[no-untyped-call]
        except Exception as error:  # any other way out of a task of finsy's would cancel ours
            self.refusal = error
            self._channel_ready()  # type: ignore[no-untyped-call]


class SwitchSession(IntentSession):
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
        self._lost = asyncio.Event()
        self._deposed: NotPrimaryError | None = None
        self._closing: asyncio.Future[None] | None = None
        self.codec = codec_of(self._switch.p4info, owner)
        super().__init__(name, self.codec, queues)

    async def __aenter__(self) -> Self:
        """Open the session.

        Raise `SouthboundError` for a switch that cannot be reached or refuses the program, and `NotPrimaryError` for
        one that obeys another controller, or if the given election id is in use.
        """
        try:
            await self._switch.__aenter__()
        except (P4ClientError, GNMIClientError) as error:
            raise self._no_session(error) from None
        except _UNREADABLE as error:
            raise self._unreadable("opening a session", error) from error
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
            await asyncio.wait_for(ready.wait(), within(_TAKEOVER_S))

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

    async def _open_queues(self, driver: QueueDriver) -> None:
        await driver.open(self._switch.gnmi_client)

    @property
    def schema(self) -> P4Schema:
        """The P4Info of the program, as finsy reads it."""
        return self._switch.p4info

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
        except _UNREADABLE as error:
            raise self._unreadable(what, error) from error

    def _unreadable(self, what: str, error: Exception) -> SouthboundError:
        return SouthboundError(
            f"switch {self.name} at {self._switch.address}: {what}: an answer cannot be read "
            f"({type(error).__name__}: {error}); check what is behind that address"
        )

    @asynccontextmanager
    async def _calling(self, what: str) -> AsyncIterator[None]:
        with self._errors(what):
            async with deadline(_ANSWER_S, self.name, what):
                yield

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

    async def _read_all(self, expected: Mapping[bytes, EncodedEntry]) -> Tables:
        """Return every entry of every table except constant and default ones; cheapest for those that are as
        `expected`."""
        tables = Tables()
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

    async def _write(self, send: Send) -> None:
        self._check_up()
        assert self._bulk is not None
        header = write_header(self._switch.device_id, self._switch.election_id, self._switch.role_name)
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

    async def _read_digests(self, settings: Sequence[DigestSetting]) -> dict[str, DigestSetting]:
        read: dict[str, DigestSetting] = {}
        for setting in settings:
            async with self._calling("reading digests"):
                try:
                    # finsy declares the overloads of this generator as coroutines, which mypy takes literally.
                    async for entry in cast(AsyncIterator[Any], self._switch.read(P4DigestEntry(setting.name))):
                        read[entry.digest_id] = DigestSetting(
                            entry.digest_id, entry.max_list_size, entry.max_timeout_ns, entry.ack_timeout_ns
                        )
                except P4ClientError as error:
                    # PI answers so for a digest that was not configured; the specification says to answer with nothing.
                    if "not configured" not in error.message:
                        raise
        return read

    async def _write_digests(self, settings: Sequence[DigestSetting]) -> int:
        changed = [setting for setting in settings if self._digests.get(setting.name) != setting]
        for setting in changed:
            write = self._switch.modify if setting.name in self._digests else self._switch.insert
            async with self._calling(f"digest {setting.name}"):
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
        async with self._calling("acknowledgement of digests"):
            await self._switch.write([cast(P4DigestList, report.received).ack()])
