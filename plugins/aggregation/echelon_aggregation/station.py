"""The thread that carries a worker's packets, and those of a fallback in the same process."""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from time import monotonic

from echelon_aggregation.fallback import Fallback
from echelon_aggregation.frames import Arrived, Frames, Wire, open_wire, read
from echelon_aggregation.membership import Membership
from echelon_aggregation.wire import Kind, Packet
from echelon_aggregation.worker import Collective, Worker

OnDone = Callable[[Exception | None], None]
"""The callback of the station's thread when a collective has ended: with an error, or None."""


class Station:
    """Worker `rank` of a group on its wire.

    Raises `RunError` if there is none. Close it in the end.
    """

    def __init__(
        self,
        membership: Membership,
        rank: int,
        wire: Wire | None = None,
    ) -> None:
        self.membership = membership
        self.worker = Worker(membership.group, rank)
        self.fallback: Fallback | None = None
        self._own = membership.endpoint(rank)
        ranks = range(len(membership.workers))
        self._others = [membership.endpoint(other) for other in ranks]
        self._server = membership.fallback_endpoint
        ends = [self._own]
        if rank == membership.fallback:
            self.fallback = Fallback(membership.group, rank)
            ends.append(self._server)
        self._wire = wire or open_wire(membership.workers[rank].wire, ends)
        self._frames = Frames(self._own, membership.job, membership.flow)
        self._server_frames = Frames(self._server, membership.job, membership.flow)
        # Switches forward what is for one worker by a flow of its own.
        self._answer_frames = [self._server_frames] * len(ranks)
        if membership.answers:
            flows = [membership.answers - other for other in ranks]
            self._answer_frames = [Frames(self._server, membership.job, flow) for flow in flows]
        self._here, self._there = socket.socketpair()
        self._lock = Lock()
        self._submitted: list[tuple[Collective, OnDone, int]] = []
        self._running: deque[tuple[Collective, OnDone, int]] = deque()
        self._failed: Exception | None = None
        self._closing = False
        self.submitted = 0
        """The number of collectives that this worker has begun."""
        self.progress_at = monotonic()
        """The time when the last result came or the last collective was begun."""
        self._thread = Thread(
            target=self._run,
            name=f"aggregation-{rank}",
            daemon=True,
        )
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Return whether a collective has not ended."""
        with self._lock:
            return bool(self._running or self._submitted)

    def submit(
        self,
        collective: Collective,
        on_done: OnDone,
        epoch: int = 0,
    ) -> None:
        """Begin a collective of iteration `epoch`, behind the others. From any thread."""
        with self._lock:
            failed = self._failed
            if failed is None:
                self.submitted += 1
                self._submitted.append((collective, on_done, epoch % 256))
        if failed is not None:
            on_done(failed)
        else:
            self._wake()

    def fail(self, error: Exception) -> None:
        """End all collectives, those to come included, with an error. From any thread."""
        with self._lock:
            self._failed = self._failed or error
        self._wake()

    def close(self) -> None:
        """End the thread, and leave the wire.

        Others may still need this worker's results: agree with them before.
        """
        self._closing = True
        self._wake()
        self._thread.join()
        self._wire.close()
        self._here.close()
        self._there.close()

    def _wake(self) -> None:
        with suppress(BlockingIOError, OSError):
            self._there.send(b"\0")

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._wire.fileno(), select.POLLIN)
        poll.register(self._here.fileno(), select.POLLIN)
        self._here.setblocking(False)
        self._there.setblocking(False)
        while not self._closing:
            wake_at = self.worker.next_wake
            if wake_at is None:
                wait_ms = None
            else:
                wait_ms = max(0.0, (wake_at - monotonic()) * 1000)
            ready = {fd for fd, _ in poll.poll(wait_ms)}
            if self._here.fileno() in ready:
                with suppress(BlockingIOError):
                    self._here.recv(4096)
                self._begin_submitted()
            if self._wire.fileno() in ready:
                self._receive()
            if wake_at is not None:
                self._send(self.worker.wake(monotonic()))
            self._end_done()

    def _begin_submitted(self) -> None:
        with self._lock:
            submitted = self._submitted
            self._submitted = []
            self._running += submitted
            failed = self._failed
        if failed is not None:
            while self._running:
                _, on_done, _ = self._running.popleft()
                on_done(failed)
            return
        for collective, _, _ in submitted:
            now = monotonic()
            self.progress_at = now
            self._send(self.worker.submit(collective, now))

    def _receive(self) -> None:
        for frame in self._wire.receive():
            arrived = read(frame)
            if arrived is not None:
                self._take(arrived)

    def _take(self, arrived: Arrived) -> None:
        now = monotonic()
        packet = arrived.packet
        if arrived.port == self._own.port:
            tally = self.worker.tally
            results = tally.results
            self._send(self.worker.receive(packet, now))
            if tally.results > results:
                self.progress_at = now
        elif self.fallback is not None and arrived.port == self._server.port:
            for rank, sent in self.fallback.receive(packet, now):
                receiver = rank or 0
                # What is for all goes to the root whoever's address it has.
                if sent.kind == Kind.RESULT:
                    frames = self._server_frames
                else:
                    frames = self._answer_frames[receiver]
                frame = frames.encode(self._others[receiver], sent)
                self._wire.send(frame)

    def _send(self, packets: list[Packet]) -> None:
        if not packets:
            return
        epoch = self._running[0][2] if self._running else 0
        chunks = sum(collective.left for collective, _, _ in self._running)
        left_bytes = chunks * 4 * self.membership.values
        for packet in packets:
            frame = self._frames.encode(self._server, packet, epoch, left_bytes)
            self._wire.send(frame)

    def _end_done(self) -> None:
        with self._lock:
            failed = self._failed
        while self._running and (failed is not None or self._running[0][0].done):
            _, on_done, _ = self._running.popleft()
            on_done(failed)
