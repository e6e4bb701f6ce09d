"""The difference as a pure function: carried out stage by stage, it gives what was wanted."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.lowering.intent import ActionCall, Part, TableEntry
from echelon.southbound.codec import EncodedEntry
from echelon.southbound.reconcile import Update, Wanted, WantedTwiceError, difference
from echelon.southbound.wire import Kind

STAGES = 3


def encoded(key: int, value: int) -> EncodedEntry:
    name = key.to_bytes(2, "big")
    return EncodedEntry(name, bytes([value]), name + bytes([value]), key % STAGES)


Table = dict[int, int]
tables = st.dictionaries(st.integers(0, 40), st.integers(0, 2), max_size=40)


def entries(table: Table) -> dict[bytes, EncodedEntry]:
    return {e.key: e for e in (encoded(key, value) for key, value in table.items())}


def values(held: Iterable[EncodedEntry]) -> dict[bytes, bytes]:
    return {entry.key: entry.value for entry in held}


def carry_out(held: dict[bytes, EncodedEntry], stages: Iterable[list[Update]]) -> int:
    """As strict as a switch: no insert over what is there, no modify or delete of what is not."""
    written = 0
    for stage in stages:
        assert len({update.entry.key for update in stage}) == len(stage) > 0
        assert len({(update.kind, update.entry.stage) for update in stage}) == 1
        for kind, entry, _ in stage:
            assert (entry.key in held) == (kind is not Kind.INSERT)
            if kind is Kind.DELETE:
                del held[entry.key]
            else:
                held[entry.key] = entry
            written += 1
    return written


@settings(max_examples=200)
@given(tables, tables, st.sets(st.integers(0, 40)))
def test_carried_out_it_gives_what_is_wanted(before: Table, after: Table, theirs: set[int]) -> None:
    held = entries({key: value for key, value in before.items() if key not in theirs})
    wanted = entries(after)
    foreign = {encoded(key, 0).key for key in theirs}
    ours_before = {key: value for key, value in before.items() if key not in theirs}
    change = difference(held, wanted, list(held), foreign)
    assert {entry.key for entry in change.blocked} == foreign & set(wanted)
    written = carry_out(held, change.stages())
    expected = {key: value for key, value in after.items() if key not in theirs}
    assert values(held.values()) == values(entries(expected).values())
    common = ours_before.keys() & expected.keys()
    assert written == len(change)
    assert written == len(ours_before.keys() ^ expected.keys()) + sum(ours_before[k] != expected[k] for k in common)
    assert bool(change) == (ours_before != expected)


@settings(max_examples=200)
@given(tables, tables, st.sets(st.integers(0, 40)))
def test_only_what_is_dropped_goes(before: Table, after: Table, dropped: set[int]) -> None:
    held = entries(before)
    change = difference(held, entries(after), [encoded(key, 0).key for key in dropped])
    carry_out(held, change.stages())
    expected = {key: value for key, value in before.items() if key not in dropped} | after
    assert values(held.values()) == values(entries(expected).values())


@given(tables, tables)
def test_stages_go_up_for_what_comes_and_down_for_what_goes(before: Table, after: Table) -> None:
    held = entries(before)
    order = [(stage[0].kind, stage[0].entry.stage) for stage in difference(held, entries(after), list(held)).stages()]
    assert [kind for kind, _ in order] == sorted(kind for kind, _ in order), "insert, modify, delete"
    for (kind, stage), (following, next_stage) in pairwise(order):
        if kind is following:
            assert stage > next_stage if kind is Kind.DELETE else stage < next_stage


# -- intents in parts --------------------------------------------------------------------------------------------------


def flow(key: int, value: int) -> TableEntry:
    return TableEntry("t", (("key", key),), (ActionCall("a", (("value", value),)),))


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
    """Which of ten parts each intent of a sequence has."""
    return draw(st.lists(st.lists(st.integers(0, 9), unique=True, max_size=6), min_size=1, max_size=6))


@settings(max_examples=200)
@given(st.lists(tables, min_size=10, max_size=10), intents())
def test_turning_from_intent_to_intent_is_the_same_as_starting_with_the_last(
    contents: list[Table], sequence: list[list[int]]
) -> None:
    parts = [part(f"part {n}", table) for n, table in enumerate(contents)]
    encode = Encoder()
    wanted = Wanted(encode)
    held: dict[bytes, EncodedEntry] = {}
    present: set[int] = set()
    for chosen in sequence:
        keys = [key for n in chosen for key in contents[n]]
        before = dict(wanted.by_key)
        encode.calls = 0
        if len(set(keys)) < len(keys):
            with pytest.raises(WantedTwiceError) as caught:
                wanted.turn_to([parts[n] for n in chosen])
            twice = int.from_bytes(caught.value.entry.key, "big")
            assert caught.value.owners, "somebody wants it"
            assert set(caught.value.owners) == {f"part {n}" for n in chosen if twice in contents[n]}
            assert wanted.by_key == before
            continue
        turn = wanted.turn_to([parts[n] for n in chosen])
        assert encode.calls == sum(len(contents[n]) for n in chosen if n not in present)
        carry_out(held, difference(held, turn.come, turn.gone).stages())
        present = set(chosen)
        expected = entries({key: value for n in chosen for key, value in contents[n].items()})
        assert wanted.by_key == expected
        assert values(held.values()) == values(expected.values())
        owners = wanted.owners(set(expected))
        assert owners == {encoded(key, 0).key: f"part {n}" for n in chosen for key in contents[n]}


def test_an_entry_that_cannot_be_encoded_changes_nothing() -> None:
    wanted = Wanted(Encoder())
    first = part("a", {1: 1})
    wanted.turn_to([first])
    broken = Part("b", (flow(2, 300),))
    with pytest.raises(ValueError, match="byte"):
        wanted.turn_to([broken])
    assert wanted.turn_to([first]).come == {}
    assert set(wanted.by_key) == {encoded(1, 1).key}
