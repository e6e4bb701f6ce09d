"""Group commit."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.controller.service.store import Candidate, Key, Leadership
from echelon.controller.service.store.base import EncodedChanges, GroupCommit, GroupLimits, in_order

keys: st.SearchStrategy[Key] = st.tuples(st.just("jobs"), st.sampled_from("abcde"))


@st.composite
def changes(draw: st.DrawFn) -> EncodedChanges:
    puts = draw(st.dictionaries(keys, st.binary(max_size=3), max_size=4))
    return EncodedChanges(puts, draw(st.sets(keys)) - set(puts))


def apply(documents: dict[Key, bytes], made: EncodedChanges) -> dict[Key, bytes]:
    return {key: body for key, body in documents.items() if key not in made.deletes} | made.puts


def leadership() -> Leadership:
    async def no(*_: object) -> int:
        raise AssertionError

    return Leadership(Candidate("a", "b"), 1, raise_term=no, resign=no)  # type: ignore[arg-type]


@given(st.lists(changes()), changes())
def test_changes_in_order_are_one_change(
    made: list[EncodedChanges], before: EncodedChanges
) -> None:
    together = in_order(made)
    assert not together.deletes & set(together.puts)
    one_by_one = dict(before.puts)
    for each in made:
        one_by_one = apply(one_by_one, each)
    assert apply(dict(before.puts), together) == one_by_one


@given(
    st.lists(st.tuples(st.integers(0, 1), changes()), max_size=12),
    st.integers(1, 6),
    st.sets(st.integers(0, 11)),
)
def test_writes_are_rows_of_calls_and_fail_together(
    calls: list[tuple[int, EncodedChanges]], count: int, failing: set[int]
) -> None:
    """`failing` holds writes by their number. All calls are made before the first write ends."""

    async def body() -> None:
        leaderships = [leadership(), leadership()]
        written: list[tuple[Leadership, EncodedChanges]] = []
        failed: list[int] = []

        async def write(by: Leadership, made: EncodedChanges) -> None:
            await asyncio.sleep(0)
            written.append((by, made))
            if len(written) - 1 in failing:
                failed.append(len(written) - 1)
                raise OSError(len(written) - 1)

        group = GroupCommit(write, GroupLimits(count, 1 << 20))
        results = await asyncio.gather(
            *(group.commit(leaderships[who], made) for who, made in calls), return_exceptions=True
        )
        await group.idle()
        # Every write is of the longest row that it may be: found again by filling them greedily.
        rows: list[list[int]] = []
        for at, (who, made) in enumerate(calls):
            row = rows[-1] if rows else None
            if (
                row is None
                or calls[row[0]][0] != who
                or sum(calls[n][1].count for n in row) + made.count > count
            ):
                rows.append([])
            rows[-1].append(at)
        assert [(by, made) for by, made in written] == [
            (leaderships[calls[row[0]][0]], in_order(calls[n][1] for n in row)) for row in rows
        ]
        for number, row in enumerate(rows):
            for at in row:
                result = results[at]
                assert (
                    (isinstance(result, OSError) and result.args == (number,))
                    if number in failed
                    else result is None
                )

    asyncio.run(body())


async def test_a_cancelled_writer_cancels_those_who_wait() -> None:
    begun = asyncio.Event()

    async def write(by: Leadership, made: EncodedChanges) -> None:
        begun.set()
        await asyncio.Event().wait()

    group = GroupCommit(write, GroupLimits(1, 1))
    made = EncodedChanges({("jobs", "x"): b"{}"}, set())
    calls = [asyncio.create_task(group.commit(leadership(), made)) for _ in range(3)]
    await begun.wait()
    [writer] = [task for task in asyncio.all_tasks() if task.get_name() == "store: group commit"]
    writer.cancel()
    for call in calls:
        with pytest.raises(asyncio.CancelledError):
            await call
    await group.idle()
