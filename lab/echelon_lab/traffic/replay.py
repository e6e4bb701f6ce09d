"""Schedules over real sockets: `send` on the hosts that send, `receive` on those that receive.

Several processes share the flows of a schedule. They send open loop: a flow's connection is opened
at its scheduled time, however many are under way. The processes of one machine use one clock
(`CLOCK_MONOTONIC`).
"""

from __future__ import annotations

import errno
import gc
import math
import multiprocessing
import os
import resource
import select
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

from echelon.model.errors import Code, CodedError
from echelon_lab.traffic.outcome import FlowOutcome, TrafficSummary, summary
from echelon_lab.traffic.schedule import PacedFlow, Schedule, ScheduledFlow
from echelon_lab.traffic.sender import Result, SocketOptions, TrafficSender
from echelon_lab.traffic.wire import Receipt, Reception, WireError, now_ns, own_clock

DEFAULT_PROCESSES = min(os.cpu_count() or 1, 4)
_LEAD_NS = 200_000_000
"""Time from the start of the processes to time 0, unless another is given."""
_TURN_S = 0.2
_HEAR_OUT_S = 10.0


class ReplayError(CodedError):
    """A replay is impossible. The message is one line: what, where, what to do."""

    code: Code = "run-failed"


@dataclass(frozen=True)
class Replay:
    """A replay's flows and what became of them. Times are seconds since the schedule's time 0."""

    outcomes: tuple[FlowOutcome, ...]
    """Outcomes of all flows that were due before the end, by start."""
    duration_s: float
    """Length of the schedule."""
    ended_s: float
    """Time at which the replay ended."""
    ecn_flows: int
    """Flows whose two ends had agreed on ECN."""
    not_due: int
    """Flows that were left out because the replay was stopped before their start."""

    @property
    def lateness_s(self) -> list[float]:
        """Return how much later than scheduled each flow began, ascending.

        Pieces of long flows wait for each other, so they are left out.
        """
        late_s = []
        for outcome in self.outcomes:
            flow = outcome.flow
            if not isinstance(flow, PacedFlow):
                late_s.append(outcome.started_s - flow.start_us / 1e6)
        return sorted(late_s)

    def summary(self, capacity_bps: float | None = None) -> TrafficSummary:
        """Return the summary of the schedule's whole duration, or of the part that was sent."""
        return summary(self.outcomes, 0.0, self.until_s, capacity_bps)

    @property
    def until_s(self) -> float:
        """End of the time that the loads of `summary` cover."""
        if self.not_due:
            return max(min(self.duration_s, self.ended_s), 1e-6)
        return max(self.duration_s, 1e-6)

    def intervals(self, length_s: float) -> list[tuple[float, TrafficSummary]]:
        """Yield (start, summary) of each interval of `length_s`, in order.

        The last interval may be shorter.
        """
        count = max(math.ceil(self.until_s / length_s - 1e-6), 1)
        parts: list[list[FlowOutcome]] = [[] for _ in range(count)]
        for outcome in self.outcomes:
            # Each flow is looked at only where it matters:
            # where it was to start and while it was received.
            due = outcome.flow.start_us / 1e6
            end_s = outcome.finished_s or (outcome.received or (outcome.started_s, 0))[0]
            first = max(int(due / length_s), 0)
            last = min(int(max(end_s, due) / length_s), count - 1)
            for index in range(first, last + 1):
                parts[index].append(outcome)

        intervals = []
        for index, part in enumerate(parts):
            begin_s = index * length_s
            # The last interval ends with the replay.
            end_s = (index + 1) * length_s
            if index == count - 1:
                end_s = self.until_s
            intervals.append((begin_s, summary(part, begin_s, end_s)))
        return intervals


@dataclass(frozen=True)
class SendOptions:
    processes: int = DEFAULT_PROCESSES
    sockets: SocketOptions = field(default_factory=SocketOptions)
    begin_ns: int | None = None
    """Time 0 by `CLOCK_MONOTONIC`, nanoseconds; None for as soon as the processes run."""
    wait_s: float = 10.0
    """The time that flows under way have to finish after the schedule's end."""


Progress = Callable[[float, int, int], bool]
"""Function of (seconds since time 0, flows finished, flows failed) that returns whether to go on.

It is called several times a second.
"""


def send(
    schedule: Schedule,
    sources: Collection[str],
    addresses: Mapping[str, tuple[str, int]],
    options: SendOptions | None = None,
    progress: Progress = lambda elapsed_s, finished, failed: True,
) -> Replay:
    """Send the flows of `schedule` whose source is one of `sources`.

    `addresses` gives the IPv4 address and the TCP port of the receiver by host. Where it has a
    source, the source's flows come from that address. An exception of `progress`, such as an
    interruption, or its False ends the replay early: the flows that were under way are unfinished.

    Raises `ReplayError`.
    """
    options = options or SendOptions()
    flows = [flow for flow in schedule.flows if flow.src in sources]
    if not flows:
        raise ReplayError(
            f"the schedule has no flow from {', '.join(sources)} (see echelon traffic show)",
            code="unknown-host",
        )
    for host in dict.fromkeys(flow.dst for flow in flows):
        if host not in addresses:
            raise ReplayError(
                f"the address of host {host} is not known"
                f" (give --host {host}=ADDRESS, or --fabric)",
                code="unknown-host",
            )
    source_addresses = {}
    for host in sources:
        if host in addresses:
            source_addresses[host] = addresses[host][0]
    _check_sockets(options.sockets, source_addresses)
    if options.begin_ns is None:
        begin_ns = now_ns() + _LEAD_NS
    else:
        begin_ns = options.begin_ns
    end_ns = begin_ns + schedule.duration_us * 1000 + round(options.wait_s * 1e9)
    works = []
    for part in _parts(flows, options.processes):
        works.append(partial(_send_part, part, addresses, options.sockets, begin_ns, end_ns))
    results: list[Result] = []
    with Workforce(works) as workforce:
        failed = 0
        going = True
        try:
            while going and workforce.working:
                for batch in workforce.results(_TURN_S):
                    results += batch
                    failed += sum(result.failed is not None for result in batch)
                    going = progress((now_ns() - begin_ns) / 1e9, len(results) - failed, failed)
                    if not going:
                        break
                else:
                    going = progress((now_ns() - begin_ns) / 1e9, len(results) - failed, failed)
            workforce.stop()
            for batch in workforce.results(_HEAR_OUT_S):
                results += batch
        except WorkFailedError as error:
            raise ReplayError(str(error)) from None
    return _replay(schedule, flows, results, begin_ns)


def _parts(flows: Sequence[ScheduledFlow], processes: int) -> list[list[tuple[int, ScheduledFlow]]]:
    """Return (index, flow) pairs for each process. All pieces of a long flow are in one part."""
    count = max(min(processes, len(flows)), 1)
    parts: list[list[tuple[int, ScheduledFlow]]] = [[] for _ in range(count)]
    long: dict[tuple[str, str, int], int] = {}
    for index, flow in enumerate(flows):
        place = index
        if isinstance(flow, PacedFlow):
            place = long.setdefault((flow.src, flow.dst, flow.connection), len(long))
        parts[place % count].append((index, flow))
    return [part for part in parts if part]


def _send_part(
    part: Sequence[tuple[int, ScheduledFlow]],
    addresses: Mapping[str, tuple[str, int]],
    sockets: SocketOptions,
    begin_ns: int,
    end_ns: int,
    stop_fd: int,
    hand_over: Callable[[Any], None],
) -> None:
    TrafficSender(part, addresses, sockets, begin_ns, end_ns, stop_fd, hand_over).run()


def _check_sockets(options: SocketOptions, sources: Mapping[str, str]) -> None:
    """Raise `ReplayError` for settings with which no flow could be sent."""
    try:
        options.socket(None).close()
    except OSError as error:
        settings = f"congestion control {options.congestion}, DSCP {options.dscp}"
        raise ReplayError(
            f"no socket with {settings}: {error.strerror}"
            " (see /proc/sys/net/ipv4/tcp_available_congestion_control)"
        ) from None
    for host, address in sources.items():
        try:
            options.socket(address).close()
        except OSError as error:
            raise ReplayError(
                f"cannot send from {host}, {address}: {error.strerror} (run this on {host})"
            ) from None


def _replay(
    schedule: Schedule,
    flows: Sequence[ScheduledFlow],
    results: Sequence[Result],
    begin_ns: int,
) -> Replay:
    def seconds(at_ns: int) -> float:
        return (at_ns - begin_ns) / 1e9

    outcomes = []
    for result in sorted(results):
        flow = flows[result.number]
        started_s = seconds(result.started_ns)
        finished_s = None
        if result.finished_ns is not None:
            finished_s = seconds(result.finished_ns)
        received = None
        if result.received is not None:
            until_ns, received_bytes = result.received
            received = seconds(until_ns), min(received_bytes, flow.size_bytes)
        outcomes.append(FlowOutcome(flow, started_s, finished_s, received, result.failed))
    ecn = sum(result.ecn for result in results)
    return Replay(
        tuple(outcomes),
        schedule.duration_us / 1e6,
        seconds(now_ns()),
        ecn,
        len(flows) - len(results),
    )


def receive(
    address: str,
    port: int,
    processes: int = DEFAULT_PROCESSES,
    ready: Callable[[int], None] = lambda port: None,
    go_on: Callable[[], bool] = lambda: True,
) -> Received:
    """Receive flows at `address` until `go_on` returns False or raises.

    It is called several times a second.

    `ready` is called with the port, which the system chooses if `port` is 0, once connections are
    accepted. Raises `ReplayError`.
    """
    total = Received()
    with ExitStack() as stack:
        listeners: list[socket.socket] = []
        for _ in range(processes):
            listeners.append(stack.enter_context(_listener(address, port)))
            port = listeners[0].getsockname()[1]
        works = [partial(_receive_part, listener) for listener in listeners]
        workforce = stack.enter_context(Workforce(works))
        for listener in listeners:
            listener.close()
        ready(port)
        try:
            try:
                while go_on() and workforce.working:
                    for received in workforce.results(_TURN_S):
                        total.add(received)
            finally:
                workforce.stop()
                for received in workforce.results(_HEAR_OUT_S):
                    total.add(received)
        except WorkFailedError as error:
            raise ReplayError(str(error)) from None
    return total


def _receive_part(
    listener: socket.socket,
    stop_fd: int,
    hand_over: Callable[[Any], None],
) -> None:
    hand_over(TrafficReceiver(listener, stop_fd).run())


def _listener(address: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # The system spreads connections over the listening sockets of a port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((address, port))
        listener.listen(4096)
    except OSError as error:
        listener.close()
        reason = f"{error.strerror} (give an address of this host and a free port)"
        raise ReplayError(
            f"cannot receive at {address}:{port}: {reason}", code="cannot-listen"
        ) from None
    return listener


_BUFFER_BYTES = 1 << 20
_READS_AT_ONCE = 4
"""Maximum number of bytes read from one connection before the others have their turn."""


@dataclass(slots=True)
class Received:
    """Counts of one receiver."""

    total_bytes: int = 0
    """Bytes received, headers included, as in a flow's size."""
    transfers: int = 0
    """Whole transfers."""
    broken: int = 0
    """Connections that ended within a transfer, or did not follow the protocol."""

    def add(self, other: Received) -> None:
        self.total_bytes += other.total_bytes
        self.transfers += other.transfers
        self.broken += other.broken


class TrafficReceiver:
    """A server of a listening socket, until `stop_fd` can be read or its other end is closed."""

    def __init__(self, listener: socket.socket, stop_fd: int) -> None:
        self._listener = listener
        self._stop_fd = stop_fd
        self._open: dict[int, tuple[socket.socket, Reception]] = {}
        self._buffer = bytearray(_BUFFER_BYTES)
        self._epoll = select.epoll()
        # Read now: later all descriptors may be in use.
        self._clock = own_clock()
        self._full = False
        """Set when no more connections are accepted."""
        self.seen = Received()

    def run(self) -> Received:
        self._listener.setblocking(False)
        listener_fd = self._listener.fileno()
        self._epoll.register(listener_fd, select.EPOLLIN)
        self._epoll.register(self._stop_fd, select.EPOLLIN)
        try:
            while True:
                for fd, _ in self._epoll.poll():
                    if fd == self._stop_fd:
                        return self.seen
                    if fd == listener_fd:
                        self._accept()
                    elif fd in self._open:
                        self._serve(fd)
        finally:
            for connection, _ in self._open.values():
                connection.close()
            self._epoll.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Without descriptors, none can be accepted until a connection ends; otherwise it is
                # gone already.
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._epoll.unregister(self._listener.fileno())
                    self._full = True
                return
            connection.setblocking(False)
            # Keep-alive notices a sender that vanished.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._open[connection.fileno()] = connection, Reception()
            self._epoll.register(connection.fileno(), select.EPOLLIN)

    def _serve(self, fd: int) -> None:
        connection, reception = self._open[fd]
        try:
            for _ in range(_READS_AT_ONCE):
                if not self._read(connection, reception):
                    return
        except BlockingIOError:
            return
        except (OSError, WireError):
            # A sender resets its connections when it has received everything that it waits for.
            self._close(fd, broken=not reception.idle)

    def _read(self, connection: socket.socket, reception: Reception) -> bool:
        """Read once; return whether the connection goes on.

        Raises `BlockingIOError` when there is nothing more for now.
        """
        wanted = reception.header_wants
        if wanted:
            data = connection.recv(wanted)
            count = len(data)
            is_complete = False
            if data:
                is_complete = reception.read_header(data)
        else:
            # The kernel drops the bytes instead of copying them.
            count = connection.recv_into(
                self._buffer, min(reception.left, _BUFFER_BYTES), socket.MSG_TRUNC
            )
            is_complete = False
            if count:
                is_complete = reception.skip(count)
        if not count:
            self._close(connection.fileno(), broken=not reception.idle)
            return False
        self.seen.total_bytes += count
        if is_complete:
            self.seen.transfers += 1
            connection.send(Receipt(self._clock, now_ns()).encoded())
        return True

    def _close(self, fd: int, broken: bool) -> None:
        connection, _ = self._open.pop(fd)
        self.seen.broken += broken
        with suppress(OSError):
            self._epoll.unregister(fd)
        connection.close()
        if self._full:
            self._epoll.register(self._listener.fileno(), select.EPOLLIN)
            self._full = False


Work = Callable[[int, Callable[[Any], None]], None]
"""Work for a process of its own.

It is a function of a descriptor, which can be read at its end once it is time to stop, and of a
function that hands a value to the parent. Values must be picklable.
"""

_STOP_WITHIN_S = 10.0
"""The time that processes have to end after being told to stop."""


class WorkFailedError(CodedError, RuntimeError):
    """A process ended before its work did. The message is one line."""

    code: Code = "run-failed"


class Workforce:
    """A context manager that forks a process for each of `works`, and stops them at its end."""

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = works
        self._processes: list[BaseProcess] = []
        self._results: dict[Connection, BaseProcess] = {}
        self._stop_write = -1

    def __enter__(self) -> Self:
        # Forked, so that a million flows need not be sent to them.
        context = multiprocessing.get_context("fork")
        stop_read, self._stop_write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            for work in self._works:
                reader, writer = context.Pipe(duplex=False)
                inherited = [reader, *self._results]
                process = context.Process(
                    target=_child,
                    args=(work, stop_read, self._stop_write, writer, inherited),
                    daemon=True,
                )
                with warnings.catch_warnings():
                    # Newer Pythons warn of forking beside threads: of locks that these hold at that
                    # moment. The children use none but the interpreter's own,
                    # which it sets free in them.
                    warnings.filterwarnings(
                        "ignore", "This process .* is multi-threaded", DeprecationWarning
                    )
                    process.start()
                writer.close()
                self._processes.append(process)
                self._results[reader] = process
        except BaseException:
            self.__exit__(None, None, None)
            raise
        finally:
            os.close(stop_read)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for reader in self._results:
            reader.close()
        deadline = time.monotonic() + _STOP_WITHIN_S
        for process in self._processes:
            process.join(max(deadline - time.monotonic(), 0))
            if process.is_alive():
                process.kill()
                process.join()

    def stop(self) -> None:
        """Tell all processes to stop. What they still have to hand over comes from `results`."""
        if self._stop_write >= 0:
            os.close(self._stop_write)
            self._stop_write = -1

    def results(self, timeout_s: float) -> Iterator[Any]:
        """Return what the processes hand over within that time; end early when all have ended.

        Raises `WorkFailedError`.
        """
        until = time.monotonic() + timeout_s
        while self._results:
            ready = wait(list(self._results), max(until - time.monotonic(), 0))
            if not ready:
                return
            for reader in ready:
                assert isinstance(reader, Connection)
                try:
                    failure, value = reader.recv()
                except EOFError:
                    self._ended(reader)
                    continue
                if failure is not None:
                    raise WorkFailedError(failure)
                yield value
            if time.monotonic() >= until:
                return

    @property
    def working(self) -> bool:
        """Return whether a process has not ended, or a value that it handed over was not taken."""
        return bool(self._results)

    def _ended(self, reader: Connection) -> None:
        process = self._results.pop(reader)
        reader.close()
        process.join()
        if process.exitcode:
            raise WorkFailedError(
                f"a process of the replay ended with status {process.exitcode}"
                " (check what killed it)"
            )


def _child(
    work: Work,
    stop_read: int,
    stop_write: int,
    writer: Connection,
    inherited: list[Connection],
) -> None:
    # Only the parent may hold the end of the pipe that stays open as long as it lives, and the ends
    # by which other children notice that nobody listens.
    os.close(stop_write)
    for connection in inherited:
        connection.close()
    # Ctrl-C interrupts all processes of a command; the parent tells its processes to stop and waits
    # for their results.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.freeze()
    try:
        work(stop_read, lambda value: writer.send((None, value)))
    except BrokenPipeError:
        pass
    except Exception as error:
        with suppress(OSError):
            writer.send((f"{type(error).__name__}: {error}", None))


SETTING = Path("/proc/sys/net/ipv4/tcp_ecn")
"""The setting, in the network namespace of the process that opens it."""
ASK = "1"

HOW = "run: sysctl -w net.ipv4.tcp_ecn=1 (in the sender's network namespace)"


def asks_for_ecn() -> bool:
    """Return whether new connections from this network namespace ask for ECN by its setting.

    Routes can ask as well.

    No socket option asks for ECN: of IP_TOS, Linux leaves the two bits alone on TCP sockets, and
    sets ECT by itself on connections whose ends agreed on ECN when they were opened. An end accepts
    it by default (value 2); to ask for it, one of

    * ``net.ipv4.tcp_ecn`` = 1 in the sender's network namespace: all of its connections ask,
    * ``ip route change ... features ecn``: those over a route ask,
    * a congestion control that needs ECN, as dctcp: sockets that use it ask.
    """
    try:
        return SETTING.read_text(encoding="ascii").strip() == ASK
    except OSError:
        return False
