"""The connections that count as control traffic, beside the definition written out over the whole
history.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon_torch.agent.connection import TcpConnection
from echelon_torch.agent.shares import LEAST_BYTES, SHARE, Shares
from echelon_torch.agent.sockets import TcpCounters
from tests.drawing import examples

STORE, GLOO, OTHER = (TcpConnection("10.0.0.1", port, "10.0.0.2", 1) for port in (1, 2, 3))
ELSEWHERE = TcpConnection("10.0.0.1", 4, "10.0.0.3", 1)


def counted(sent: int, received: int = 0) -> TcpCounters:
    return TcpCounters(bytes_sent=sent, bytes_received=received)


def after(*readings: dict[TcpConnection, int]) -> frozenset[TcpConnection]:
    shares = Shares()
    for reading in readings:
        shares.observe({one: counted(carried) for one, carried in reading.items()})
    return shares.control


def test_a_polled_store_beside_gradients() -> None:
    # 100 bytes five times a second, and a few megabytes.
    assert after({STORE: 0, GLOO: 0}, {STORE: 500, GLOO: 4_000_000}) == {STORE}


def test_of_what_opened_before_the_agent_began_only_what_comes_now_counts() -> None:
    late = Shares(is_late=True)
    late.observe({GLOO: counted(10**12), OTHER: counted(0)})
    assert late.control == set()
    late.observe({GLOO: counted(10**12 + 10**6), OTHER: counted(10**6)})
    assert late.control == set()


def test_nothing_is_said_before_much_has_been_carried() -> None:
    assert after({STORE: 0, GLOO: 0}, {STORE: 500, GLOO: LEAST_BYTES - 1}) == set()


def test_a_connection_that_carries_more_later_is_data() -> None:
    readings = {GLOO: 0, OTHER: 0}, {GLOO: 1_000_000, OTHER: 0}
    assert after(*readings) == {OTHER}
    assert after(*readings, {GLOO: 1_000_000, OTHER: 1_000_000}) == set()


def test_a_connection_that_takes_over_is_data() -> None:
    # Only what others carry after it has opened counts.
    assert after({GLOO: 0}, {GLOO: 9_000_000}, {OTHER: 0}, {OTHER: 10}) == set()


def test_other_hosts_do_not_matter() -> None:
    assert after({STORE: 0, ELSEWHERE: 0}, {STORE: 500, ELSEWHERE: 9_000_000}) == set()


def test_both_directions_count() -> None:
    shares = Shares()
    shares.observe({GLOO: counted(0), OTHER: counted(0)})
    # One is sent all, the other receives as much.
    shares.observe({GLOO: counted(1_000_000), OTHER: counted(0, 1_000_000)})
    assert shares.control == set()


def test_a_list_that_lacks_a_connection_for_once_forgets_nothing() -> None:
    readings = {STORE: 0, GLOO: 0}, {STORE: 500, GLOO: 4_000_000}, {GLOO: 5_000_000}
    assert after(*readings, {STORE: 600, GLOO: 5_000_000}) == {STORE}
    assert after(*readings, {GLOO: 5_000_000}, {STORE: 0, GLOO: 5_000_000}) == set()


CONNECTIONS = (STORE, GLOO, OTHER, ELSEWHERE)
STEPS = st.lists(
    st.tuples(
        *(st.none() | st.sampled_from([0, 100, 9_000, 200_000, 3_000_000]) for _ in CONNECTIONS)
    ),
    max_size=12,
)


@given(STEPS, st.booleans())
@settings(max_examples=examples(300))
def test_as_defined(steps: Sequence[tuple[int | None, ...]], is_late: bool) -> None:
    """A step says what each connection carries anew; once it has carried nothing (None), it is
    closed for good.
    """
    shares = Shares(is_late)
    history: list[dict[TcpConnection, int]] = []
    closed: set[TcpConnection] = set()
    totals = dict.fromkeys(CONNECTIONS, 0)
    for step in steps:
        for one, more in zip(CONNECTIONS, step, strict=True):
            if more is None and history and one in history[-1]:
                closed.add(one)
            totals[one] += more or 0
        now = {
            one: totals[one]
            for one, more in zip(CONNECTIONS, step, strict=True)
            if more is not None
        }
        history.append({one: carried for one, carried in now.items() if one not in closed})
        shares.observe({one: counted(carried) for one, carried in history[-1].items()})
        assert shares.control == {one for one in history[-1] if is_control(one, history, is_late)}


def is_control(
    one: TcpConnection, history: Sequence[dict[TcpConnection, int]], is_late: bool
) -> bool:
    opened = {
        other: next((n for n, reading in enumerate(history) if other in reading), len(history))
        for other in CONNECTIONS
    }
    earliest = min(opened.values())
    carried = dict.fromkeys(CONNECTIONS, 0)
    for number, reading in enumerate(history):
        for other, now in reading.items():
            if opened[other] < number:
                more = now - history[number - 1][other]
                counts = number > opened[one]
            else:
                more = 0 if is_late and number == earliest else now
                counts = number >= opened[one]
            carried[other] += more if counts else 0
    others = sum(
        carried[other] for other in CONNECTIONS if other.remote == one.remote and other != one
    )
    return others >= LEAST_BYTES and carried[one] * SHARE < others
