"""The difference as a pure function: carried out stage by stage, it gives what was wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from echelon.switches.lowering.intent import FABRIC, ActionCall, Part, TableEntry
from echelon.switches.southbound.encoding import EncodedEntry, UpdateKind
from echelon.switches.southbound.reconcile import Chunk, WantedEntries, difference, turned
from tests.drawing import examples

STAGES = 3


def encoded(key: int, value: int) -> EncodedEntry:
    name = key.to_bytes(2, "big")
    return EncodedEntry(name, bytes([value]), name + bytes([value]), key % STAGES)


Table = dict[int, int]
tables = st.dictionaries(st.integers(0, 40), st.integers(0, 2), max_size=40)


few = st.dictionaries(st.integers(0, 40), st.integers(0, 2), max_size=8)


def entries(table: Table) -> dict[bytes, EncodedEntry]:
    return {e.key: e for e in (encoded(key, value) for key, value in table.items())}


def values(held: Iterable[EncodedEntry]) -> dict[bytes, bytes]:
    return {entry.key: entry.value for entry in held}


def carry_out(held: dict[bytes, EncodedEntry], chunks: Iterable[Chunk]) -> list[Chunk]:
    """Carry out the chunks as strictly as a switch: no insert of what is there, no modify or delete
    of what is not.
    """
    carried_out = []
    seen: set[bytes] = set()
    for chunk in chunks:
        keys = {entry.key for entry in chunk.entries}
        assert len(keys) == len(chunk.entries) > 0
        assert not keys & seen, "one update of a key"
        seen |= keys
        assert {entry.stage for entry in chunk.entries} == {chunk.stage[1]}
        for entry in chunk.entries:
            assert (entry.key in held) == (chunk.kind is not UpdateKind.INSERT)
            if chunk.kind is UpdateKind.DELETE:
                del held[entry.key]
            else:
                held[entry.key] = entry
        carried_out.append(chunk)
    in_order(carried_out)
    return carried_out


def in_order(chunks: list[Chunk]) -> None:
    """Check the order of chunks: new entries first, then changed ones, then deleted ones.

    An entry that packets look up last is written first and deleted last.
    """
    assert [chunk.kind for chunk in chunks] == sorted(chunk.kind for chunk in chunks)
    for one, other in pairwise(chunks):
        if one.kind is other.kind and one.stage[0] == other.stage[0]:
            up, down = sorted(
                (one, other),
                key=lambda c: c.entries[0].stage,
                reverse=one.kind is UpdateKind.DELETE,
            )
            assert one.stage == other.stage or (up, down) == (one, other)


def size(chunks: list[Chunk]) -> int:
    return sum(len(chunk.entries) for chunk in chunks)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables, tables, st.sets(st.integers(0, 40)))
def test_carried_out_it_gives_what_is_wanted(before: Table, after: Table, theirs: set[int]) -> None:
    ours_before = {key: value for key, value in before.items() if key not in theirs}
    held = entries(ours_before)
    wanted = entries(after)
    foreign = {encoded(key, 0).key for key in theirs}
    change = difference(held, wanted, foreign)
    assert {entry.key for entry in change.blocked} == foreign & set(wanted)
    written = size(carry_out(held, change.chunks()))
    expected = {key: value for key, value in after.items() if key not in theirs}
    assert values(held.values()) == values(entries(expected).values())
    common = ours_before.keys() & expected.keys()
    assert written == len(ours_before.keys() ^ expected.keys()) + sum(
        ours_before[k] != expected[k] for k in common
    )
    assert any(change.chunks()) == (ours_before != expected)


# -- intents in parts ------------------------------------------------------------------------------


def flow(key: int, value: int) -> TableEntry:
    return TableEntry(f"t{key % STAGES}", (("key", key),), (ActionCall("a", (("value", value),)),))


class Encoder:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, entry: TableEntry) -> EncodedEntry:
        self.calls += 1
        (_, key), (_, value) = entry.match[0], entry.actions[0].arguments[0]
        assert isinstance(key, int)
        return encoded(key, value)


def part(owner: str, table: Table) -> Part:
    return Part(owner, tuple(flow(key, value) for key, value in table.items()))


@st.composite
def intents(draw: st.DrawFn) -> list[list[int]]:
    """Draw the parts, of ten, that each intent of a sequence has."""
    return draw(
        st.lists(st.lists(st.integers(0, 9), unique=True, max_size=6), min_size=1, max_size=6)
    )


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(few, min_size=10, max_size=10), intents(), st.sets(st.integers(0, 40), max_size=3))
def test_turning_from_intent_to_intent_is_the_same_as_starting_with_the_last(
    contents: list[Table], sequence: list[list[int]], lost: set[int]
) -> None:
    parts = [part(f"part {n}", table) for n, table in enumerate(contents)]
    encode = Encoder()
    wanted = WantedEntries(encode, {"t0": 0, "t1": 1, "t2": 2})
    held: dict[bytes, EncodedEntry] = {}
    former: list[int] = []
    clean = True
    for chosen in sequence:
        keys = [key for n in chosen for key in contents[n]]
        encode.calls = 0
        turn = wanted.turn_to([parts[n] for n in chosen])
        again = [encoded(key, 0).key for key in lost]
        carry_out(
            held,
            turned(turn, wanted.by_key, held, [key for key in again if key not in turn.former]),
        )
        assert held == wanted.by_key
        assert set(held) == {encoded(key, 0).key for key in keys}
        if clean and not wanted.invalid:
            assert encode.calls == sum(len(contents[n]) for n in chosen if n not in former)
        # Every part that wants it, but the first one, has it refused.
        refused = [(entry.owner, entry.entry.match[0][1]) for entry in wanted.invalid]
        assert sorted(key for _, key in refused) == sorted(
            (Counter(keys) - Counter(set(keys))).elements()
        )
        owners = wanted.owners(set(held))
        assert set(owners) == set(held)
        for owner, key in refused:
            assert isinstance(key, int)
            assert key in contents[int(owner.split()[1])]
            assert owners[encoded(key, 0).key] != owner
        claims = {entry.reason.partition(", by ")[2] for entry in wanted.invalid}
        for owner, key in refused:
            assert isinstance(key, int)
            assert f"{owners[encoded(key, 0).key]} and {owner}" in claims
        clean = not refused
        former = chosen


@settings(max_examples=examples(200), deadline=None)
@given(few, few, st.randoms(use_true_random=False))
def test_entries_that_a_part_shares_with_the_one_before_are_not_encoded_again(
    before: Table, after: Table, random: Random
) -> None:
    encode, shared = (
        Encoder(),
        {key: value for key, value in before.items() if random.random() < 0.7},
    )
    first = part("job", before)
    objects = {entry.match[0][1]: entry for entry in first.entries}
    mixed = [objects[key] for key in shared] + [
        flow(key, value) for key, value in after.items() if key not in shared
    ]
    random.shuffle(mixed)
    wanted = WantedEntries(encode, {"t0": 0, "t1": 1, "t2": 2})
    held: dict[bytes, EncodedEntry] = {}
    carry_out(held, turned(wanted.turn_to([first]), wanted.by_key, held))
    encode.calls = 0
    carry_out(held, turned(wanted.turn_to([Part("job", tuple(mixed))]), wanted.by_key, held))
    assert encode.calls == len(mixed) - len(shared)
    assert held == wanted.by_key == entries({**after, **shared})


def test_what_many_switches_hold_of_the_fabric_is_encoded_once() -> None:
    encode, held = Encoder(), []
    for owner in (FABRIC, FABRIC, "job"):
        wanted = WantedEntries(encode, {"t0": 0, "t1": 1, "t2": 2})
        turn = wanted.turn_to([part(owner, {1: 1, 2: 2})])
        held.append([entry for entries in turn.new for entry in entries])
    assert encode.calls == 4, "a job's entries are not remembered"
    assert held[0] == held[1] == held[2]


def test_an_entry_that_cannot_be_encoded_is_told_of_and_the_others_are_there() -> None:
    wanted = WantedEntries(Encoder(), {"t0": 0, "t1": 1, "t2": 2})
    first, broken = part("a", {1: 1}), Part("b", (flow(2, 300), flow(4, 1)))
    come = [entry.key for entries in wanted.turn_to([first, broken]).new for entry in entries]
    assert sorted(come) == sorted(wanted.by_key) == [encoded(1, 1).key, encoded(4, 1).key]
    (invalid,) = wanted.invalid
    assert (invalid.owner, invalid.entry) == ("b", flow(2, 300))
    assert "byte" in invalid.reason
    assert list(wanted.turn_to([first]).new) == []
    assert wanted.invalid == []


def test_large_parts_are_encoded_a_thousand_at_a_time() -> None:
    encode = Encoder()
    wanted = WantedEntries(encode, {"t0": 0, "t1": 1, "t2": 2})
    turn = wanted.turn_to([part("a", dict.fromkeys(range(0, 6000, STAGES), 1)), part("b", {1: 1})])
    assert len(next(turn.new)) == encode.calls == 1000
    assert [len(entries) for entries in turn.new] == [1000, 1]
    several = [
        part(str(n), dict.fromkeys(range(1800 * n, 1800 * n + 1800, STAGES), 1)) for n in range(4)
    ]
    assert [len(entries) for entries in wanted.turn_to(several).new] == [1000, 1000, 400]
