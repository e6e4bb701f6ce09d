"""One switch, as the control plane sees it: arbitration and pipeline by finsy, intents by reconciliation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

from finsy import (
    GNMIClient,
    P4ClientError,
    P4CounterData,
    P4DigestEntry,
    P4DigestList,
    P4Schema,
    P4TableEntry,
    Switch,
    SwitchEvent,
    SwitchOptions,
)
from finsy.gnmiclient import GNMIClientError
from finsy.proto import p4r

from echelon.lowering.intent import DigestSetting, Intent, QueueSetting, TableEntry
from echelon.p4program import P4Program
from echelon.southbound.codec import EntryKey, by_key, encode_digest, encode_entry, entry_key
from echelon.southbound.queues import read_queues, write_queues
from echelon.southbound.reconcile import Difference, difference

_DIGEST_QUEUE = 1 << 16
_TAKEOVER_S = 5.0
"""So long may a switch take to notice that the controller before this one has gone."""

# What goes wrong is raised here; finsy would print it as well where logging is not configured.
logging.getLogger("finsy").addHandler(logging.NullHandler())


class SouthboundError(Exception):
    """A switch cannot be reached or refuses what it is told; the text names switch, table, match and reason."""


@dataclass(frozen=True, slots=True)
class DigestReport:
    """One list of digests: the fields of each, by name, and what the switch needs to hear that it was dealt with."""

    fields: tuple[Mapping[str, int], ...]
    received: P4DigestList


class SwitchSession:
    """A primary controller's session with one switch. An async context manager: connected inside, closed after.

    `address` is host:port of the switch's P4Runtime and gNMI services. Calls must not overlap.
    """

    def __init__(self, name: str, address: str, device_id: int, program: P4Program) -> None:
        self.name = name
        self._switch = Switch(
            name, address, SwitchOptions(p4info=program.p4info, p4blob=program.binary, device_id=device_id)
        )
        self._lost = asyncio.Event()
        self._encoded: dict[TableEntry, p4r.TableEntry] = {}
        self._held: dict[EntryKey, p4r.TableEntry] | None = None
        """In the order in which they may have been written; None while unknown."""
        self._queues: dict[tuple[int, int], QueueSetting] = {}
        self._digests: dict[str, DigestSetting] = {}

    async def __aenter__(self) -> Self:
        """Raises `SouthboundError` for a switch that cannot be reached, refuses the program, or obeys someone else."""
        try:
            await self._switch.__aenter__()
        except (P4ClientError, GNMIClientError) as error:
            raise SouthboundError(
                f"switch {self.name}: no P4Runtime session at {self._switch.address}: {error.message}; "
                "check address, device id and election"
            ) from None
        except asyncio.CancelledError:
            # Cancelled not by whoever waits for this, but by finsy: pushing the pipeline failed, in a task of its own.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise SouthboundError(
                f"switch {self.name} at {self._switch.address} refuses the P4 program; "
                "is it built for this kind of switch? The log of finsy has the reason"
            ) from None
        self._switch.ee.once(SwitchEvent.CHANNEL_DOWN, lambda _switch: self._lost.set())
        if not self._switch.is_primary:
            await self._take_over()
        return self

    async def _take_over(self) -> None:
        ready = asyncio.Event()
        self._switch.ee.once(SwitchEvent.CHANNEL_READY, lambda _switch: ready.set())
        with suppress(TimeoutError):
            await asyncio.wait_for(ready.wait(), _TAKEOVER_S)
        if not self._switch.is_primary:
            primary = self._switch.primary_id
            await self._switch.__aexit__(None, None, None)
            raise SouthboundError(
                f"switch {self.name}: another controller is primary (election id {primary}); stop that one first"
            )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._switch.__aexit__(kind, error, traceback)

    @property
    def entries(self) -> int:
        """Table entries on the switch, by the last `reconcile` and what was written since."""
        return len(self._held or ())

    @property
    def _schema(self) -> P4Schema:
        return self._switch.p4info

    @property
    def _gnmi(self) -> GNMIClient:
        client = self._switch.gnmi_client
        if client is None:
            raise SouthboundError(f"switch {self.name}: no gNMI service, which queues are configured by")
        return client

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Whatever goes wrong between here and the switch becomes a `SouthboundError`."""
        self._check_up()
        try:
            yield
        except (P4ClientError, GNMIClientError) as error:
            raise SouthboundError(f"switch {self.name}: {what} refused: {error.message}") from None

    def _check_up(self) -> None:
        if not self._switch.is_up:
            raise SouthboundError(f"switch {self.name}: the session at {self._switch.address} is closed or broken")

    def _encode(self, entries: Iterable[TableEntry]) -> dict[EntryKey, p4r.TableEntry]:
        out: dict[EntryKey, p4r.TableEntry] = {}
        for entry in entries:
            message = self._encoded.get(entry)
            if message is None:
                try:
                    message = self._encoded[entry] = encode_entry(entry, self._schema)
                except ValueError as error:
                    raise SouthboundError(f"switch {self.name}: {error}") from None
            if out.setdefault(entry_key(message), message) is not message:
                raise SouthboundError(f"switch {self.name}: {self._describe(message)}: wanted twice")
        return out

    async def read_entries(self) -> dict[EntryKey, p4r.TableEntry]:
        """Every entry of every table but constant and default ones, in an order in which they could be written."""
        with self._errors("reading tables"):
            read = [entry async for entry in self._read([P4TableEntry()])]
        entries = [
            entry.encode_entry(self._schema) for entry in read if not entry.is_const and not entry.is_default_action
        ]
        # P4Info lists tables as packets meet them: what is looked up last comes first.
        place = {table.id: -index for index, table in enumerate(self._schema.tables)}
        return by_key(sorted(entries, key=lambda entry: place[entry.table_id]))

    def _read(self, requests: Sequence[P4TableEntry | P4DigestEntry]) -> AsyncIterator[Any]:
        # finsy's overloads of this generator are declared as coroutines, which a type checker takes at their word.
        return cast(AsyncIterator[Any], self._switch.read(requests))

    async def reconcile(self, intent: Intent) -> Difference:
        """Read what the switch holds, write the difference. Raises `SouthboundError`."""
        self._held = None
        held = await self.read_entries()
        with self._errors("reading queues"):
            self._queues = await read_queues(self._gnmi) if intent.queues else {}
        self._digests = await self._read_digests(intent.digests)
        self._held = held
        return await self.update(intent)

    async def update(self, intent: Intent) -> Difference:
        """Write what differs from the last `reconcile` or `update`, without reading. Raises `SouthboundError`.

        Where nothing is known of what the switch holds (at first, and after an error), this is `reconcile`.
        """
        if self._held is None:
            return await self.reconcile(intent)
        held = self._held
        change = difference(held, self._encode(intent.entries))
        self._held = None
        # Queues before entries: a packet must not be sent to a queue that is not yet what its class expects.
        await self._write_queues(intent.queues)
        await self._write_digests(intent.digests)
        for batch in change.batches():
            await self._write(batch)
        for entry in (*change.inserts, *change.modifies):
            held[entry_key(entry)] = entry
        for entry in change.deletes:
            del held[entry_key(entry)]
        self._held = held
        return change

    async def _write(self, updates: Sequence[p4r.Update]) -> None:
        self._check_up()
        try:
            await self._switch.write(updates)
        except P4ClientError as error:
            raise SouthboundError(f"switch {self.name}: {self._explain(error, updates)}") from None

    def _explain(self, error: P4ClientError, updates: Sequence[p4r.Update]) -> str:
        if not error.details:
            return f"write refused: {error.message}"
        index, detail = next(iter(error.details.items()))
        more = f" (and {len(error.details) - 1} more)" if len(error.details) > 1 else ""
        where = self._describe(updates[index].entity.table_entry)
        return f"{where}: {detail.message} [{detail.canonical_code.name}]{more}"

    def _describe(self, message: p4r.TableEntry) -> str:
        entry = P4TableEntry.decode_entry(message, self._schema)
        match = ", ".join(f"{name}={value}" for name, value in (entry.match or {}).items())
        return f"table {entry.table_id}, {match or 'any packet'}"

    async def _write_queues(self, settings: Sequence[QueueSetting]) -> None:
        changed = [s for s in settings if self._queues.get((s.port, s.queue)) != s]
        if not changed:
            return
        with self._errors("queue configuration"):
            await write_queues(self._gnmi, changed)
        self._queues.update({(s.port, s.queue): s for s in changed})

    async def _read_digests(self, settings: Sequence[DigestSetting]) -> dict[str, DigestSetting]:
        read: list[P4DigestEntry] = []
        for setting in settings:
            with self._errors("reading digests"):
                try:
                    read += [entry async for entry in self._read([P4DigestEntry(setting.name)])]
                except P4ClientError as error:
                    # PI answers so for a digest that was not configured; the specification, with nothing.
                    if "not configured" not in error.message:
                        raise
        return {
            entry.digest_id: DigestSetting(
                entry.digest_id, entry.max_list_size, entry.max_timeout_ns, entry.ack_timeout_ns
            )
            for entry in read
        }

    async def _write_digests(self, settings: Sequence[DigestSetting]) -> None:
        for setting in settings:
            before = self._digests.get(setting.name)
            if before == setting:
                continue
            write = self._switch.insert if before is None else self._switch.modify
            with self._errors(f"digest {setting.name}"):
                await write([encode_digest(setting, self._schema)])
            self._digests[setting.name] = setting

    async def bytes_seen(self, entries: Iterable[TableEntry]) -> dict[TableEntry, int]:
        """Direct byte counters of `entries`, in one read; 0 for what the switch does not hold."""
        wanted = {key: entry for entry in entries for key in self._encode([entry])}
        out = dict.fromkeys(wanted.values(), 0)
        requests = []
        for entry in out:
            request = P4TableEntry.decode_entry(self._encoded[entry], self._schema)
            request.action = None
            request.counter_data = P4CounterData()
            requests.append(request)
        with self._errors("reading counters"):
            async for reply in self._read(requests):
                counted = reply.counter_data
                if counted is not None:
                    out[wanted[entry_key(reply.encode_entry(self._schema))]] = counted.byte_count
        return out

    async def digests(self, name: str) -> AsyncIterator[DigestReport]:
        """Digest lists as the switch sends them, oldest first. Raises `SouthboundError` when the session ends."""
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
        """Tell the switch that a list was dealt with. Raises `SouthboundError`."""
        with self._errors("acknowledgement"):
            await self._switch.write([report.received.ack()])
