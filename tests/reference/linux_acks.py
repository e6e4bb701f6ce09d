"""A model of a TCP connection of two Linux hosts with data both ways, and of a switch that closes
windows.

Segments have a length of 1. The rules are those of Linux 6.x (net/ipv4/tcp_input.c and
tcp_output.c), by the names of its functions. What a sender may do later than it could (congestion,
pacing, delayed acknowledgements) is left to the order of events, which is anybody's choice: packets
of data and pure acknowledgements have queues of their own, as in a switch that gives
acknowledgements a level of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

WINDOW = 8


class Segment(NamedTuple):
    seq: int
    end: int
    """`seq` for a pure acknowledgement."""
    ack: int
    window: int


@dataclass(slots=True)
class End:
    """One end of the connection, by the names of the kernel."""

    written: int = 0
    """The bytes that the program has written."""
    snd_una: int = 0
    snd_nxt: int = 0
    snd_wnd: int = WINDOW
    snd_wl1: int = 0
    rcv_nxt: int = 0
    rcv_wup: int = 0
    """`rcv_nxt` when an acknowledgement was sent last."""
    early: set[int] = field(default_factory=set)
    """Segments that have come before an earlier one."""
    answered: bool = False
    """Whether a pure acknowledgement that was out of the window has been answered lately
    (tcp_oow_rate_limited).
    """

    def _sent(self, seq: int, length: int) -> Segment:
        self.rcv_wup = self.rcv_nxt
        return Segment(seq, seq + length, self.rcv_nxt, WINDOW)

    def acknowledge(self) -> Segment:
        """Send a pure acknowledgement, with the sequence number of tcp_acceptable_seq."""
        return self._sent(min(self.snd_nxt, self.snd_una + self.snd_wnd), 0)

    def send(self) -> Segment | None:
        """Send the next segment if there is one and the window has room (tcp_snd_wnd_test)."""
        if self.snd_nxt >= self.written or self.snd_nxt >= self.snd_una + self.snd_wnd:
            return None
        self.snd_nxt += 1
        return self._sent(self.snd_nxt - 1, 1)

    def time_out(self) -> Segment | None:
        """Send the first segment again, without a window (tcp_retransmit_skb), or ask for one."""
        self.answered = False
        if self.snd_una < self.snd_nxt:
            return self._sent(self.snd_una, 1)
        return self._sent(self.snd_una - 1, 0) if self.snd_nxt < self.written else None

    def receive(self, one: Segment) -> Segment | None:
        """Take a segment; return what is sent at once."""
        if one.end < self.rcv_wup or one.seq > self.rcv_nxt + WINDOW:  # tcp_sequence
            if one.seq == one.end:
                if self.answered:
                    return None  # TCPACKSkippedSeq
                self.answered = True
            return self.acknowledge()
        self._ack(one)
        if one.seq == one.end:
            return None
        self.early.add(one.seq)
        while self.rcv_nxt in self.early:
            self.early.remove(self.rcv_nxt)
            self.rcv_nxt += 1
        return self.acknowledge()

    def _ack(self, one: Segment) -> None:
        if not self.snd_una <= one.ack <= self.snd_nxt:
            return  # an old one, or of what was never sent
        # tcp_may_update_window
        newer = one.ack > self.snd_una or one.seq > self.snd_wl1
        if newer or (one.seq == self.snd_wl1 and (one.window > self.snd_wnd or not one.window)):
            self.snd_wl1, self.snd_wnd = one.seq, one.window
        self.snd_una = one.ack


@dataclass
class Connection:
    """Two ends, and the switch between them, which may close the windows of the ends in `closing`.

    The switch is control Pause of p4src/v1model: it closes a window while the sender's last packet
    had to `stay`, and has sent more than the acknowledgement covers.
    """

    closing: Sequence[bool]
    ends: tuple[End, End] = field(default_factory=lambda: (End(), End()))
    stays: list[bool] = field(default_factory=lambda: [False, False])
    passed: list[int] = field(default_factory=lambda: [0, 0])
    """The position up to which the switch has seen each end send."""
    way: dict[tuple[int, int, int], deque[Segment]] = field(
        default_factory=lambda: {
            (end, leg, pure): deque() for end in (0, 1) for leg in (0, 1) for pure in (0, 1)
        }
    )
    """The segments on their way.

    The key is the sender, whether they are behind the switch, and whether they are pure
    acknowledgements.
    """

    def put(self, end: int, one: Segment | None) -> bool:
        if one is not None:
            self.way[end, 0, int(one.seq == one.end)].append(one)
        return one is not None

    def move(self, end: int, leg: int, pure: int) -> bool:
        """Let the first packet of a queue go on; return whether there was one."""
        queue = self.way[end, leg, pure]
        if not queue:
            return False
        one = queue.popleft()
        if leg:
            self.put(1 - end, self.ends[1 - end].receive(one))
            return True
        self.passed[end] = max(self.passed[end], one.end)
        sender = 1 - end
        if self.closing[sender] and self.stays[sender] and one.ack < self.passed[sender]:
            one = Segment(one.seq, one.end, one.ack, 0)
        self.way[end, 1, pure].append(one)
        return True

    def act(self, choice: int) -> None:
        """Do one of 32 things; those that are not possible do nothing."""
        end, what = choice & 1, choice >> 1
        match what:
            case 0 | 1 | 2 | 3:
                self.put(end, self.ends[end].send())
            case 4 | 5:
                self.ends[end].written += 3
            case 6:
                self.stays[end] = not self.stays[end]
            case 7:
                self.put(end, self.ends[end].time_out())
            case 8:
                for pure in (1, 0):
                    if self.way[end, 1, pure]:
                        self.way[end, 1, pure].popleft()  # lost
                        break
            case _:
                self.move(end, *divmod(what & 3, 2))

    def finish(self, most_time_outs: int) -> int | None:
        """Deliver all, time out where nothing moves; return the number of time-outs, or None: more,
        so it is stuck.
        """
        for time_outs in range(most_time_outs + 1):
            moved = True
            while moved:
                moved = False
                for queue in self.way:
                    while self.move(*queue):
                        moved = True
                for end in (0, 1):
                    moved |= self.put(end, self.ends[end].send())
            if all(end.snd_una == end.written for end in self.ends):
                return time_outs
            for end in (0, 1):
                self.put(end, self.ends[end].time_out())
        return None
