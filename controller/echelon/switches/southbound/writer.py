"""Carry out a difference, batch by batch: a state machine without I/O, and the shell that feeds it.

A switch carries out what it can of a batch and says of every other update why not. Where it helps,
such an update is written again in another way; the rest is reported, and does not stop what remains
from being written.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from finsy import GRPCStatusCode

from echelon.switches.southbound.channel import CallError, UpdateStatus
from echelon.switches.southbound.encoding import EncodedEntry, UpdateKind, update_size
from echelon.switches.southbound.reconcile import Chunk, staged

BATCH_UPDATES = 1000
"""Maximum number of updates in one Write.

Measured: 100 reach half of the achievable rate, 1000 all of it.
"""
BATCH_BYTES = 3 << 20
"""Maximum number of bytes in one Write, below the 4 MiB that gRPC servers accept by default."""
WINDOW = 4
"""Number of Writes under way at a time where their order is free."""

_TURNS = 4
"""Number of turns to yield the event loop before more is encoded.

A request needs three to leave, and answers come in.
"""
_LARGEST_FRAME = 32
"""Maximum number of bytes that a Write adds around an entry."""
_MOST_TRIES = 3
_POSTPONED = -1
"""The phase of postponed entries: none of a difference."""

_OF_THE_CONTENT = {
    GRPCStatusCode.INVALID_ARGUMENT,
    GRPCStatusCode.UNKNOWN,
    GRPCStatusCode.INTERNAL,
    GRPCStatusCode.RESOURCE_EXHAUSTED,
    GRPCStatusCode.OUT_OF_RANGE,
    GRPCStatusCode.ALREADY_EXISTS,
    GRPCStatusCode.ABORTED,
    GRPCStatusCode.DATA_LOSS,
    GRPCStatusCode.UNIMPLEMENTED,
}
"""Statuses of a whole Write that may be due to its size, or to one of its updates."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An update that the switch does not carry out, and why."""

    kind: UpdateKind
    entry: EncodedEntry
    status: UpdateStatus


@dataclass(frozen=True, slots=True)
class Send:
    """Write these entries in one request."""

    kind: UpdateKind
    entries: Sequence[EncodedEntry]
    tries: int = 0
    """Number of times that they were sent before, in this way or another."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """Read the entries of these keys: each was to be inserted, and already exists."""

    entries: Sequence[EncodedEntry]
    tries: int


@dataclass(frozen=True, slots=True)
class HeldEntry:
    """An entry that a switch holds."""

    entry: EncodedEntry
    ours: bool


class Writing:
    """The writing of a difference to a switch. Instructions out (`take`), outcomes in; no I/O.

    `held` (our entries, by key) follows what the switch says, outcome by outcome. An outcome
    belongs to an instruction that was taken; instructions that are out together may end in any
    order.

    Args:
        chunks: what to write, in its order; taken when it can be sent, or ahead of that by
            `prepare`.
        held: our entries on the switch, by key.
        deletes: whether there may be deletes among `chunks`: what finds no room is then kept until
            they are done.
    """

    def __init__(
        self,
        chunks: Iterable[Chunk],
        held: dict[bytes, EncodedEntry],
        *,
        deletes: bool,
        batch_updates: int = BATCH_UPDATES,
        batch_bytes: int = BATCH_BYTES,
        window: int = WINDOW,
    ) -> None:
        self._chunks = iter(chunks)
        self._held = held
        self._deletes = deletes
        self._batch_updates = batch_updates
        self._batch_bytes = batch_bytes
        self._window = window
        self._stage: object = None
        self._ready: deque[Send | LookUp] = deque()
        """The updates that the present stage still has to send."""
        self._ahead: Chunk | None = None
        """The chunk taken from `chunks`; of the present stage or another."""
        self._under_way = 0
        """The number of instructions that were taken and have no outcome yet."""
        self._postponed: list[EncodedEntry] = []
        """Entries that found no room and wait until the deletes are done."""
        self.refused: list[Refusal] = []
        self.done: Counter[UpdateKind] = Counter()
        """Numbers of entries inserted, modified and deleted."""

    def take(self) -> Send | LookUp | None:
        """Return what may be sent now, beside what is under way; None if nothing may.

        With nothing under way, None is the end.
        """
        if self._under_way >= self._window:
            return None
        if not self._ready:
            self._advance()
        if not self._ready:
            return None
        self._under_way += 1
        return self._ready.popleft()

    def prepare(self) -> bool:
        """Take the next chunk while the switch is at work; return whether there was one."""
        if self._ahead is not None:
            return False
        self._ahead = next(self._chunks, None)
        return self._ahead is not None

    def _advance(self) -> None:
        """Advance to the next chunk, if it may be written concurrently with those under way."""
        self.prepare()
        if self._ahead is None and not self._under_way and self._postponed:
            # The deletes are done, so there may be room.
            self._deletes = False
            self._chunks = staged(_POSTPONED, UpdateKind.INSERT, self._postponed)
            self._postponed = []
            self.prepare()
        chunk = self._ahead
        if chunk is None:
            return
        if chunk.stage == self._stage or not self._under_way:
            self._stage = chunk.stage
            self._ahead = None
            for batch in self._batches(chunk.entries):
                self._ready.append(Send(chunk.kind, batch))

    def _batches(self, entries: Sequence[EncodedEntry]) -> Iterator[Sequence[EncodedEntry]]:
        for start in range(0, len(entries), self._batch_updates):
            batch = entries[start : start + self._batch_updates]
            entry_bytes = sum(len(entry.wire) for entry in batch)
            most_bytes = entry_bytes + _LARGEST_FRAME * len(batch)
            if most_bytes <= self._batch_bytes:
                yield batch
            else:
                yield from self._smaller(batch)

    def _smaller(self, entries: Sequence[EncodedEntry]) -> Iterator[Sequence[EncodedEntry]]:
        batch: list[EncodedEntry] = []
        size = 0
        for entry in entries:
            entry_size = update_size(entry.wire)
            if batch and size + entry_size > self._batch_bytes:
                yield batch
                batch = []
                size = 0
            batch.append(entry)
            size += entry_size
        if batch:
            yield batch

    # -- outcomes ----------------------------------------------------------------------------------

    def succeeded(self, send: Send) -> None:
        """Record that the whole batch was carried out."""
        self._under_way -= 1
        self._carried_out(send.kind, send.entries)

    def failed(self, send: Send, status: UpdateStatus) -> None:
        """Record a failure that says nothing of single updates.

        Smaller batches may fare better, or show which update is at fault.
        """
        entries = send.entries
        if len(entries) == 1:
            self.failed_in_part(send, (status,))
            return
        self._under_way -= 1
        middle = len(entries) // 2
        second_half = Send(send.kind, entries[middle:], send.tries)
        first_half = Send(send.kind, entries[:middle], send.tries)
        self._ready.appendleft(second_half)
        self._ready.appendleft(first_half)

    def looked_up(self, lookup: LookUp, held: Mapping[bytes, HeldEntry]) -> None:
        """Record what the switch holds under those keys."""
        self._under_way -= 1
        missing: list[EncodedEntry] = []
        different: list[EncodedEntry] = []
        for entry in lookup.entries:
            held_entry = held.get(entry.key)
            if held_entry is None:
                missing.append(entry)
            elif not held_entry.ours:
                refusal = Refusal(UpdateKind.INSERT, entry, FOREIGN)
                self.refused.append(refusal)
            elif held_entry.entry.value == entry.value:
                self._carried_out(UpdateKind.INSERT, (entry,))
            else:
                different.append(entry)
        self._retry(UpdateKind.INSERT, missing, lookup.tries)
        self._retry(UpdateKind.MODIFY, different, lookup.tries)

    def failed_in_part(self, send: Send, statuses: Sequence[UpdateStatus]) -> None:
        """Record a status for each update."""
        self._under_way -= 1
        kind = send.kind
        tries = send.tries
        done: list[EncodedEntry] = []
        existing: list[EncodedEntry] = []
        missing: list[EncodedEntry] = []
        for entry, status in zip(send.entries, statuses, strict=True):
            match kind, status.code:
                case (_, GRPCStatusCode.OK) | (UpdateKind.DELETE, GRPCStatusCode.NOT_FOUND):
                    done.append(entry)
                case UpdateKind.INSERT, GRPCStatusCode.ALREADY_EXISTS:
                    existing.append(entry)
                case UpdateKind.MODIFY, GRPCStatusCode.NOT_FOUND:
                    self._held.pop(entry.key, None)
                    missing.append(entry)
                case (
                    UpdateKind.INSERT,
                    GRPCStatusCode.RESOURCE_EXHAUSTED | GRPCStatusCode.UNKNOWN,
                ) if self._deletes:
                    # BMv2 answers UNKNOWN for a full table.
                    self._postponed.append(entry)
                case _:
                    self.refused.append(Refusal(kind, entry, status))
        self._carried_out(kind, done)
        if existing:
            self._ready.appendleft(LookUp(existing, tries + 1))
        self._retry(UpdateKind.INSERT, missing, tries + 1)

    def _retry(
        self,
        kind: UpdateKind,
        entries: Sequence[EncodedEntry],
        tries: int,
    ) -> None:
        """Send entries once more within this stage, since what follows may depend on them.

        A switch that keeps contradicting itself is given up on.
        """
        if tries < _MOST_TRIES:
            for batch in self._batches(entries):
                self._ready.append(Send(kind, batch, tries))
        else:
            self.refused += [Refusal(kind, entry, _CONTRADICTION) for entry in entries]

    def _carried_out(self, kind: UpdateKind, entries: Sequence[EncodedEntry]) -> None:
        if kind is UpdateKind.DELETE:
            for entry in entries:
                self._held.pop(entry.key, None)
        else:
            self._held.update([(entry.key, entry) for entry in entries])
        self.done[kind] += len(entries)


FOREIGN = UpdateStatus(
    GRPCStatusCode.ALREADY_EXISTS,
    "a foreign entry has this key and is left alone; remove it, or use another key",
)
_CONTRADICTION = UpdateStatus(
    GRPCStatusCode.ABORTED,
    "the switch reports that the entry exists and that it does not;"
    " another client may be writing it",
)

Write = Callable[[Send], Awaitable[None]]
Read = Callable[[LookUp], Awaitable[Mapping[bytes, HeldEntry]]]


async def carry_out(
    writing: Writing,
    write: Write,
    read: Read,
) -> None:
    """Do what `writing` says until it is done.

    `write` and `read` raise `CallError`. An error that concerns no update (the switch is away, or
    obeys another controller) is raised again; what the switch holds is not known then. Nothing is
    under way afterwards, however this ends.
    """
    tasks: set[asyncio.Task[None]] = set()
    try:
        while True:
            instruction = writing.take()
            if instruction is not None:
                work = _do(instruction, writing, write, read)
                tasks.add(asyncio.ensure_future(work))
            elif not tasks:
                return
            # Prepare the next entries while the switch is at work.
            idle = instruction is None and not writing.prepare()
            done, tasks = await _ended(tasks, wait=idle)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ended(
    tasks: set[asyncio.Task[None]], *, wait: bool
) -> tuple[set[asyncio.Task[None]], set[asyncio.Task[None]]]:
    """Return the calls that have ended and those that have not.

    With `wait`, wait until one has ended.
    """
    if wait:
        return await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    done = {task for task in tasks if task.done()}
    return done, tasks - done


async def _do(
    instruction: Send | LookUp,
    writing: Writing,
    write: Write,
    read: Read,
) -> None:
    if isinstance(instruction, LookUp):
        writing.looked_up(instruction, await read(instruction))
        return
    try:
        await write(instruction)
    except CallError as error:
        if len(error.updates) == len(instruction.entries):
            writing.failed_in_part(instruction, error.updates)
        elif error.status.code in _OF_THE_CONTENT:
            writing.failed(instruction, error.status)
        else:
            raise
    else:
        writing.succeeded(instruction)
