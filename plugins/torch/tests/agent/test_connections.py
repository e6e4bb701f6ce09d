"""The connections of a job, from lists of sockets and news of the kernel."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon_torch.agent.connection import TcpConnection
from echelon_torch.agent.connections import JobConnections
from echelon_torch.agent.program import Seen, parse_event
from echelon_torch.agent.sockets import TcpCounters, TcpSocket
from tests.drawing import examples

OURS, OTHERS = 7, 8
STORE = 29500


@dataclass
class Kernel:
    """Connections that open, send and close; listed and told of as the kernel does."""

    open: dict[TcpConnection, TcpSocket] = field(default_factory=dict)
    news: list[Seen] = field(default_factory=list)

    def opens(self, port: int, cgroup: int = OURS) -> None:
        connection = TcpConnection("10.0.0.1", port, "10.0.0.2", 1)
        if connection not in self.open:
            self.open[connection] = TcpSocket(connection, port, cgroup, TcpCounters())
            self.news += [Seen(connection, True, True, False)] if cgroup == OURS else []

    def sends(self, port: int, size: int, again: int = 0) -> None:
        for connection, one in self.open.items():
            if connection.local_port == port:
                assert one.counters is not None
                counters = replace(
                    one.counters,
                    bytes_sent=one.counters.bytes_sent + size + again,
                    bytes_retransmitted=one.counters.bytes_retransmitted + again,
                )
                self.open[connection] = replace(one, counters=counters)

    def closes(self, port: int) -> None:
        connection = TcpConnection("10.0.0.1", port, "10.0.0.2", 1)
        one = self.open.pop(connection, None)
        self.news += (
            [Seen(connection, False, False, False)]
            if one is not None and one.cgroup == OURS
            else []
        )

    def read(self) -> list[TcpSocket]:
        return list(self.open.values())


class News:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def read(self) -> list[Seen]:
        seen, self._kernel.news = self._kernel.news, []
        return seen


def watching(kernel: Kernel, *, with_news: bool) -> JobConnections:
    return JobConnections(
        kernel, lambda: lambda one: one.cgroup == OURS, News(kernel) if with_news else None
    )


TURNS = st.lists(
    st.tuples(st.sampled_from(("opens", "closes", "hear", "read")), st.integers(1, 4)), max_size=40
)


@given(TURNS, st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_after_each_reading_the_open_connections_are_those_of_the_kernel(
    turns: list[tuple[str, int]], with_news: bool
) -> None:
    kernel = Kernel()
    seen = watching(kernel, with_news=with_news)
    for what, port in turns:
        match what:
            case "opens" | "closes":
                getattr(kernel, what)(port)
            case "hear":
                seen.hear()
            case "read":
                # The list may lack a connection for once.
                seen.read()
                seen.read()
        if what == "read" or (what == "hear" and with_news):
            assert seen.open == frozenset(kernel.open)


def test_connections_of_others_are_left_out() -> None:
    kernel = Kernel()
    seen = watching(kernel, with_news=True)
    kernel.opens(1)
    kernel.opens(2, OTHERS)
    seen.read()
    assert {one.local_port for one in seen.open} == {1}
    assert seen.marked == 1


@pytest.mark.parametrize(("with_news", "told"), [(True, {3}), (False, {3, STORE})])
def test_a_connection_to_a_store_is_control_from_its_first_byte(
    with_news: bool, told: set[int]
) -> None:
    """The kernel chose the port of the store at this end, which only news can tell."""
    kernel = Kernel()
    seen = watching(kernel, with_news=with_news)
    seen.stores = lambda: {STORE}
    for remote, local in ((STORE, 3), (5, STORE)):
        connection = TcpConnection("10.0.0.1", local, "10.0.0.2", remote)
        kernel.open[connection] = TcpSocket(
            connection, local, OURS, TcpCounters(bytes_sent=1000 + local)
        )
        kernel.news.append(Seen(connection, True, False, False))
    kernel.opens(4)
    kernel.sends(4, 50)
    if with_news:
        seen.hear()
    else:
        seen.read()
    assert {one.local_port for one in seen.control} == told
    assert {one.local_port for one in seen.open - seen.data} == told
    seen.read()
    assert seen.totals.sent_bytes == 50 + (1000 + STORE if with_news else 0)


def test_totals_count_each_byte_once_over_reconnects() -> None:
    kernel = Kernel()
    seen = watching(kernel, with_news=False)
    kernel.opens(1)
    kernel.sends(1, 1000, again=50)
    seen.read()
    seen.read()
    kernel.closes(1)
    kernel.opens(1)
    kernel.sends(1, 300)
    seen.read()
    assert (seen.totals.sent_bytes, seen.totals.retransmitted_bytes) == (1300, 50)


def test_a_list_that_lacks_a_connection_for_once_closes_none() -> None:
    kernel = Kernel()
    seen = watching(kernel, with_news=False)
    kernel.opens(1)
    kernel.sends(1, 500)
    seen.read()
    lacking, kernel.open = kernel.open, {}
    seen.read()
    assert len(seen.open) == 1
    kernel.open = lacking
    kernel.sends(1, 500)
    seen.read()
    assert seen.totals.sent_bytes == 1000
    kernel.closes(1)
    for _ in range(2):
        seen.read()
    assert not seen.open


def test_an_event_of_the_program_is_read_field_by_field() -> None:
    event = bytes([2, 1]) + (40000).to_bytes(2, "little") + (29500).to_bytes(2, "little") + bytes(2)
    event += bytes([10, 0, 0, 1]) + bytes([10, 0, 0, 2])
    assert parse_event(event) == Seen(
        TcpConnection("10.0.0.1", 40000, "10.0.0.2", 29500), True, True, True
    )
    assert not parse_event(bytes([3]) + event[1:]).is_open
