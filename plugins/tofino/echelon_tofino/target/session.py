"""A session with a Tofino over BF Runtime.

A client subscribes, loads the program if the switch runs another one, and binds to it. A program
has one bound client at a time, and the first one keeps it: unlike P4Runtime, BF Runtime has no
election ids, so a new leader gets the switch only when the stream of the one before has ended.
Entries carry no mark of their owner either: all entries of the program's tables are this
controller's.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc  # type: ignore[import-untyped]
from finsy import GRPCCredentialsTLS, GRPCStatusCode

from echelon.model.p4program import P4Program
from echelon.switches.lowering.intent import DigestSetting, MulticastGroup, TableEntry
from echelon.switches.southbound.channel import CallError, Connect
from echelon.switches.southbound.codec import OWNER
from echelon.switches.southbound.deadlines import within
from echelon.switches.southbound.election import term_of
from echelon.switches.southbound.encoding import EncodedEntry, UpdateKind
from echelon.switches.southbound.errors import NotPrimaryError, SouthboundError
from echelon.switches.southbound.queues import QueueDriver
from echelon.switches.southbound.session import DigestReport, IntentSession, Tables
from echelon.switches.southbound.writer import HeldEntry, LookUp, Send
from echelon_tofino.bfrt_proto import bfruntime_pb2 as bfrt
from echelon_tofino.target.channel import BfrtChannel
from echelon_tofino.target.codec import BfrtCodec
from echelon_tofino.target.flow_events import TnaFlowEvents
from echelon_tofino.target.info import COUNTED_BYTES, Digest, parse
from echelon_tofino.target.multicast import MulticastTables
from echelon_tofino.target.queues import BfrtQueues

__all__ = ["BfrtSession"]

_SUBSCRIBE_S = 10.0
"""The time within which a subscription has to be answered."""
_LOAD_S = 60.0
_LARGEST_CLIENT_ID = (1 << 31) - 1
_ENTRIES_AT_ONCE = 1000
_KINDS = {
    UpdateKind.INSERT: bfrt.Update.INSERT,
    UpdateKind.MODIFY: bfrt.Update.MODIFY,
    UpdateKind.DELETE: bfrt.Update.DELETE,
}
_Set = bfrt.SetForwardingPipelineConfigRequest


class BfrtSession(IntentSession):
    """A session with one switch, as the client that is bound to its program.

    Args:
        name: of the switch, for messages.
        address: host:port of its BF Runtime service.
        device_id: not used: BF Runtime counts the chips of one switch, see `device`.
        program: loaded if the switch runs another one. Its `bf-rt.json` is beside its P4Info.
        election_id: of the leader; the client id follows from it.
        credentials: of TLS; None is plain text.
        queues: the driver of the switch's queues.
        device: the number of the chip.
        binary: what the switch executes, if not the program's assembly. Its `context.json`, if
            there is one, is beside it.
        connect: opens the connection; None: over sockets.
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
        device: int = 0,
        binary: Path | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._connect = connect
        self._address = address
        self._program = program if binary is None else replace(program, binary=binary)
        described = program.p4info.with_name("bf-rt.json")
        self._described = described.read_bytes()
        self._info = parse(self._described, str(described))
        self.codec = BfrtCodec(self._info)
        super().__init__(name, self.codec, queues)
        self._credentials = credentials
        # Terms of leaders that follow one another differ in their lower bits: they count
        # microseconds.
        if election_id is None:
            number = random.getrandbits(31)
        else:
            number = term_of(election_id) or election_id
        self._client_id = max(1, number & _LARGEST_CLIENT_ID)
        self._device = device
        self._calls: BfrtChannel | None = None
        self._stream: Any = None
        self._reader: asyncio.Task[None] | None = None
        self._multicast: MulticastTables | None = None
        self._answers: asyncio.Queue[bfrt.StreamMessageResponse] = asyncio.Queue()
        self._reports: dict[str, asyncio.Queue[DigestReport]] = defaultdict(asyncio.Queue)
        self._lost = asyncio.Event()
        self._why = ""

    async def __aenter__(self) -> Self:
        """Open the session.

        Raise `SouthboundError` for a switch that cannot be reached or refuses the program, and
        `NotPrimaryError` if another client is bound to it.
        """
        self._calls = BfrtChannel(
            self._address, self._client_id, self._device, self._credentials, self._connect
        )
        try:
            await self._subscribe()
            await self._load()
            await self._bind()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        self._lost.set()
        if self._reader is not None:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader
            self._reader = None
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None
        if self._calls is not None:
            await self._calls.close()

    # -- stream and program ------------------------------------------------------------------------

    async def _subscribe(self) -> None:
        assert self._calls is not None
        request = bfrt.StreamMessageRequest(client_id=self._client_id)
        request.subscribe.device_id = self._device
        # Servers of old SDEs let only the master load programs.
        request.subscribe.is_master = True
        request.subscribe.notifications.enable_learn_notifications = True
        self._stream = self._calls.stream()
        where = f"switch {self.name}: no BF Runtime session at {self._address}"
        try:
            async with asyncio.timeout(within(_SUBSCRIBE_S)):
                await self._stream.write(request)
                answer = await self._stream.read()
        except grpc.aio.AioRpcError as error:
            raise SouthboundError(
                f"{where}: {error.details()}; check address, TLS files and chip number"
            ) from None
        except TimeoutError:
            raise SouthboundError(
                f"{where}: no answer within {_SUBSCRIBE_S:g} s; it may be stuck"
            ) from None
        if answer is grpc.aio.EOF or answer.WhichOneof("update") != "subscribe":
            code, details = await self._ended()
            raise SouthboundError(f"{where}: {details or 'the switch ended the stream'} [{code}]")
        if answer.subscribe.status.code:
            reason = answer.subscribe.status.message or "the subscription is refused"
            raise SouthboundError(f"{where}: {reason}")
        self._reader = asyncio.create_task(self._follow(), name=f"switch {self.name}: stream")

    async def _ended(self) -> tuple[str, str]:
        code = await self._stream.code()
        details = await self._stream.details()
        return code.name, details or ""

    async def _follow(self) -> None:
        """Take messages from the stream until it ends."""
        digests = {digest.id: (alias, digest) for alias, digest in self._info.digests.items()}
        events = TnaFlowEvents()
        try:
            while True:
                message = await self._stream.read()
                if message is grpc.aio.EOF:
                    break
                if message.WhichOneof("update") != "digest":
                    self._answers.put_nowait(message)
                elif message.digest.digest_id in digests:
                    alias, digest = digests[message.digest.digest_id]
                    self._reports[alias].put_nowait(_report(digest, message.digest, events))
            code, details = await self._ended()
            self._why = f"{details or 'the switch ended the stream'} [{code}]"
        except grpc.aio.AioRpcError as error:
            self._why = f"{error.details()} [{error.code().name}]"
        finally:
            self._lost.set()

    async def _load(self) -> None:
        """Load the program, unless the switch runs it."""
        assert self._calls is not None
        wanted = self._config()
        with self._errors("program"):
            held = await self._calls.config()
            if any(_same(config, wanted) for config in held.config):
                return
            await self._calls.configure(_Set.VERIFY_AND_WARM_INIT_BEGIN_AND_END, [wanted])
        with self._loading():
            async with asyncio.timeout(within(_LOAD_S)):
                kind = None
                while kind != bfrt.WARM_INIT_FINISHED:
                    message = await self._answers.get()
                    answer = message.set_forwarding_pipeline_config_response
                    kind = answer.set_forwarding_pipeline_config_response_type

    @contextmanager
    def _loading(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise SouthboundError(
                f"switch {self.name} at {self._address} has not loaded the P4 program within"
                f" {_LOAD_S:g} s"
            ) from None

    def _config(self) -> bfrt.ForwardingPipelineConfig:
        config = bfrt.ForwardingPipelineConfig(
            p4_name=self._program.name,
            bfruntime_info=self._described,
        )
        context = self._program.binary.with_name("context.json")
        config.profiles.add(
            profile_name="pipe",
            context=_content(context),
            binary=_content(self._program.binary),
            pipe_scope=range(4),
        )
        return config

    async def _bind(self) -> None:
        assert self._calls is not None
        try:
            config = bfrt.ForwardingPipelineConfig(p4_name=self._program.name)
            await self._calls.configure(_Set.BIND, [config])
        except CallError as error:
            if error.status.code == GRPCStatusCode.ALREADY_EXISTS:
                raise NotPrimaryError(
                    f"switch {self.name}: another controller is bound to its program:"
                    f" {error.status.message}; stop that one first",
                    0,
                ) from None
            raise self._failed("binding to the program", error) from None

    # -- the channel -------------------------------------------------------------------------------

    async def wait_lost(self) -> SouthboundError:
        await self._lost.wait()
        return self._why_lost()

    def _why_lost(self) -> SouthboundError:
        reason = f": {self._why}" if self._why else ""
        return SouthboundError(
            f"switch {self.name}: the session at {self._address} is closed or broken{reason}"
        )

    async def ping(self, timeout_s: float) -> None:
        self._check_up()
        assert self._calls is not None
        try:
            async for _ in self._calls.read([], timeout_s=timeout_s):
                pass
        except CallError as error:
            unanswered = (GRPCStatusCode.UNAVAILABLE, GRPCStatusCode.DEADLINE_EXCEEDED)
            if error.status.code in unanswered:
                raise SouthboundError(
                    f"switch {self.name}: no answer at {self._address} within {timeout_s:g} s:"
                    f" {error}"
                ) from None
            # A refusal is an answer too.

    @contextmanager
    def _errors(self, purpose: str) -> Iterator[None]:
        self._check_up()
        try:
            yield
        except CallError as error:
            raise self._failed(purpose, error) from None

    def _failed(self, purpose: str, error: CallError) -> SouthboundError:
        code = GRPCStatusCode(error.status.code).name
        return SouthboundError(
            f"switch {self.name}: {purpose} refused: {error.status.message} [{code}]"
        )

    def _check_up(self) -> None:
        if self._lost.is_set():
            raise self._why_lost()

    # -- entries -----------------------------------------------------------------------------------

    async def _read_all(self, expected: Mapping[bytes, EncodedEntry]) -> Tables:
        tables = Tables()
        with self._errors("reading tables"):
            async for message in self._read(self.codec.queries()):
                if not message.is_default_entry:
                    entry = self.codec.of_message(message)
                    tables.ours[entry.key] = entry
        return tables

    async def _read(self, queries: list[bfrt.Entity]) -> AsyncIterator[bfrt.TableEntry]:
        """Yield the entries that queries select.

        Raise `CallError`; entries that are not there are none.
        """
        assert self._calls is not None
        try:
            async for answer in self._calls.read(queries):
                for number, entity in enumerate(answer.entities, start=1):
                    yield entity.table_entry
                    if not number % _ENTRIES_AT_ONCE:
                        await asyncio.sleep(0)
        except CallError as error:
            fine = (GRPCStatusCode.OK, GRPCStatusCode.NOT_FOUND)
            if not error.updates or any(status.code not in fine for status in error.updates):
                raise

    async def _write(self, send: Send) -> None:
        self._check_up()
        assert self._calls is not None
        updates = []
        for entry in send.entries:
            update = bfrt.Update(type=_KINDS[send.kind])
            raw = entry.key if send.kind is UpdateKind.DELETE else entry.wire
            update.entity.table_entry.MergeFromString(raw)
            updates.append(update)
        await self._calls.write(updates)

    async def _look_up(self, lookup: LookUp) -> Mapping[bytes, HeldEntry]:
        held = {}
        with self._errors("reading tables"):
            async for message in self._read([_query(entry.key) for entry in lookup.entries]):
                entry = self.codec.of_message(message)
                held[entry.key] = HeldEntry(entry, ours=True)
        return held

    async def bytes_seen(self, entries: Iterable[TableEntry]) -> dict[TableEntry, int]:
        wanted = {self.codec.encode(entry).key: entry for entry in entries}
        out = dict.fromkeys(wanted.values(), 0)
        counters = {}
        for table in self._info.tables.values():
            if COUNTED_BYTES in table.data:
                counters[table.id] = table.data[COUNTED_BYTES].id
        with self._errors("reading counters"):
            async for message in self._read([_query(key) for key in wanted]):
                entry = wanted.get(self.codec.of_message(message).key)
                if entry is None:
                    continue
                counter = counters.get(message.table_id)
                for part in message.data.fields:
                    if part.field_id == counter:
                        out[entry] = int.from_bytes(part.stream, "big")
        return out

    # -- queues and digests ------------------------------------------------------------------------

    async def _open_queues(self, driver: QueueDriver) -> None:
        if not isinstance(driver, BfrtQueues):
            raise SouthboundError(
                f"switch {self.name}: its queue driver cannot use BF Runtime (give it that of its"
                " target)"
            )
        assert self._calls is not None
        await driver.open_over(self._calls)

    async def _read_digests(self, settings: Sequence[DigestSetting]) -> dict[str, DigestSetting]:
        """Return all settings.

        A Tofino sends every digest at once, and nothing of it can be set.
        """
        for setting in settings:
            if setting.name not in self._info.digests:
                names = ", ".join(self._info.digests) or "none"
                raise SouthboundError(
                    f"switch {self.name}: the program has no digest {setting.name}; there are:"
                    f" {names}"
                )
        return {setting.name: setting for setting in settings}

    async def _write_digests(self, settings: Sequence[DigestSetting]) -> int:
        return 0

    async def _read_groups(self) -> dict[int, MulticastGroup]:
        assert self._calls is not None
        with self._errors("reading multicast groups"):
            try:
                config = await self._calls.config()
                self._multicast = MulticastTables(config.non_p4_config.bfruntime_info)
            except ValueError as error:
                raise SouthboundError(f"switch {self.name}: {error}") from None
            entries = [entry async for entry in self._read(self._multicast.queries())]
            return self._multicast.groups(entries)

    async def _write_group(self, kind: UpdateKind, group: MulticastGroup) -> None:
        assert self._calls is not None
        assert self._multicast is not None
        with self._errors(f"multicast group {group.number}"):
            held = self._groups.get(group.number)
            await self._calls.write(self._multicast.updates(kind, group, held))

    async def digests(self, name: str) -> AsyncIterator[DigestReport]:
        self._check_up()
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            while True:
                following = asyncio.ensure_future(self._reports[name].get())
                try:
                    await asyncio.wait([following, lost], return_when=asyncio.FIRST_COMPLETED)
                    if not following.done():
                        self._check_up()
                    report = await following
                finally:
                    following.cancel()
                yield report
        finally:
            lost.cancel()

    async def acknowledge(self, report: DigestReport) -> None:
        """Do nothing: the switch's own server acknowledges lists of digests."""


def _report(
    digest: Digest,
    message: bfrt.DigestList,
    events: TnaFlowEvents,
) -> DigestReport:
    names = {field.id: name for name, field in digest.fields.items()}
    now_s = time.monotonic()
    reports = []
    for data in message.data:
        fields = {}
        for part in data.fields:
            if part.field_id in names:
                fields[names[part.field_id]] = int.from_bytes(part.stream, "big")
        reports.append(events.report(fields, now_s))
    return DigestReport(tuple(reports), message)


def _query(key: bytes) -> bfrt.Entity:
    return bfrt.Entity(table_entry=bfrt.TableEntry.FromString(key))


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _same(held: bfrt.ForwardingPipelineConfig, wanted: bfrt.ForwardingPipelineConfig) -> bool:
    """Return whether a switch runs the program.

    A switch that does not hand out binaries is judged by the tables.
    """

    def digest(config: bfrt.ForwardingPipelineConfig) -> tuple[str, bytes]:
        return config.p4_name, hashlib.sha256(config.bfruntime_info).digest()

    if digest(held) != digest(wanted):
        return False
    binary = held.profiles[0].binary if held.profiles else b""
    return not binary or binary == wanted.profiles[0].binary
