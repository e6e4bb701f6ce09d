"""Keys of etcd: a change is whole at every moment, wherever its writer dies."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.controller.service.store import Key
from echelon.controller.service.store.base import EncodedChanges
from echelon_etcd import layout as layout_module
from echelon_etcd.layout import PART_BYTES, Contents, Layout, fits, transactions
from echelon_etcd.transaction import MAX_BYTES, MAX_OPERATIONS, Delete, Operation, Put

LAYOUT = Layout("lab/one")

keys: st.SearchStrategy[Key] = st.tuples(st.just("jobs"), st.text("ab/%0é", min_size=1, max_size=3))


@st.composite
def changes(draw: st.DrawFn) -> EncodedChanges:
    puts = draw(st.dictionaries(keys, st.binary(max_size=40), max_size=8))
    return EncodedChanges(puts, draw(st.sets(keys, max_size=8)) - set(puts))


class Keys(dict[bytes, bytes]):
    """The keys of etcd, with its effect of a transaction, restrictions included."""

    def transact(self, operations: list[Operation]) -> None:
        touched: list[bytes] = []
        ranges = [(each.start, each.end) for each in operations if isinstance(each, Delete)]
        for operation in operations:
            match operation:
                case Put(key, value):
                    assert not any(start <= key < end for start, end in ranges), (
                        "etcd: duplicate key given"
                    )
                    touched.append(key)
                    self[key] = value
                case Delete(start, end):
                    for key in [key for key in self if start <= key < end]:
                        del self[key]
        assert len(touched) == len(set(touched)), "etcd: duplicate key given"

    def read(self) -> Contents:
        return LAYOUT.read(
            sorted((key, value) for key, value in self.items() if LAYOUT.start <= key < LAYOUT.end)
        )


def expected(before: Mapping[Key, bytes], made: EncodedChanges) -> dict[Key, bytes]:
    return {key: body for key, body in before.items() if key not in made.deletes} | made.puts


@pytest.fixture(autouse=True, scope="module")
def small_parts() -> object:
    """Shrink the limits, so that short documents have several parts, and short changes several
    transactions.
    """
    patch = pytest.MonkeyPatch()
    patch.setattr(layout_module, "PART_BYTES", 16)
    patch.setattr(layout_module, "MAX_OPERATIONS", 3)
    patch.setattr(layout_module, "MAX_BYTES", 100)
    yield
    patch.undo()


@given(st.lists(changes(), max_size=5))
def test_changes_one_after_the_other(made: list[EncodedChanges]) -> None:
    etcd = Keys()
    etcd.transact(LAYOUT.done(1))
    documents: dict[Key, bytes] = {}
    for each in made:
        etcd.transact(LAYOUT.operations(each, etcd.read().parts))
        documents = expected(documents, each)
        assert etcd.read().documents == documents


@given(changes(), changes(), changes(), st.data())
def test_a_chunked_change_is_whole_wherever_it_stops(
    first: EncodedChanges, second: EncodedChanges, third: EncodedChanges, data: st.DataObject
) -> None:
    etcd = Keys()
    etcd.transact(LAYOUT.operations(first, {}))
    etcd.transact(LAYOUT.done(1))
    before = etcd.read()
    after = expected(before.documents, second)

    chunks, pending = LAYOUT.chunked(second, "id", 2)
    steps: list[list[Operation]] = [*transactions(chunks), [Put(LAYOUT.pending, pending.encoded())]]
    commits_at = len(steps)
    steps += transactions(LAYOUT.operations(second, before.parts))
    steps.append(LAYOUT.done(2))
    stops_at = data.draw(st.integers(0, len(steps)))
    for step in steps[:stops_at]:
        etcd.transact(step)

    left = etcd.read()
    committed = stops_at >= commits_at
    assert left.documents == (after if committed else before.documents)
    assert left.schema == (2 if committed else 1)

    # The next leader finishes it, and goes on.
    if left.pending is not None:
        for step in transactions(LAYOUT.operations(left.pending, left.parts)):
            etcd.transact(step)
    assert left.schema is not None
    etcd.transact(LAYOUT.done(left.schema))
    assert etcd.read().documents == left.documents
    assert etcd.read().pending is None
    etcd.transact(LAYOUT.operations(third, etcd.read().parts))
    assert etcd.read().documents == expected(left.documents, third)
    # Nothing is left over.
    stored = sum(-(-len(body) // 16) or 1 for body in etcd.read().documents.values())
    assert len(etcd) == stored + 1


@given(changes())
def test_transactions_are_within_the_limits_and_in_order(made: EncodedChanges) -> None:
    operations = LAYOUT.operations(made, {})
    batches = list(transactions(operations))
    assert [operation for batch in batches for operation in batch] == operations
    for batch in batches:
        assert len(batch) <= 3
        assert len(batch) == 1 or sum(operation.size_bytes for operation in batch) <= 100
        assert fits(batch) or len(batch) == 1


def test_a_transaction_and_its_fence_are_within_etcds_limits() -> None:
    # etcd: --max-txn-ops=128, --max-request-bytes=1572864; the fence is one more write and two
    # comparisons.
    assert MAX_OPERATIONS + 1 <= 128
    assert PART_BYTES <= MAX_BYTES
    # With what protobuf puts around a key and a value.
    assert MAX_BYTES + 100 * (MAX_OPERATIONS + 3) + 4096 <= 1_572_864
