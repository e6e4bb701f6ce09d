"""The difference as a pure function: carried out batch by batch, it gives what was wanted."""

from __future__ import annotations

from itertools import pairwise

from finsy.proto import p4r
from hypothesis import example, given, settings
from hypothesis import strategies as st

from echelon.southbound.codec import EntryKey, by_key, entry_key, entry_value
from echelon.southbound.reconcile import BATCH, difference


def entry(key: int, value: int) -> p4r.TableEntry:
    message = p4r.TableEntry(table_id=1 + key % 3)
    message.match.add(field_id=1).exact.value = key.to_bytes(2, "big")
    message.action.action.action_id = value
    return message


tables = st.dictionaries(st.integers(0, 40), st.integers(0, 2), max_size=40)


def entries(table: dict[int, int]) -> dict[EntryKey, p4r.TableEntry]:
    return by_key(entry(key, value) for key, value in table.items())


@settings(max_examples=200)
@given(tables, tables)
def test_carried_out_it_gives_what_is_wanted(before: dict[int, int], after: dict[int, int]) -> None:
    held, wanted = entries(before), entries(after)
    change = difference(held, wanted)
    written = 0
    for batch in change.batches():
        keys = [entry_key(update.entity.table_entry) for update in batch]
        assert 0 < len(batch) <= BATCH
        assert len(set(keys)) == len(keys)
        for key, update in zip(keys, batch, strict=True):
            # As strict as a switch: no insert over what is there, no modify or delete of what is not.
            assert (key in held) == (update.type != p4r.Update.INSERT)
            if update.type == p4r.Update.DELETE:
                del held[key]
            else:
                held[key] = update.entity.table_entry
        written += len(batch)
    assert {key: entry_value(e) for key, e in held.items()} == {key: entry_value(e) for key, e in wanted.items()}
    common = before.keys() & after.keys()
    assert written == len(change)
    assert written == len(before.keys() ^ after.keys()) + sum(before[key] != after[key] for key in common)
    assert bool(change) == (before != after)


@given(tables, tables)
def test_inserts_go_in_the_order_given_deletes_in_the_opposite_one(
    before: dict[int, int], after: dict[int, int]
) -> None:
    held, wanted = entries(before), entries(after)
    change = difference(held, wanted)
    for order, some in ((list(wanted), change.inserts), (list(wanted), change.modifies)):
        places = [order.index(entry_key(e)) for e in some]
        assert all(a < b for a, b in pairwise(places))
    order = list(held)
    assert all(a > b for a, b in pairwise(order.index(entry_key(e)) for e in change.deletes))
    kinds = [update.type for batch in change.batches() for update in batch]
    assert kinds == sorted(kinds), "new entries first, then changed ones, then those that go"


@settings(max_examples=10)
@given(st.integers(0, 3 * BATCH + 1))
@example(BATCH)
@example(BATCH + 1)
def test_batches_are_full_but_the_last(count: int) -> None:
    sizes = [len(batch) for batch in difference({}, entries(dict.fromkeys(range(count), 1))).batches()]
    assert sum(sizes) == count
    assert len(sizes) == -(-count // BATCH)
    assert all(size == BATCH for size in sizes[:-1])
