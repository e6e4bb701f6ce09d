"""Carrying out a difference, batch by batch: a state machine without I/O, and the shell that feeds it.

A switch carries out what it can of a batch and says of every other update why not. Where it helps, such an update is
written again in another way; the rest is reported, and does not keep what remains from being written.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from finsy import GRPCStatusCode

from echelon.southbound.channel import CallError, UpdateStatus
from echelon.southbound.codec import EncodedEntry
from echelon.southbound.reconcile import Difference, Update, in_stages
from echelon.southbound.wire import Kind, update_size

BATCH_UPDATES = 1000
"""Updates of one Write: measured, half of the achievable rate needs 100, all of it 1000."""
BATCH_BYTES = 3 << 20
"""Bytes of one Write, below the 4 MiB that gRPC servers accept unless told otherwise."""
WINDOW = 4
"""Writes under way at a time, where their order is free."""

_MOST_TRIES = 3

_OF_THE_CONTENT = {
    GRPCStatusCode.INVALID_ARGUMENT,
    GRPCStatusCode.UNKNOWN,
    GRPCStatusCode.INTERNAL,
    GRPCStatusCode.RESOURCE_EXHAUSTED,
    GRPCStatusCode.OUT_OF_RANGE,
    GRPCStatusCode.ALREADY_EXISTS,
    GRPCStatusCode.ABORTED,
    GRPCStatusCode.DATA_LOSS,
}
"""Statuses of a whole Write that may be due to its size, or to one of its updates."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """As the state machine knows it."""

    update: Update
    status: UpdateStatus


@dataclass(frozen=True, slots=True)
class Send:
    """Write these updates in one request."""

    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class LookUp:
    """Read the entries of these keys: each was to be inserted, and there is one."""

    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """An entry that was looked up."""

    entry: EncodedEntry
    ours: bool


class Writing:
    """One difference on its way to a switch. Instructions out (`take`), outcomes in; no I/O.

    `held` (our entries, by key) follows what the switch says, outcome by outcome. An outcome belongs to an instruction
    that was taken; instructions that are out together may end in any order.
    """

    def __init__(
        self,
        change: Difference,
        held: dict[bytes, EncodedEntry],
        *,
        batch_updates: int = BATCH_UPDATES,
        batch_bytes: int = BATCH_BYTES,
        window: int = WINDOW,
    ) -> None:
        self._held = held
        self._batch_updates = batch_updates
        self._batch_bytes = batch_bytes
        self._window = window
        self._stages = deque(change.stages())
        self._deletes = bool(change.deletes)
        self._ready: deque[Send | LookUp] = deque()
        """What the present stage has left to send."""
        self._out = 0
        self._postponed: list[Update] = []
        """For want of room, until the deletes are done."""
        self.refused: list[Refusal] = []
        self.done: Counter[Kind] = Counter()
        """Entries inserted, modified and deleted."""

    def take(self) -> list[Send | LookUp]:
        """What may be sent now, beside what is under way. Nothing, with nothing under way: the end."""
        if not self._ready and not self._out:
            self._next_stage()
        taken: list[Send | LookUp] = []
        while self._ready and self._out < self._window:
            taken.append(self._ready.popleft())
            self._out += 1
        return taken

    def _next_stage(self) -> None:
        if not self._stages and self._postponed:
            self._stages.extend(in_stages(self._postponed))
            self._postponed = []
            self._deletes = False
        if self._stages:
            self._ready.extend(map(Send, self._batches(self._stages.popleft())))

    def _batches(self, updates: Iterable[Update]) -> Iterable[tuple[Update, ...]]:
        batch: list[Update] = []
        size = 0
        for update in updates:
            more = update_size(update.entry.wire)
            if batch and (len(batch) >= self._batch_updates or size + more > self._batch_bytes):
                yield tuple(batch)
                batch, size = [], 0
            batch.append(update)
            size += more
        if batch:
            yield tuple(batch)

    # -- outcomes ----------------------------------------------------------------------------------------------------

    def succeeded(self, send: Send) -> None:
        """The whole batch was carried out."""
        self._out -= 1
        self._carried_out(send.updates)

    def failed_in_part(self, send: Send, statuses: Sequence[UpdateStatus]) -> None:
        """There is a status for each update."""
        self._out -= 1
        self._settle(send.updates, statuses)

    def failed(self, send: Send, status: UpdateStatus) -> None:
        """Of the single updates nothing is known. Smaller batches may fare better, or show which update it is."""
        self._out -= 1
        updates = send.updates
        if len(updates) == 1:
            self._settle(updates, (status,))
        else:
            middle = len(updates) // 2
            self._ready.appendleft(Send(updates[middle:]))
            self._ready.appendleft(Send(updates[:middle]))

    def looked_up(self, lookup: LookUp, found: Mapping[bytes, Found]) -> None:
        """What the switch holds under those keys."""
        self._out -= 1
        again: list[Update] = []
        for update in lookup.updates:
            there = found.get(update.entry.key)
            if there is None:
                # Gone since; but a switch that says both again and again is not believed.
                again.append(update)
            elif not there.ours:
                self.refused.append(Refusal(update, FOREIGN))
            elif there.entry.value == update.entry.value:
                self._carried_out((update,))
            else:
                again.append(update._replace(kind=Kind.MODIFY))
        self._send_again(again, _CONTRADICTION)

    def _settle(self, updates: Sequence[Update], statuses: Sequence[UpdateStatus]) -> None:
        lookups: list[Update] = []
        again: list[Update] = []
        for update, status in zip(updates, statuses, strict=True):
            match update.kind, status.code:
                case _, GRPCStatusCode.OK:
                    self._carried_out((update,))
                case Kind.DELETE, GRPCStatusCode.NOT_FOUND:
                    self._carried_out((update,))
                case Kind.INSERT, GRPCStatusCode.ALREADY_EXISTS if update.tries < _MOST_TRIES:
                    lookups.append(update._replace(tries=update.tries + 1))
                case Kind.MODIFY, GRPCStatusCode.NOT_FOUND if update.tries < _MOST_TRIES:
                    self._held.pop(update.entry.key, None)
                    again.append(update._replace(kind=Kind.INSERT, tries=update.tries + 1))
                case Kind.INSERT, GRPCStatusCode.RESOURCE_EXHAUSTED if self._deletes:
                    self._postponed.append(update)
                case _:
                    self.refused.append(Refusal(update, status))
        if lookups:
            self._ready.appendleft(LookUp(tuple(lookups)))
        self._send_again(again, _CONTRADICTION)

    def _send_again(self, updates: Sequence[Update], otherwise: UpdateStatus) -> None:
        """In this stage still: what follows may depend on it."""
        for kind in Kind:
            self._ready.extend(map(Send, self._batches(u for u in updates if u.kind is kind and u.tries < _MOST_TRIES)))
        self.refused += [Refusal(update, otherwise) for update in updates if update.tries >= _MOST_TRIES]

    def _carried_out(self, updates: Sequence[Update]) -> None:
        for kind, entry, _ in updates:
            if kind is Kind.DELETE:
                self._held.pop(entry.key, None)
            else:
                self._held[entry.key] = entry
            self.done[kind] += 1


FOREIGN = UpdateStatus(
    GRPCStatusCode.ALREADY_EXISTS, "an entry of somebody else has this key; it is left alone: remove it, or that key"
)
_CONTRADICTION = UpdateStatus(
    GRPCStatusCode.ABORTED, "the switch says that the entry exists and that it does not; somebody else may write it too"
)

Write = Callable[[Sequence[Update]], Awaitable[None]]
Read = Callable[[Sequence[Update]], Awaitable[Mapping[bytes, Found]]]


async def carry_out(writing: Writing, write: Write, read: Read) -> None:
    """Do what `writing` says until it is done.

    `write` and `read` raise `CallError`. Raised again is what concerns no update (the switch is away, or obeys another
    controller); what the switch holds is not known then. Nothing is under way afterwards, however this ends.
    """
    tasks: dict[asyncio.Task[None], None] = {}
    try:
        while True:
            for instruction in writing.take():
                tasks[asyncio.ensure_future(_do(instruction, writing, write, read))] = None
            if not tasks:
                return
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                del tasks[task]
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _do(instruction: Send | LookUp, writing: Writing, write: Write, read: Read) -> None:
    if isinstance(instruction, LookUp):
        writing.looked_up(instruction, await read(instruction.updates))
        return
    try:
        await write(instruction.updates)
    except CallError as error:
        if len(error.updates) == len(instruction.updates):
            writing.failed_in_part(instruction, error.updates)
        elif error.whole.code in _OF_THE_CONTENT:
            writing.failed(instruction, error.whole)
        else:
            raise
    else:
        writing.succeeded(instruction)
