"""Election ids by time: a later leader outranks every earlier one, also forgotten ones.

P4Runtime makes primary the controller with the highest election id that a switch has ever seen. A
leader's *term* is the high word of its election id at every switch: microseconds since 1970, but
always above the last term that the store remembers, so that a clock that was set back cannot make a
new leader lose to an old one. Controllers that use only the low word, as most do, cannot outrank
it.
"""

from __future__ import annotations

from echelon.model.errors import Code, CodedError

LARGEST_TERM = (1 << 63) - 1
"""Terms fit a signed 64-bit number, which stores and readers of JSON handle."""
_LOW_BITS = 64


def election_id(term: int) -> int:
    """Return the election id of 128 bits by which the leader of a term bids."""
    return term << _LOW_BITS


def term_of(election_id: int) -> int:
    """Return the term in an election id."""
    return election_id >> _LOW_BITS


class ElectionError(CodedError):
    """The error when no term is left that could win; the text says against what."""

    code: Code = "numbers-exhausted"


def next_term(now_us: int, last: int = 0) -> int:
    """Return the term of a leader elected at `now_us` after one of term `last`.

    `now_us` is in microseconds since 1970; `last` is 0 if there was none.

    Raise `ElectionError` if it would exceed `LARGEST_TERM`, and ValueError for a negative number.
    """
    if now_us < 0 or last < 0:
        raise ValueError(f"now_us {now_us}, last {last}: neither can be negative")
    term = max(now_us, last + 1)
    if term > LARGEST_TERM:
        raise ElectionError(
            f"no term above {max(now_us, last)} is left (the largest is {LARGEST_TERM}); another"
            " controller counts differently, or a clock is wrong: stop that controller and restart"
            " the switch, which then forgets election ids"
        )
    return term


def outranking(
    primary_id: int,
    now_us: int,
    last: int,
) -> int:
    """Return the term for a rightful leader whose switch obeys the election id `primary_id`.

    Raise as `next_term` does.
    """
    return next_term(now_us, max(last, term_of(primary_id)))
