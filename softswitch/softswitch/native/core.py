"""The switch between ports of any kind.

Its packets and queues are in C (core.c), its ports in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softswitch.native.programs import PythonProgram
from softswitch.native.wires import Wires
from softswitch.realtime.port import Obstacle
from softswitch.virtual.switch import Pipelines

__all__ = ["Core"]

_OBSTACLES = (Obstacle.FULL, Obstacle.DOWN, Obstacle.REFUSED, Obstacle.NO_PEER)
"""The obstacles in the order of wires.h, whose first is none."""


class Core(Wires):
    """A switch without clock and threads. Whoever calls it has it to themselves.

    Args:
        native: the library of `load_core`.
        queues: the number of a port's queues that a program may use. Packets for other queues are
            dropped and counted.

    Times are nanoseconds and must not decrease from call to call. An error of a program in Python
    is raised by the method that ran it.
    """

    _error: BaseException | None = None

    def run(self, pipelines: Pipelines) -> None:
        """Run packets that come through a program in Python."""
        self.switch = PythonProgram(pipelines)

    def receive(
        self,
        port: int,
        frames: Sequence[bytes],
        now_ns: int,
    ) -> None:
        """Process packets that came in at `port`, one after another."""
        process = self.library.core_receive
        for data in frames:
            process(self.core, port, data, len(data), now_ns)
        self._finish()

    def serve_due(self, now_ns: int) -> int | None:
        """Do what is due on all ports by `now_ns`.

        Return the time at which something is due next, None if nothing waits.
        """
        due_ns = int(self.library.core_serve_due(self.core, now_ns))
        self._finish()
        return None if due_ns < 0 else due_ns

    def sending(self) -> list[Any]:
        """Return the ports with packets to send. Call `sent` or `refused` for each."""
        return [
            outlet
            for outlet in self.outlets.values()
            if outlet.filling.count > outlet.filling.first and not outlet.blocked
        ]

    def packets(self, outlet: Any) -> list[bytes]:
        """Return the packets that a port is to send now, in this order."""
        batch = outlet.filling
        # Slices of the buffer are copies, which outlive the batch.
        data = self.ffi.buffer(batch.data)
        packets = []
        for index in range(batch.first, batch.count):
            start = batch.start[index]
            packets.append(data[start : start + batch.length[index]])
        return packets

    def sent(self, outlet: Any, count: int) -> None:
        """Note that the first packets of a port are on their way."""
        self.library.core_sent(outlet, outlet.filling, count)

    def refused(
        self,
        outlet: Any,
        obstacle: Obstacle,
        now_ns: int,
    ) -> None:
        """Note that the port did not take the first of its packets, and why."""
        number = 1 + _OBSTACLES.index(obstacle)
        self.library.core_refused(self.core, outlet, number, now_ns)
        self._finish()

    def unblock(self, outlet: Any, now_ns: int) -> None:
        """Offer the port its packets again."""
        self.library.core_unblock(self.core, outlet, now_ns)

    def set_up(
        self,
        outlet: Any,
        up: bool,
        now_ns: int,
    ) -> None:
        """Note that a port went up or down.

        Packets that wait at a port that goes down are dropped, because they would be stale when it
        returns.
        """
        self.library.core_set_up(self.core, outlet, up, now_ns)
        self._finish()

    def _finish(self) -> None:
        """Let go of the program that ran, pass on its digests, and raise its error."""
        self.library.core_let_go(self.core)
        # Digests wait in memory of the program until somebody asks for them.
        if self.switch is not None:
            self.switch.report()
        # An exception cannot pass through C: it was noted there, and goes on from here.
        if self._error is not None:
            error = self._error
            self._error = None
            raise error

    def _on_error(
        self,
        _kind: object,
        error: BaseException,
        _traceback: object,
    ) -> None:
        self._error = self._error or error
