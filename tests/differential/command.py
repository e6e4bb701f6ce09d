"""The command `softswitch` as a target: a process, P4Runtime over gRPC, packets over Unix sockets,
in real time.

A socket does not say which packet made which: outputs are matched, by port and bytes, with those
that the same switch in this process makes of the same packets, and that also tells how many to wait
for.
"""

from __future__ import annotations

import selectors
import socket
import sys
import tempfile
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from finsy.proto import p4r

from echelon.switches.processes import free_port
from tests.differential.case import Output, Sent
from tests.differential.catalogue import Subject
from tests.differential.process import DEVICE_ID, Connection, SwitchProcess
from tests.differential.soft import DeviceTarget
from tests.differential.target import TargetError
from tests.differential.vocabulary import PORTS

BURST = 16
"""Most packets sent before answers are awaited."""

_LATE_SECONDS = 20.0
_EXTRA_SECONDS = 0.005


class CommandTarget:
    """`softswitch` with a port for each of `PORTS`; what it sends to others cannot be seen and is
    taken for right.
    """

    def __init__(self) -> None:
        self._twin = DeviceTarget()
        self._burst_size = 1
        self._running: _Running | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()

    def install(self, subject: Subject) -> None:
        self._twin.install(subject)
        if self._running is None:
            self._running = _Running()
        self._running.connection.push(subject)
        self._burst_size = 1 if subject.races else BURST

    def write(self, updates: Sequence[p4r.Update]) -> list[int]:
        self._twin.write(updates)
        return self._switch.connection.write(updates)

    def read(self, queries: Sequence[p4r.Entity]) -> list[p4r.Entity]:
        return self._switch.connection.read(queries)

    def send(self, packets: Sequence[tuple[int, bytes]], hint: Sent | None) -> Sent:
        expected = self._twin.send(packets, hint)
        outputs: list[Output] = []
        for causes in _bursts(packets, self._burst_size):
            awaited = [output for output in expected.outputs if output.cause in causes]
            outputs += self._burst([packets[cause] for cause in causes], awaited, causes[-1])
        return replace(expected, outputs=tuple(outputs))

    def stop(self) -> None:
        """End the process, if there is one."""
        if self._running is not None:
            self._running.stop()
            self._running = None

    def _burst(
        self, packets: Sequence[tuple[int, bytes]], awaited: Sequence[Output], last: int
    ) -> Iterator[Output]:
        reachable = [output for output in awaited if output.port in PORTS]
        known: dict[tuple[int, bytes], deque[Output]] = defaultdict(deque)
        for output in reachable:
            known[output.port, output.data].append(output)
        for port, data in self._switch.exchange(packets, len(reachable)):
            same = known[port, data]
            yield same.popleft() if same else Output(last, port, data)
        yield from (output for output in awaited if output.port not in PORTS)

    @property
    def _switch(self) -> _Running:
        if self._running is None:
            raise TargetError("no program is installed")
        return self._running


def _bursts(packets: Sequence[tuple[int, bytes]], most: int) -> Iterator[range]:
    """Yield the numbers of packets in a row that come in at one port: between ports there is no
    order.
    """
    start = 0
    for number in range(1, len(packets) + 1):
        if (
            number == len(packets)
            or number - start == most
            or packets[number][0] != packets[start][0]
        ):
            yield range(start, number)
            start = number


class _Running:
    """One process, from its start to its end, and our ends of its wires."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="differential-")
        here = Path(self._directory.name)
        self._sockets: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        for port in PORTS:
            wire = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            wire.bind(str(here / f"p{port}.peer"))
            self._sockets[port] = wire
            self._selector.register(wire, selectors.EVENT_READ, port)
        control = free_port()
        command = [
            str(Path(sys.executable).with_name("softswitch")),
            "--no-p4",
            "--device-id",
            str(DEVICE_ID),
        ]
        for port in PORTS:
            command += ["-i", f"{port}@unix:{here / f'p{port}'}"]
        command += ["--", "--grpc-server-addr", f"127.0.0.1:{control}", "--priority-queues", "8"]
        self._process = SwitchProcess(command, [control])
        for port, wire in self._sockets.items():
            wire.connect(str(here / f"p{port}"))
        self.connection = Connection(self._process, control)

    def stop(self) -> None:
        self.connection.close()
        self._process.stop()
        self._selector.close()
        for wire in self._sockets.values():
            wire.close()
        self._directory.cleanup()

    def exchange(self, packets: Sequence[tuple[int, bytes]], count: int) -> list[tuple[int, bytes]]:
        """Send packets; what comes back, once it is `count` packets and no more follow, or none has
        come for long.
        """
        for port, data in packets:
            self._sockets[port].send(data)
        received: list[tuple[int, bytes]] = []
        while events := self._selector.select(
            _LATE_SECONDS if len(received) < count else _EXTRA_SECONDS
        ):
            received += [(key.data, self._sockets[key.data].recv(1 << 16)) for key, _ in events]
        return received
