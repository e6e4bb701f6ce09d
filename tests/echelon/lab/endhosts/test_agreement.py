"""Hosts and what they hear of a job's iteration."""

from __future__ import annotations

from struct import pack, unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon_lab.endhosts.agreement import Agreement
from echelon_lab.endhosts.shim import UNSTAMPED, flow_key
from tests.echelon.lab.endhosts.still_clock import Clock

_MS = 1_000_000


def stamp(age_us: int, memory: int = 0) -> bytes:
    return pack("!IHH", age_us, memory, 0)


def told(agreement: Agreement, epoch: int, job: int = 1) -> tuple[int, int]:
    """Return age and memory that the host writes into a packet now."""
    age_us, memory, reserved = unpack("!IHH", agreement.stamp(flow_key(epoch, job, 9)))
    assert reserved == 0
    return age_us, memory


@given(
    st.lists(
        st.tuples(st.integers(0, 10_000), st.integers(1, 20_000), st.integers(0, 65535)), min_size=1
    )
)
def test_the_earliest_beginning_and_the_largest_memory_are_kept(
    heard: list[tuple[int, int, int]],
) -> None:
    clock = Clock()
    agreement = Agreement(clock)
    begins = []
    for wait_us, age_us, memory in heard:
        clock.now_ns += wait_us * 1000
        agreement.hear(flow_key(3, 1, 0), stamp(age_us, memory))
        begins.append(clock.now_ns // 1000 - age_us)
    clock.now_ns += 5 * _MS
    assert told(agreement, 3) == (
        clock.now_ns // 1000 - min(begins),
        max(memory for *_, memory in heard),
    )


@pytest.mark.parametrize(("before", "after"), [(7, 8), (255, 0), (200, 1)])
def test_a_newer_iteration_takes_the_place_of_an_older_one(before: int, after: int) -> None:
    clock = Clock(100 * _MS)
    agreement = Agreement(clock)
    agreement.hear(flow_key(before, 1, 0), stamp(50_000, 9))
    agreement.hear(flow_key(after, 1, 0), stamp(1_000, 2))
    assert told(agreement, after) == (1_000, 2)
    assert agreement.stamp(flow_key(before, 1, 0)) == UNSTAMPED
    # A straggler changes nothing.
    agreement.hear(flow_key((after - 1) % 256, 1, 0), stamp(90_000, 99))
    assert told(agreement, after) == (1_000, 2)


def test_jobs_are_apart_and_nothing_is_made_up() -> None:
    agreement = Agreement(Clock(100 * _MS))
    agreement.hear(flow_key(1, 1, 0), UNSTAMPED)
    assert agreement.stamp(flow_key(1, 1, 0)) == UNSTAMPED
    agreement.hear(flow_key(1, 1, 0), stamp(10))
    assert agreement.stamp(flow_key(1, 2, 0)) == UNSTAMPED


def test_an_age_is_never_unknown_nor_too_large() -> None:
    clock = Clock()
    agreement = Agreement(clock)
    agreement.hear(flow_key(1, 1, 0), stamp(1))
    clock.now_ns = (1 << 33) * 1000
    assert told(agreement, 1) == ((1 << 32) - 1, 0)
