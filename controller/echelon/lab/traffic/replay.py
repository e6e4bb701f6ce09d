"""Schedules over real sockets: `send` on the hosts that send, `receive` on those that receive.

Several processes share the flows of a schedule. They send open loop: a flow's connection is opened at its scheduled
time, however many are under way. The processes of one machine use one clock (`CLOCK_MONOTONIC`).
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from echelon.errors import Code, CodedError
from echelon.lab.traffic.clock import now_ns
from echelon.lab.traffic.outcome import FlowOutcome, TrafficSummary, summary
from echelon.lab.traffic.receiver import Received, TrafficReceiver
from echelon.lab.traffic.schedule import PacedFlow, Schedule, ScheduledFlow
from echelon.lab.traffic.sender import Result, SocketOptions, TrafficSender
from echelon.lab.traffic.workforce import WorkFailedError, Workforce

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
        """Return how much later than scheduled each flow began, ascending. Pieces of long flows wait for each other, so
        they are left out."""
        return sorted(o.started_s - o.flow.start_us / 1e6 for o in self.outcomes if not isinstance(o.flow, PacedFlow))

    def summary(self, capacity_bps: float | None = None) -> TrafficSummary:
        """Return the summary of the schedule's whole duration, or of the part that was sent."""
        return summary(self.outcomes, 0.0, self.until_s, capacity_bps)

    @property
    def until_s(self) -> float:
        """End of the time that the loads of `summary` cover."""
        return max(min(self.duration_s, self.ended_s), 1e-6) if self.not_due else max(self.duration_s, 1e-6)

    def intervals(self, length_s: float) -> list[tuple[float, TrafficSummary]]:
        """Yield (start, summary) of each interval of `length_s`, in order. The last interval may be shorter."""
        count = max(math.ceil(self.until_s / length_s - 1e-6), 1)
        parts: list[list[FlowOutcome]] = [[] for _ in range(count)]
        for outcome in self.outcomes:
            # Each flow is looked at only where it matters: where it was to start and while it was received.
            due = outcome.flow.start_us / 1e6
            end_s = outcome.finished_s or (outcome.received or (outcome.started_s, 0))[0]
            for at in range(max(int(due / length_s), 0), min(int(max(end_s, due) / length_s), count - 1) + 1):
                parts[at].append(outcome)
        ends_s = [*((at + 1) * length_s for at in range(count - 1)), self.until_s]
        return [(at * length_s, summary(part, at * length_s, ends_s[at])) for at, part in enumerate(parts)]


@dataclass(frozen=True)
class SendOptions:
    processes: int = DEFAULT_PROCESSES
    sockets: SocketOptions = field(default_factory=SocketOptions)
    begin_ns: int | None = None
    """Time 0 by `CLOCK_MONOTONIC`, nanoseconds; None for as soon as the processes run."""
    wait_s: float = 10.0
    """How long flows under way may take to finish after the schedule's end."""


Progress = Callable[[float, int, int], bool]
"""Function of (seconds since time 0, flows finished, flows failed) that returns whether to go on. It is called several
times a second."""


def send(
    schedule: Schedule,
    sources: Collection[str],
    addresses: Mapping[str, tuple[str, int]],
    options: SendOptions | None = None,
    progress: Progress = lambda elapsed_s, finished, failed: True,
) -> Replay:
    """Send the flows of `schedule` whose source is one of `sources`.

    `addresses` gives the IPv4 address and the TCP port of the receiver by host. Where it has a source, the source's
    flows come from that address. An exception of `progress`, such as an interruption, or its False ends the replay
    early: the flows that were under way are unfinished.

    Raises `ReplayError`.
    """
    options = options or SendOptions()
    flows = [flow for flow in schedule.flows if flow.src in sources]
    if not flows:
        raise ReplayError(f"the schedule has no flow from {', '.join(sources)} (see echelon traffic show)")
    for host in dict.fromkeys(flow.dst for flow in flows):
        if host not in addresses:
            raise ReplayError(f"the address of host {host} is not known (give --host {host}=ADDRESS, or --fabric)")
    _check_sockets(options.sockets, {host: addresses[host][0] for host in sources if host in addresses})
    begin_ns = now_ns() + _LEAD_NS if options.begin_ns is None else options.begin_ns
    end_ns = begin_ns + schedule.duration_us * 1000 + round(options.wait_s * 1e9)
    works = [
        partial(_send_part, part, addresses, options.sockets, begin_ns, end_ns)
        for part in _parts(flows, options.processes)
    ]
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
        at = index
        if isinstance(flow, PacedFlow):
            at = long.setdefault((flow.src, flow.dst, flow.connection), len(long))
        parts[at % count].append((index, flow))
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
        what = f"congestion control {options.congestion}, DSCP {options.dscp}"
        raise ReplayError(
            f"no socket with {what}: {error.strerror} (see /proc/sys/net/ipv4/tcp_available_congestion_control)"
        ) from None
    for host, address in sources.items():
        try:
            options.socket(address).close()
        except OSError as error:
            raise ReplayError(f"cannot send from {host}, {address}: {error.strerror} (run this on {host})") from None


def _replay(schedule: Schedule, flows: Sequence[ScheduledFlow], results: Sequence[Result], begin_ns: int) -> Replay:
    def seconds(at_ns: int) -> float:
        return (at_ns - begin_ns) / 1e9

    outcomes = []
    for result in sorted(results):
        flow, received = flows[result.number], result.received
        outcomes.append(
            FlowOutcome(
                flow,
                seconds(result.started_ns),
                None if result.finished_ns is None else seconds(result.finished_ns),
                None if received is None else (seconds(received[0]), min(received[1], flow.size_bytes)),
                result.failed,
            )
        )
    ecn = sum(result.ecn for result in results)
    return Replay(tuple(outcomes), schedule.duration_us / 1e6, seconds(now_ns()), ecn, len(flows) - len(results))


def receive(
    address: str,
    port: int,
    processes: int = DEFAULT_PROCESSES,
    ready: Callable[[int], None] = lambda port: None,
    go_on: Callable[[], bool] = lambda: True,
) -> Received:
    """Receive flows at `address` until `go_on`, which is called several times a second, returns False or raises.

    `ready` is called with the port, which the system chooses if `port` is 0, once connections are accepted. Raises
    `ReplayError`.
    """
    total = Received()
    with ExitStack() as stack:
        listeners: list[socket.socket] = []
        for _ in range(processes):
            listeners.append(stack.enter_context(_listener(address, port)))
            port = listeners[0].getsockname()[1]
        workforce = stack.enter_context(Workforce([partial(_receive_part, listener) for listener in listeners]))
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


def _receive_part(listener: socket.socket, stop_fd: int, hand_over: Callable[[Any], None]) -> None:
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
        raise ReplayError(f"cannot receive at {address}:{port}: {reason}") from None
    return listener
