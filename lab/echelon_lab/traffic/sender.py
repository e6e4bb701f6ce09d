"""One sending process.

It opens each flow's connection when it is due, whatever happens to earlier flows, and sends its
bytes.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import select
import socket
import struct
import termios
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from echelon_lab.traffic.schedule import PacedFlow, ScheduledFlow
from echelon_lab.traffic.wire import (
    HEADER_BYTES,
    RECEIPT_BYTES,
    WireError,
    decode_receipt,
    header,
    now_ns,
    own_clock,
    transfer_bytes,
)

BURST_BYTES = 16 * 1024
"""Approximate size of a portion for the socket.

Smaller ones would wake the sender more often than flows gain by it.
"""
MIN_TICK_NS = 1_000_000
MAX_TICK_NS = 50_000_000


class Pacer:
    """The pace of one long flow, sent at a mean of `rate_bps` from `begin_ns` on."""

    __slots__ = ("_begin_ns", "_rate_bps", "due_bytes", "tick_ns")

    def __init__(self, begin_ns: int, rate_bps: int) -> None:
        self._begin_ns = begin_ns
        self._rate_bps = rate_bps
        self.due_bytes = 0
        """Bytes of all pieces that have begun. More is never allowed."""
        self.tick_ns = min(max(BURST_BYTES * 8 * 10**9 // rate_bps, MIN_TICK_NS), MAX_TICK_NS)
        """The time between two portions."""

    def allowed(self, now_ns: int) -> int:
        """Return how many bytes may have been sent by then.

        That is a portion ahead, so that the rate is met.
        """
        ahead_ns = now_ns - self._begin_ns + self.tick_ns
        return min(ahead_ns * self._rate_bps // (8 * 10**9), self.due_bytes)


_PAYLOAD = memoryview(bytes(1 << 18))
_SENDS_AT_ONCE = 4
"""Maximum number of bytes sent of one flow before the others have their turn."""
_REPORT_EVERY_NS = 200_000_000

_IP_BIND_ADDRESS_NO_PORT = 24
"""Option from <linux/in.h>: the port is chosen when the destination is known.

Many connections can then share it.
"""
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
"""Linger for 0 seconds.

No state remains that would keep the connection's port from being used again.
"""
_TCPI_OPTIONS_OFFSET, _TCPI_OPT_ECN = 5, 8
"""Position in struct tcp_info of <linux/tcp.h>."""


class Result(NamedTuple):
    """The outcome of a flow, with times by the monotonic clock."""

    number: int
    """Position among all flows that were to be sent."""
    started_ns: int
    finished_ns: int | None
    received: tuple[int, int] | None
    """Progress of a flow that was under way at the end.

    It is (when, bytes that the other end's system had acknowledged by then).
    """
    failed: str | None
    ecn: bool
    """Whether the two ends had agreed on ECN."""


@dataclass(frozen=True)
class SocketOptions:
    dscp: int | None = None
    """Differentiated services code point, 0 to 63; None for the system's default."""
    congestion: str | None = None
    """Name of the system's congestion control to use, as in ``reno``; None for its default."""

    def socket(self, source: str | None) -> socket.socket:
        """Return a non-blocking TCP socket with the address `source`, if any. Raises `OSError`."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            if self.dscp is not None:
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, self.dscp << 2)
            if self.congestion is not None:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self.congestion.encode())
            if source is not None:
                sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
                sock.bind((source, 0))
        except BaseException:
            sock.close()
            raise
        return sock


class _Transfer:
    """A flow on its connection."""

    __slots__ = ("begin_at", "end_at", "flow", "number", "started_ns")

    def __init__(
        self,
        number: int,
        flow: ScheduledFlow,
        begin_at: int,
    ) -> None:
        self.number = number
        self.flow = flow
        self.begin_at = begin_at
        """Position of its first byte among all bytes of the connection."""
        self.end_at = begin_at + transfer_bytes(flow.size_bytes)
        self.started_ns = 0


class _Connection:
    __slots__ = (
        "answer",
        "failed",
        "pacer",
        "position",
        "sending",
        "sock",
        "ticking",
        "total",
        "waiting",
        "writing",
    )

    def __init__(self, sock: socket.socket, pacer: Pacer | None) -> None:
        self.sock = sock
        self.pacer = pacer
        self.sending: deque[_Transfer] = deque()
        """Transfers with bytes left to send; the first is under way."""
        self.waiting: deque[_Transfer] = deque()
        """Transfers that have been sent, for their receipts."""
        self.position = 0
        """Bytes sent so far."""
        self.total = 0
        """Bytes of all transfers so far."""
        self.answer = b""
        self.writing = True
        """Whether the system is asked to tell when there is room for more.

        First it tells that the connection stands.
        """
        self.ticking = False
        self.failed: str | None = None

    def add(self, number: int, flow: ScheduledFlow) -> _Transfer:
        transfer = _Transfer(number, flow, self.total)
        self.total = transfer.end_at
        if self.pacer is not None:
            self.pacer.due_bytes = self.total
        self.sending.append(transfer)
        return transfer

    def acknowledged(self) -> int:
        """Return the bytes that the other end's system has acknowledged."""
        with suppress(OSError):
            unsent = struct.unpack("i", fcntl.ioctl(self.sock, termios.TIOCOUTQ, b"\0\0\0\0"))[0]
            return max(self.position - int(unsent), 0)
        return 0

    def ecn(self) -> bool:
        with suppress(OSError):
            info = self.sock.getsockopt(
                socket.IPPROTO_TCP, socket.TCP_INFO, _TCPI_OPTIONS_OFFSET + 1
            )
            return bool(info[_TCPI_OPTIONS_OFFSET] & _TCPI_OPT_ECN)
        return False


class TrafficSender:
    """A sender of `flows`, (number, flow) sorted by start.

    It sends from the monotonic time `begin_ns` on, to `addresses` by host.

    Ends when all have finished, at `end_ns`, or when `stop_fd` can be read or is closed at its
    other end. Where the address of a source is known, too, its flows come from it. `report` is
    called with results every now and then and, of everything that was begun, before the end.
    """

    def __init__(
        self,
        flows: Sequence[tuple[int, ScheduledFlow]],
        addresses: Mapping[str, tuple[str, int]],
        options: SocketOptions,
        begin_ns: int,
        end_ns: int,
        stop_fd: int,
        report: Callable[[list[Result]], None],
    ) -> None:
        self._flows = flows
        self._addresses = addresses
        self._options = options
        self._begin_ns = begin_ns
        self._end_ns = end_ns
        self._stop_fd = stop_fd
        self._report = report
        self._results: list[Result] = []
        self._next = 0
        self._open: dict[int, _Connection] = {}
        self._long: dict[tuple[str, str, int], _Connection] = {}
        self._ticks: list[tuple[int, int]] = []
        """Heap of paced flows that wait: (when, descriptor of the connection)."""
        self._unanswered = 0
        """Transfers under way."""
        self._epoll = select.epoll()
        # Read now: later all descriptors may be in use.
        self._clock = own_clock()

    def run(self) -> None:
        self._epoll.register(self._stop_fd, select.EPOLLIN)
        report_ns = now_ns() + _REPORT_EVERY_NS
        try:
            while True:
                now = now_ns()
                wake_ns = self._start_due(now)
                wake_ns = min(wake_ns, self._tick(now))
                if now >= self._end_ns or (self._next == len(self._flows) and not self._unanswered):
                    break
                if now >= report_ns:
                    self._flush()
                    report_ns = now + _REPORT_EVERY_NS
                wake_ns = min(wake_ns, self._end_ns)
                if self._results:
                    wake_ns = min(wake_ns, report_ns)
                if self._handle(wake_ns):
                    break
            self._abandon()
            self._flush()
        finally:
            for connection in self._open.values():
                connection.sock.close()
            self._epoll.close()

    def _flush(self) -> None:
        if self._results:
            self._report(self._results)
            self._results = []

    def _start_due(self, now: int) -> int:
        """Begin what is due; return when the next flow is due."""
        while self._next < len(self._flows):
            number, flow = self._flows[self._next]
            due_ns = self._begin_ns + flow.start_us * 1000
            if due_ns > now:
                return due_ns
            self._next += 1
            self._start(number, flow)
        return self._end_ns

    def _start(self, number: int, flow: ScheduledFlow) -> None:
        now = now_ns()
        try:
            connection = self._connection_of(flow, now)
        except OSError as error:
            self._results.append(Result(number, now, None, None, _reason(error), False))
            return
        if connection.failed is not None:
            self._results.append(Result(number, now, None, None, connection.failed, False))
            return
        transfer = connection.add(number, flow)
        transfer.started_ns = now
        self._unanswered += 1
        if not connection.writing and not connection.ticking:
            self._write(connection, now)

    def _connection_of(self, flow: ScheduledFlow, now: int) -> _Connection:
        if not isinstance(flow, PacedFlow):
            return self._connect(flow, None)
        key = flow.src, flow.dst, flow.connection
        if key not in self._long:
            self._long[key] = self._connect(flow, Pacer(now, flow.rate_bps))
        return self._long[key]

    def _connect(self, flow: ScheduledFlow, pacer: Pacer | None) -> _Connection:
        source = self._addresses.get(flow.src)
        sock = self._options.socket(source and source[0])
        try:
            # The system tells by EPOLLOUT when the connection stands.
            with suppress(BlockingIOError):
                sock.connect(self._addresses[flow.dst])
            self._epoll.register(sock.fileno(), select.EPOLLIN | select.EPOLLOUT)
        except BaseException:
            sock.close()
            raise
        connection = self._open[sock.fileno()] = _Connection(sock, pacer)
        return connection

    def _tick(self, now: int) -> int:
        """Resume paced flows whose time has come; return when the next one's comes."""
        while self._ticks:
            at_ns, fd = self._ticks[0]
            if at_ns > now:
                return at_ns
            heapq.heappop(self._ticks)
            connection = self._open.get(fd)
            # It may have failed meanwhile, and its descriptor be that of another connection.
            if connection is not None and connection.ticking:
                connection.ticking = False
                self._write(connection, now)
        return self._end_ns

    def _handle(self, wake_ns: int) -> bool:
        """Wait for the sockets until `wake_ns` and serve them.

        Return whether it is time to stop.
        """
        # epoll counts in milliseconds, select in microseconds; and epoll's own descriptor can be
        # waited for.
        timeout_s = (wake_ns - now_ns()) / 1e9
        if timeout_s > 0:
            select.select([self._epoll.fileno()], [], [], timeout_s)
        for fd, events in self._epoll.poll(0):
            if fd == self._stop_fd:
                return True
            connection = self._open.get(fd)
            if connection is None:
                continue
            if events & (select.EPOLLERR | select.EPOLLHUP):
                code = connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                reason = "connection closed by the receiver"
                if code:
                    reason = os.strerror(code)
                self._fail(connection, reason)
                continue
            if events & select.EPOLLIN:
                self._read(connection)
            # Reading may have closed it.
            if events & select.EPOLLOUT and fd in self._open and connection.writing:
                self._write(connection, now_ns())
        return False

    def _write(self, connection: _Connection, now: int) -> None:
        try:
            for _ in range(_SENDS_AT_ONCE):
                if not self._send(connection, now):
                    return
        except BlockingIOError:
            self._watch(connection, writing=True)
        except OSError as error:
            self._fail(connection, _reason(error))
        else:
            # Others get their turn first; the system tells at once if there is room.
            self._watch(connection, writing=True)

    def _send(self, connection: _Connection, now: int) -> bool:
        """Hand a portion to the system; return whether there may be more for now."""
        if not connection.sending:
            self._watch(connection, writing=False)
            return False
        transfer = connection.sending[0]
        room = transfer.end_at - connection.position
        if connection.pacer is not None:
            room = min(room, connection.pacer.allowed(now) - connection.position)
            if room <= 0:
                self._watch(connection, writing=False)
                connection.ticking = True
                heapq.heappush(
                    self._ticks, (now + connection.pacer.tick_ns, connection.sock.fileno())
                )
                return False
        offset = connection.position - transfer.begin_at
        # A paced flow starts with its first byte, which may have waited for earlier flows.
        if not offset and connection.pacer is not None:
            transfer.started_ns = now
        connection.position += connection.sock.sendmsg(_portion(transfer, offset, room))
        if connection.position == transfer.end_at:
            connection.waiting.append(connection.sending.popleft())
        return True

    def _watch(self, connection: _Connection, writing: bool) -> None:
        if connection.writing != writing:
            connection.writing = writing
            if writing:
                events = select.EPOLLIN | select.EPOLLOUT
            else:
                events = select.EPOLLIN
            self._epoll.modify(connection.sock.fileno(), events)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(RECEIPT_BYTES - len(connection.answer))
            if not data:
                raise WireError("connection closed by the receiver")
            connection.answer += data
            if len(connection.answer) < RECEIPT_BYTES:
                return
            receipt = decode_receipt(connection.answer)
            connection.answer = b""
            if not connection.waiting:
                raise WireError("the receiver answered too early")
        except BlockingIOError:
            return
        except (OSError, WireError) as error:
            self._fail(connection, _reason(error))
            return
        transfer = connection.waiting.popleft()
        finished_ns = receipt.read_by(self._clock, now_ns())
        self._results.append(
            Result(transfer.number, transfer.started_ns, finished_ns, None, None, connection.ecn())
        )
        self._unanswered -= 1
        if connection.pacer is None:
            self._close(connection)

    def _fail(self, connection: _Connection, reason: str) -> None:
        connection.failed = reason
        for transfer in (*connection.waiting, *connection.sending):
            self._results.append(
                Result(transfer.number, transfer.started_ns, None, None, reason, connection.ecn())
            )
            self._unanswered -= 1
        self._close(connection)

    def _abandon(self) -> None:
        for connection in self._open.values():
            acknowledged = connection.acknowledged()
            now = now_ns()
            for transfer in (*connection.waiting, *connection.sending):
                received = min(
                    max(acknowledged - transfer.begin_at, 0), transfer.end_at - transfer.begin_at
                )
                result = Result(
                    transfer.number,
                    transfer.started_ns,
                    None,
                    (now, received),
                    None,
                    connection.ecn(),
                )
                self._results.append(result)

    def _close(self, connection: _Connection) -> None:
        fd = connection.sock.fileno()
        self._open.pop(fd, None)
        with suppress(OSError):
            self._epoll.unregister(fd)
        connection.sock.close()


def _portion(
    transfer: _Transfer,
    offset: int,
    room: int,
) -> list[bytes | memoryview]:
    """Return up to `room` bytes of a transfer from `offset` on."""
    if offset >= HEADER_BYTES:
        return [_PAYLOAD[:room]]
    head = header(transfer.flow.size_bytes)[offset : offset + room]
    return [head, _PAYLOAD[: room - len(head)]]


def _reason(error: OSError | WireError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
