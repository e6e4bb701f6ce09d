"""Gathering against one that keeps everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echelon.switches.telemetry.tracker import MAX_VALUES, Gathering

FLOWS = ("a", "b", "c")


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(FLOWS), st.integers()), max_size=200))
def test_like_one_that_forgets_only_by_age(puts: list[tuple[int, str, int]]) -> None:
    gathering: Gathering[int] = Gathering(FLOWS)
    values: dict[int, dict[str, int]] = {}
    newest = -1
    for iteration, flow, value in puts:
        complete = gathering.put(iteration, flow, value)
        if iteration <= newest - 16:
            assert complete is None
            continue
        newest = max(newest, iteration)
        known = values.setdefault(iteration, {})
        new = flow not in known
        known.setdefault(flow, value)
        assert complete == (known if new and len(known) == 3 else None)


def test_what_is_cleared_does_not_become_complete() -> None:
    gathering: Gathering[int] = Gathering(FLOWS)
    for flow in FLOWS[:2]:
        gathering.put(1, flow, 0)
    gathering.clear()
    assert gathering.put(1, "c", 0) is None
    assert [gathering.put(2, flow, 7) for flow in FLOWS] == [None, None, dict.fromkeys(FLOWS, 7)]


def test_values_of_many_flows_are_bounded() -> None:
    flows = [f"f{index}" for index in range(1000)]
    gathering: Gathering[int] = Gathering(flows)
    for iteration in range(100):
        for flow in flows[:-1]:
            assert gathering.put(iteration, flow, 0) is None
    held = [iteration for iteration in range(100) if gathering.put(iteration, flows[-1], 0)]
    assert held == list(range(100 - MAX_VALUES // 1000, 100))
