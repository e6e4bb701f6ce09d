"""The writer against a model of a switch that has drifted, is nearly full, loses statuses, and has
others' entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

import pytest
from finsy import GRPCStatusCode
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from echelon.switches.southbound.channel import CallError, UpdateStatus
from echelon.switches.southbound.encoding import EncodedEntry, UpdateKind, update_size
from echelon.switches.southbound.reconcile import Chunk, Difference, difference
from echelon.switches.southbound.writer import HeldEntry, LookUp, Send, Writing, carry_out
from tests.drawing import examples

Table = dict[int, int]
STAGES = 3
OK = UpdateStatus(GRPCStatusCode.OK, "")


def encoded(key: int, value: int) -> EncodedEntry:
    name = key.to_bytes(2, "big")
    return EncodedEntry(name, bytes([value]), name + bytes([value]), key % STAGES)


def entries(table: Table) -> dict[bytes, EncodedEntry]:
    return {e.key: e for e in (encoded(key, value) for key, value in table.items())}


@dataclass
class Model:
    """A switch, as far as a Write goes."""

    ours: dict[bytes, EncodedEntry]
    theirs: set[bytes]
    room: int = 1 << 30
    most_statuses: int = 1 << 30
    """A failed batch of more updates than this comes back without statuses, though it was carried
    out in part.
    """
    most_updates: int = 1 << 30
    """A batch of more is refused before it is looked at."""
    hated: set[bytes] = field(default_factory=set)
    """Keys that are never inserted, for a reason of the switch's own."""

    def write(self, send: Send) -> None:
        if len(send.entries) > self.most_updates:
            raise CallError(UpdateStatus(GRPCStatusCode.RESOURCE_EXHAUSTED, "too large"))
        statuses = tuple(self._apply(send.kind, entry) for entry in send.entries)
        if any(status.code for status in statuses):
            whole = UpdateStatus(GRPCStatusCode.UNKNOWN, "some failed")
            if len(send.entries) > self.most_statuses:
                raise CallError(
                    UpdateStatus(GRPCStatusCode.RESOURCE_EXHAUSTED, "metadata too large")
                )
            raise CallError(whole, statuses)

    def _apply(self, kind: UpdateKind, entry: EncodedEntry) -> UpdateStatus:
        key = entry.key
        there = key in self.ours or key in self.theirs
        if kind is UpdateKind.INSERT:
            if there:
                return UpdateStatus(GRPCStatusCode.ALREADY_EXISTS, "there")
            if key in self.hated:
                return UpdateStatus(GRPCStatusCode.INVALID_ARGUMENT, "no")
            if len(self.ours) + len(self.theirs) >= self.room:
                return UpdateStatus(GRPCStatusCode.RESOURCE_EXHAUSTED, "full")
            self.ours[key] = entry
            return OK
        assert key not in self.theirs, "somebody else's entry was written"
        if not there:
            return UpdateStatus(GRPCStatusCode.NOT_FOUND, "not there")
        if kind is UpdateKind.MODIFY:
            self.ours[key] = entry
        else:
            del self.ours[key]
        return OK

    def look_up(self, lookup: LookUp) -> Mapping[bytes, HeldEntry]:
        found = {}
        for key in (entry.key for entry in lookup.entries):
            if key in self.theirs:
                found[key] = HeldEntry(encoded(int.from_bytes(key, "big"), 9), ours=False)
            elif key in self.ours:
                found[key] = HeldEntry(self.ours[key], ours=True)
        return found


def run(writing: Writing, model: Model, random: Random) -> None:
    """Run the instructions; those that are out together end in any order."""
    out: list[Send | LookUp] = []
    for _ in range(100_000):
        if random.random() < 0.3:
            writing.prepare()
        while (taken := writing.take()) is not None:
            out.append(taken)
        if not out:
            return
        instruction = out.pop(random.randrange(len(out)))
        if isinstance(instruction, LookUp):
            writing.looked_up(instruction, model.look_up(instruction))
            continue
        try:
            model.write(instruction)
        except CallError as error:
            if error.updates:
                writing.failed_in_part(instruction, error.updates)
            else:
                writing.failed(instruction, error.status)
        else:
            writing.succeeded(instruction)
    raise AssertionError("no end")


tables = st.dictionaries(st.integers(0, 30), st.integers(0, 2), max_size=30)
keys = st.sets(st.integers(0, 30), max_size=8)


def named(some: set[int]) -> set[bytes]:
    return {encoded(key, 0).key for key in some}


@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    known=tables,
    drift=tables,
    vanished=keys,
    wanted=tables,
    theirs=keys,
    hated=keys,
    room=st.integers(0, 40),
    most_statuses=st.sampled_from([1, 3, 100]),
    most_updates=st.sampled_from([1, 2, 100]),
    batch=st.integers(1, 12),
    window=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_afterwards_it_is_known_what_the_switch_holds_and_what_it_does_not_take(
    known: Table,
    drift: Table,
    vanished: set[int],
    wanted: Table,
    theirs: set[int],
    hated: set[int],
    room: int,
    most_statuses: int,
    most_updates: int,
    batch: int,
    window: int,
    seed: int,
) -> None:
    foreign = named(theirs)
    actual = {
        key: value
        for key, value in {**known, **drift}.items()
        if key not in theirs and key not in vanished
    }
    model = Model(entries(actual), foreign, room, most_statuses, most_updates, named(hated))
    held = {key: entry for key, entry in entries(known).items() if key not in foreign}
    change = difference(held, entries(wanted))
    touched = {entry.key for entry in (*change.inserts, *change.modifies, *change.deletes)}
    writing = Writing(
        change.chunks(), held, deletes=bool(change.deletes), batch_updates=batch, window=window
    )
    run(writing, model, Random(seed))
    refused = {refusal.entry.key: refusal for refusal in writing.refused}
    assert len(refused) == len(writing.refused)
    for key in touched - refused.keys():
        assert model.ours.get(key) == held.get(key) == entries(wanted).get(key)
    for key, refusal in refused.items():
        event(GRPCStatusCode(refusal.status.code).name)
        assert key in entries(wanted), "nothing keeps an entry from being deleted here"
        assert (
            key in foreign
            or key in named(hated)
            or refusal.status.code == GRPCStatusCode.RESOURCE_EXHAUSTED
        )
        assert held.get(key) == model.ours.get(key)
    if refused and all(refusal.status.message == "full" for refusal in writing.refused):
        assert len(model.ours) + len(foreign) >= room
    assert sum(writing.done.values()) + len(refused) == len(touched)
    assert model.theirs == foreign


@given(tables, tables, st.integers(1, 7), st.integers(1, 4), st.integers(0, 99))
def test_a_stage_ends_before_the_next_begins_and_batches_are_full(
    before: Table, after: Table, batch: int, window: int, seed: int
) -> None:
    held = entries(before)
    change = difference(held, entries(after))
    stages = [{entry.key for entry in chunk.entries} for chunk in change.chunks()]
    writing = Writing(change.chunks(), dict(held), deletes=True, batch_updates=batch, window=window)
    random = Random(seed)
    out: list[Send] = []
    sent: list[Send] = []
    while True:
        if random.random() < 0.5:
            writing.prepare()
        while (instruction := writing.take()) is not None:
            assert isinstance(instruction, Send)
            out.append(instruction)
            sent.append(instruction)
        if not out:
            break
        assert len(out) <= window
        assert (
            len(
                {
                    next(n for n, s in enumerate(stages) if e.key in s)
                    for i in out
                    for e in i.entries
                }
            )
            == 1
        )
        writing.succeeded(out.pop(random.randrange(len(out))))
    assert len(sent) == sum(-(-len(stage) // batch) for stage in stages)
    assert all(len(instruction.entries) <= batch for instruction in sent)
    places = [next(n for n, s in enumerate(stages) if i.entries[0].key in s) for i in sent]
    assert places == sorted(places)


def test_batches_are_limited_by_bytes_too() -> None:
    large = tuple(EncodedEntry(bytes([n]), b"v", bytes(1000), 0) for n in range(10))

    def sizes(most: int) -> list[int]:
        writing = Writing(Difference(large).chunks(), {}, deletes=False, batch_bytes=most)
        found = []
        while (instruction := writing.take()) is not None:
            assert isinstance(instruction, Send)
            found.append(len(instruction.entries))
            writing.succeeded(instruction)
        return found

    assert sizes(3 * update_size(bytes(1000))) == [3, 3, 3, 1]
    assert sizes(1 << 20) == [10]
    assert sizes(5) == [1] * 10, "an entry that is larger than a batch goes alone"


def test_a_batch_that_fails_as_a_whole_is_halved_until_the_culprit_is_found() -> None:
    """The server gives no statuses, and refuses the whole request for one update."""
    table = entries(dict.fromkeys(range(0, 300, STAGES), 1))
    culprit = encoded(33, 1)
    writes = 0

    async def write(send: Send) -> None:
        nonlocal writes
        writes += 1
        if any(entry.key == culprit.key for entry in send.entries):
            raise CallError(UpdateStatus(GRPCStatusCode.INVALID_ARGUMENT, "bad"))

    async def read(lookup: LookUp) -> Mapping[bytes, HeldEntry]:
        raise AssertionError("nothing to look up")

    held: dict[bytes, EncodedEntry] = {}
    writing = Writing(Difference(tuple(table.values())).chunks(), held, deletes=False)
    asyncio.run(carry_out(writing, write, read))
    assert [refusal.entry for refusal in writing.refused] == [culprit]
    assert held == {key: entry for key, entry in table.items() if key != culprit.key}
    assert writes <= 2 * len(table).bit_length() + 1


@pytest.mark.parametrize("code", [GRPCStatusCode.UNAVAILABLE, GRPCStatusCode.PERMISSION_DENIED])
def test_what_concerns_no_update_ends_it_and_leaves_nothing_under_way(code: GRPCStatusCode) -> None:
    table = tuple(entries(dict.fromkeys(range(0, 60, STAGES), 1)).values())

    async def main() -> None:
        ended = 0
        started = 0

        async def write(send: Send) -> None:
            nonlocal ended, started
            started += 1
            if started == 3:
                raise CallError(UpdateStatus(code, "away"))
            try:
                await asyncio.Event().wait()
            finally:
                ended += 1

        async def read(lookup: LookUp) -> Mapping[bytes, HeldEntry]:
            raise AssertionError("nothing to look up")

        before = asyncio.all_tasks()
        with pytest.raises(CallError) as caught:
            await carry_out(
                Writing(Difference(table).chunks(), {}, deletes=False, batch_updates=2, window=3),
                write,
                read,
            )
        assert caught.value.status == UpdateStatus(code, "away")
        assert (started, ended) == (3, 2)
        assert asyncio.all_tasks() == before

    asyncio.run(main())


def test_a_switch_that_contradicts_itself_is_not_asked_for_ever() -> None:
    writing = Writing(Difference((encoded(0, 1),)).chunks(), {}, deletes=False)
    rounds = 0
    while (instruction := writing.take()) is not None:
        rounds += 1
        if isinstance(instruction, LookUp):
            writing.looked_up(instruction, {})
        else:
            there = UpdateStatus(GRPCStatusCode.ALREADY_EXISTS, "there")
            writing.failed_in_part(instruction, [there] * len(instruction.entries))
    assert rounds < 10
    assert len(writing.refused) == 1
    assert "exists and that it does not" in writing.refused[0].status.message


async def test_the_next_entries_are_made_ready_while_the_switch_is_at_work() -> None:
    """Only the next entries are made ready: the intent is not encoded all at once."""
    made: list[int] = []

    def chunks() -> Iterator[Chunk]:
        for number in range(4):
            made.append(number)
            yield Chunk((0, number), UpdateKind.INSERT, (encoded(number, 1),))

    at_work: list[list[int]] = []

    async def write(send: Send) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        at_work.append(list(made))

    async def read(lookup: LookUp) -> Mapping[bytes, HeldEntry]:
        raise AssertionError("nothing to look up")

    await carry_out(Writing(chunks(), {}, deletes=False), write, read)
    assert at_work == [[0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]]
