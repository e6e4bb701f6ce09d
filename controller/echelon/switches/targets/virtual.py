"""Switches and hosts in virtual time.

A controller reaches them by the same messages as it reaches real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol
from zlib import crc32

from echelon.model.fabric.model import Fabric

GROUP = "echelon.virtual_switches"
"""The entry-point group of modules with switches in virtual time, by the name of the target."""


def virtual_switches(target: str) -> Any:
    """Return the module that has such switches; None: none is installed."""
    from importlib.metadata import entry_points

    return next((entry.load() for entry in entry_points(group=GROUP, name=target)), None)


class Clock(Protocol):
    """The time, and calls at a later time."""

    @property
    def now_ns(self) -> int: ...
    def call_at(
        self,
        time_ns: int,
        callback: Callable[..., object],
        /,
        *args: object,
    ) -> object: ...


CONNECTION = slice(26, 38)
"""The addresses and ports in a frame of IPv4 without options."""

Urgency = Callable[[int], tuple[float, ...]]
"""The urgency of frames at a time in nanoseconds, as numbers that decide in their order."""


class Nic(Protocol):
    """A network interface.

    Frames with the same urgency function leave in the order in which they were given. Of those with
    different ones, the most urgent leave first. Frames without urgency take turns with them.
    """

    def send(self, data: bytes, urgency: Urgency | None = None, /) -> None: ...


class Interfaces:
    """The network interfaces of a host that has several, by the switch that each leads to.

    Frames of a connection leave by the one that it was assigned to, others by one that depends on
    addresses and ports.
    """

    def __init__(self, by_switch: Mapping[str, Nic]) -> None:
        self._by_switch = by_switch
        self._all = list(by_switch.values())
        self._of: dict[bytes, Nic] = {}

    def assign(self, connection: bytes, switch: str) -> None:
        """Send the frames of a connection, given by the bytes of `CONNECTION`, to this switch."""
        self._of[connection] = self._by_switch[switch]

    def send(self, data: bytes, urgency: Urgency | None = None, /) -> None:
        """Send a frame by its interface."""
        connection = data[CONNECTION]
        nic = self._of.get(connection) or self._all[crc32(connection) % len(self._all)]
        nic.send(data, urgency)


class VirtualClock(Clock, Protocol):
    """The clock of a fabric in virtual time."""

    def stop(self) -> None:
        """Return from `VirtualSwitches.run` soon: after the event that happens now."""
        ...


@dataclass(frozen=True, slots=True)
class NativeClock:
    """Addresses in this process: a clock in C, its time in nanoseconds (`int64_t`), functions.

    - `call`: `void (clock, int64_t time_ns, void (*function)(void *, uint64_t), void *what,
      uint64_t value)` calls a function at a time.
    - `tell`: `void (clock, uint64_t number)` has Python called after the present event, which may
      tell one number.
    - `send`: `void (nic, const uint8_t *data, uint32_t length, uint64_t urgency)` sends a frame,
      without urgency if that is 0.
    - `waits`: `uint32_t (nic, uint64_t urgency)` returns whether frames of an urgency wait.
    """

    clock: int
    now_ns: int
    call: int
    tell: int
    send: int
    waits: int


class NetworkInC(Protocol):
    """A network whose clock and interfaces are in C, for senders and receivers in C."""

    @property
    def clock(self) -> NativeClock: ...

    @property
    def now_ns(self) -> int: ...

    def nic(self, host: str) -> int:
        """Return the address of a host's interface."""
        ...

    def receive_in_c(
        self,
        host: str,
        receive: int,
        choose: int,
        receiver: int,
    ) -> None:
        """Give frames that arrive at a host to a function in C.

        It is `int receive(receiver, int64_t now_ns, const uint8_t *data, uint32_t length)`. Where
        it returns 0, Python's receiver gets them.

        `uint32_t choose(receiver, int64_t now_ns, ranked, uint32_t count)` returns the place of the
        most urgent frames that wait, the first one of several. Items of `ranked` begin with their
        urgency and have 24 bytes.
        """
        ...

    def when_told(self, callback: Callable[[], None], *, once: bool = True) -> int:
        """Return the number for `tell` that has this called."""
        ...


class PacketCounts(Protocol):
    """The packet counts of one switch."""

    @property
    def packets_in(self) -> int: ...
    @property
    def packets_out(self) -> int: ...
    @property
    def packets_dropped(self) -> int: ...


class VirtualSwitches(Protocol):
    """The switches of a fabric and the network interfaces of its hosts, while they stand."""

    @property
    def clock(self) -> VirtualClock: ...

    @property
    def nics(self) -> Mapping[str, Nic]:
        """The network interface of each host, an `Interfaces` where it has several."""
        ...

    @property
    def native(self) -> NetworkInC | None:
        """The network, if it is in C."""
        ...

    @property
    def addresses(self) -> Mapping[str, str]:
        """host:port of the service that holds the tables, by switch."""
        ...

    @property
    def connect(self) -> Callable[[str, Any], Any] | None:
        """The function that connects to these addresses inside the process.

        It is an `echelon.switches.southbound.channel.Connect`.

        None: they are reached over sockets.
        """
        ...

    @property
    def switches(self) -> Mapping[str, PacketCounts]: ...

    @property
    def digests(self) -> Mapping[str, int]:
        """The number of flow events that each switch has reported."""
        ...

    def receive_with(self, host: str, receiver: Callable[[int, bytes], None]) -> None:
        """Hand each frame that arrives at `host` to `receiver(now_ns, frame)`."""
        ...

    def decide_with(self, decided: Callable[[], None]) -> None:
        """Call `decided` at each acknowledgement of a flow event for which a switch waited."""
        ...

    def acknowledged(self, switch: str) -> None:
        """Note that a controller has dealt with a report of the switch.

        It is called where the channel cannot tell.
        """
        ...

    def run(self, done: Callable[[], bool]) -> None:
        """Advance virtual time until `done()`, or until nothing is left to happen.

        Raise an error if any packet is unaccounted for.

        Where a switch waits for its controller, so does virtual time, until the controller answers
        or hangs up; no real time limits this.
        """
        ...


VirtualFabricFactory = Callable[
    [Fabric, Fraction, int | None], AbstractContextManager[VirtualSwitches]
]
"""A builder of a fabric in virtual time.

It takes the fabric, the control latency in seconds, and the bytes that each queue holds or None.

The control latency passes in virtual time between an event on a switch and the moment when its
controller hears of it.
"""
