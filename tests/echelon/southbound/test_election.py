"""Terms rise, whatever the clock does."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.switches.southbound.election import (
    LARGEST_TERM,
    ElectionError,
    election_id,
    next_term,
    outranking,
    term_of,
)
from tests.faults import coded, naming

times = st.integers(0, 1 << 62)


@given(times, st.lists(times, min_size=1))
def test_terms_rise_also_when_the_clock_goes_back(first_us: int, later_us: list[int]) -> None:
    terms = [next_term(first_us)]
    for now_us in later_us:
        terms.append(next_term(now_us, terms[-1]))
    assert all(a < b for a, b in pairwise(terms))
    # Not further ahead of the clock than there were elections: otherwise clocks would mean nothing.
    assert terms[-1] <= max(first_us, *later_us) + len(later_us) + 1
    assert all(term >= now for term, now in zip(terms, [first_us, *later_us], strict=True))


def test_a_clock_that_goes_forward_is_the_term() -> None:
    assert next_term(1_790_000_000_000_000) == 1_790_000_000_000_000
    assert next_term(1_790_000_000_000_000, 1_789_999_999_999_999) == 1_790_000_000_000_000
    assert next_term(1_790_000_000_000_000, 1_790_000_000_000_000) == 1_790_000_000_000_001
    assert next_term(0) == 1, "0 means that there was no election"


@given(st.integers(0, election_id(LARGEST_TERM) - 1), times, times)
def test_outranking_is_above_all_that_is_known(primary_id: int, now_us: int, last: int) -> None:
    term = outranking(primary_id, now_us, last)
    assert election_id(term) > primary_id
    assert term_of(election_id(term)) == term
    assert term > last
    assert term >= now_us


def test_ids_that_nothing_outranks() -> None:
    assert next_term(LARGEST_TERM, LARGEST_TERM - 1) == LARGEST_TERM
    for primary_id in (election_id(LARGEST_TERM), (1 << 128) - 1):
        used_up = coded("numbers-exhausted", str(term_of(primary_id)), str(LARGEST_TERM))
        with pytest.raises(ElectionError, check=used_up):
            outranking(primary_id, 1_790_000_000_000_000, 5)


def test_the_low_word_alone_outranks_no_leader() -> None:
    assert election_id(next_term(1_790_000_000_000_000)) > (1 << 64) - 1
    assert election_id(LARGEST_TERM) < 1 << 128


@pytest.mark.parametrize(("now_us", "last"), [(-1, 0), (0, -1)])
def test_negative_numbers(now_us: int, last: int) -> None:
    with pytest.raises(ValueError, check=naming(f"now_us {now_us}", f"last {last}")):
        next_term(now_us, last)
