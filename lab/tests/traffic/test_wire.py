"""The messages of replayed flows, cut into pieces at any place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon_lab.traffic.sender import BURST_BYTES, Pacer
from echelon_lab.traffic.wire import (
    HEADER_BYTES,
    RECEIPT_BYTES,
    Receipt,
    Reception,
    WireError,
    decode_receipt,
    header,
    own_clock,
    transfer_bytes,
)


@given(st.lists(st.integers(1, 100), max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_transfers_end_where_they_should_however_they_are_cut(
    sizes: list[int], cuts: list[int]
) -> None:
    stream = b"".join(header(size) + bytes(transfer_bytes(size) - HEADER_BYTES) for size in sizes)
    ends = []
    reception, at, turn = Reception(), 0, 0
    while at < len(stream):
        wanted = reception.header_wants or reception.left
        assert wanted > 0
        count = min(wanted, cuts[turn % len(cuts)], len(stream) - at)
        turn += 1
        piece = stream[at : at + count]
        at += count
        whole = reception.read_header(piece) if reception.header_wants else reception.skip(count)
        if whole:
            ends.append(at)
            assert reception.idle
        else:
            assert not reception.idle
    expected, total = [], 0
    for size in sizes:
        total += max(size, HEADER_BYTES)
        expected.append(total)
    assert ends == expected


def test_strangers_are_recognised() -> None:
    with pytest.raises(WireError):
        Reception().read_header(b"GET / HTTP/1.1"[:HEADER_BYTES])
    with pytest.raises(WireError):
        decode_receipt(b"HTTP/1.1 200 OK"[:RECEIPT_BYTES].ljust(RECEIPT_BYTES))


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**63))
def test_receipts_are_read_as_they_were_written(clock: int, at_ns: int) -> None:
    assert decode_receipt(Receipt(clock, at_ns).encoded()) == Receipt(clock, at_ns)


def test_the_receivers_time_counts_where_it_is_by_the_same_clock() -> None:
    assert own_clock() != 0
    assert Receipt(5, 100).read_by(5, 130) == 100
    assert Receipt(6, 100).read_by(5, 130) == 130
    assert Receipt(0, 100).read_by(0, 130) == 130


@given(
    st.integers(1, 10**11),
    st.lists(st.integers(1, 10**7), min_size=1, max_size=5),
    st.integers(0, 10**10),
)
def test_a_paced_flow_is_never_faster_than_its_rate_by_more_than_a_portion(
    rate_bps: int, pieces: list[int], elapsed_ns: int
) -> None:
    pacer = Pacer(1000, rate_bps)
    pacer.due_bytes = sum(pieces)
    allowed = pacer.allowed(1000 + elapsed_ns)
    assert allowed <= sum(pieces)
    portion = max(BURST_BYTES, rate_bps * pacer.tick_ns / 8e9)
    assert allowed <= elapsed_ns * rate_bps / 8e9 + portion
    # And it keeps up: what is due by its rate may be sent.
    assert allowed >= min(elapsed_ns * rate_bps // (8 * 10**9), sum(pieces))
