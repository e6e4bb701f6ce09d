"""The other end of the workers' sockets: it brings the workers up together, keeps the barrier, and notices lost
workers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from echelon.errors import RunError
from echelon.lab.hosts.loop import RealTimeLoop
from echelon.lab.hosts.workers.coordination import Coordination
from echelon.lab.hosts.workers.messages import (
    Begin,
    Connect,
    Connected,
    Failed,
    IterationDone,
    Lines,
    Order,
    StartBackground,
    StepFinished,
    StepStarted,
    Stopped,
    StopWorkers,
    WorkerReady,
    encode,
)

LEAST_LEAD_S = 0.05
"""Minimum time from the order to begin to time 0, so that all workers have the order by then."""


class _Connection:
    """A connection to one worker."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.lines = Lines()
        self.host: str | None = None

    def send(self, order: Order) -> None:
        with suppress(ConnectionError):  # the reading side notices that it is gone
            self.socket.sendall(encode(order))


class Coordinator:
    """The coordinator of the workers of `hosts`, for which it listens at `path`. It runs in `loop`, which raises
    `RunError`.

    `on_connected` is called when all workers are ready to begin, `on_start(origin_ns)` when time 0 of the run has been
    set, which is `lead_s` later (or a little more). `on_stopped` is called when all jobs are done and all workers have
    sent their last message.
    """

    def __init__(
        self,
        loop: RealTimeLoop,
        path: Path,
        hosts: Collection[str],
        coordination: Coordination,
        *,
        lead_s: float,
        on_connected: Callable[[], None],
        on_start: Callable[[int], None],
        on_stopped: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._coordination = coordination
        self._lead_ns = round(max(lead_s, LEAST_LEAD_S) * 1_000_000_000)
        self._on_connected = on_connected
        self._on_start = on_start
        self._on_stopped = on_stopped
        self._not_ready = set(hosts)
        self._unconnected = set(hosts)
        self._unstopped = set(hosts)
        self._present: dict[str, _Connection] = {}
        self._stopping = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen(len(hosts))
        loop.on_readable(self._socket.fileno(), self._on_connection)

    @property
    def missing(self) -> Sequence[str]:
        """Hosts that are not ready, or not connected to each other, yet."""
        return sorted(self._not_ready or self._unconnected)

    def close(self) -> None:
        for connection in self._present.values():
            connection.socket.close()
        self._socket.close()

    def _on_connection(self) -> None:
        accepted, _ = self._socket.accept()
        connection = _Connection(accepted)
        self._loop.on_readable(accepted.fileno(), lambda: self._on_readable(connection))

    def _on_readable(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(1 << 16, socket.MSG_DONTWAIT)
        except ConnectionError:
            data = b""
        for message in connection.lines.feed(data):
            match message:
                case StepStarted() | StepFinished():
                    if not self._stopping:
                        self._coordination.note(message)
                case IterationDone():
                    if not self._stopping:
                        self._begin(self._coordination.worker_done(message, self._loop.now_ns))
                        if self._coordination.done:
                            self.stop()
                case WorkerReady(host):
                    connection.host = host
                    self._present[host] = connection
                    self._not_ready.discard(host)
                    if not self._not_ready:
                        self._tell_all(Connect())
                case Connected(host):
                    self._unconnected.discard(host)
                    if not self._unconnected:
                        self._on_connected()
                case Stopped(host):
                    self._unstopped.discard(host)
                    if not self._unstopped:
                        self._on_stopped()
                case Failed(host, problem):
                    raise RunError(f"host {host}: {problem}")
        if not data:
            self._gone(connection)

    def start(self) -> None:
        """Set time 0 of the run, and tell all workers to begin."""
        origin_ns = self._loop.now_ns + self._lead_ns
        self._on_start(origin_ns)
        self._tell_all(StartBackground(origin_ns))
        self._begin(self._coordination.start(origin_ns))

    def _begin(self, orders: Sequence[Begin]) -> None:
        for order in orders:
            for host in sorted(self._coordination.busy_workers(order.job)):
                self._present[host].send(order)

    def _tell_all(self, order: Order) -> None:
        for connection in self._present.values():
            connection.send(order)

    def stop(self) -> None:
        """Tell all workers that the run is over. Idempotent."""
        if self._stopping:
            return
        self._stopping = True
        self._tell_all(StopWorkers())
        if not self._unstopped:
            self._on_stopped()

    def _gone(self, connection: _Connection) -> None:
        self._loop.on_readable(connection.socket.fileno(), None)
        connection.socket.close()
        raise RunError(f"host {connection.host or '(unknown)'}: its worker has ended before the run did")
