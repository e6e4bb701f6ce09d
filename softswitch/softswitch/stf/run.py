"""The common part of runs on every kind of switch: packets, expectations, and the result."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatchmethod
from typing import Protocol

from softswitch.errors import TableError
from softswitch.stf.commands import Command, Expect, NoPacket, Packet, StfError, Time, Wait
from softswitch.stf.expectations import Expectations, Failure

STEP_NS = 1_000_000
"""The time between packets. A test can observe it only in timestamps and meters."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a test.

    ``expectations`` were checked; it passes if ``failures``, ordered by line, is empty.
    """

    expectations: int
    failures: tuple[Failure, ...]


class Process(Protocol):
    """The way of a packet through a switch: port, bytes and time in ns in, ports and bytes out."""

    def __call__(self, port: int, data: bytes, now_ns: int, /) -> Sequence[tuple[int, bytes]]: ...


class StfRun:
    """One run of a test.

    A subclass adds the commands that are about tables, counters and registers.
    """

    def __init__(
        self,
        process: Process,
        max_port: int,
        file: str,
    ) -> None:
        self._process = process
        self._max_port = max_port
        self._file = file
        self._now_ns = 0
        self._next_ns: int | None = None
        self._expectations = Expectations()
        self.line = 0
        """The line of the command that was executed last, or is being executed."""
        self._packets: list[int] = []
        self._last: Sequence[tuple[int, bytes]] | None = None
        self._checked = 0
        self._failures: list[Failure] = []

    def execute(self, command: Command) -> None:
        """Execute a command. Raises :class:`StfError` if it does not fit the program."""
        self.line = command.line
        try:
            self._execute(command)
        except (TableError, ValueError) as error:
            raise StfError(self._file, command.line, str(error)) from None

    def result(self) -> Result:
        """Return the outcome of the commands so far."""
        failures = list(self._failures)
        for line, reason, packet in self._expectations.faults():
            if packet is None:
                packet = self._packet_before(line)
            failures.append(Failure(self._file, line, reason, packet))
        failures.sort(key=lambda failure: failure.line)
        return Result(self._checked, tuple(failures))

    def _fail(self, line: int, reason: str) -> None:
        self._failures.append(Failure(self._file, line, reason, self._packet_before(line)))

    def _packet_before(self, line: int) -> int | None:
        place = bisect_left(self._packets, line)
        return self._packets[place - 1] if place else None

    @singledispatchmethod
    def _execute(self, command: Command) -> None:
        raise ValueError("programs of this architecture have no such command")

    @_execute.register
    def _packet(self, command: Packet) -> None:
        if command.port > self._max_port:
            raise ValueError(f"packet: port {command.port} is not in 0..{self._max_port}")
        if self._next_ns is None:
            self._now_ns += STEP_NS
        else:
            self._now_ns = self._next_ns
            self._next_ns = None
        self._packets.append(command.line)
        self._expectations.received(command.port)
        self._last = self._process(command.port, command.data, self._now_ns)
        for port, data in self._last:
            self._expectations.sent(command.line, port, data)

    @_execute.register
    def _time(self, command: Time) -> None:
        if command.time_ns < self._now_ns:
            raise ValueError(
                f"time: {command.time_ns / 1000:g} is before the last packet, at"
                f" {self._now_ns / 1000:g}"
            )
        self._next_ns = command.time_ns

    @_execute.register
    def _expect(self, command: Expect) -> None:
        self._checked += 1
        self._expectations.packet(command)

    @_execute.register
    def _no_packet(self, command: NoPacket) -> None:
        if self._last is None:
            raise ValueError("no_packet: there is no packet before it")
        self._checked += 1
        for port, data in self._last:
            self._fail(command.line, f"port {port}: expected no packet, {data.hex().upper()} left")

    @_execute.register
    def _wait(self, command: Wait) -> None:
        """Do nothing: no packet is on its way between two commands."""
