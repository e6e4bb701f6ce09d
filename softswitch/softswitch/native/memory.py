"""The memory of one native switch, and the commands that change it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import pack
from typing import Any, Literal

from ctoolchain import Loaded
from softswitch.errors import TooLarge

PUT, REMOVE, DEFAULT, CALL, UNCALL, CHOOSE, UNCHOOSE, VALUES, METER, STORE = range(1, 11)
"""The kinds of commands, as in switch.c."""

COUNTERS, REGISTERS, METERS, STATES, DROPPED, OVERRUNS, ERRORS, PACKETS, RANDOM, EVENTS, LOGGING = (
    range(11)
)
PACKET_BYTES = 12
"""The parts of a switch, as in switch.c."""

NONE = (1 << 64) - 1


class Memory:
    """A switch in C.

    What Python writes reaches it in commands, each of which packets see whole or not at all.
    """

    def __init__(
        self,
        loaded: Loaded,
        drop_port: int,
        seed: int,
        packet_bytes: int,
    ) -> None:
        self.ffi = loaded.ffi
        self.library = loaded.library
        switch = self.library.ss_new(drop_port, seed)
        if not switch:
            raise TooLarge("the program", "the system has no memory for its arrays")
        self.switch = self.ffi.gc(switch, self.library.ss_free)
        self.part(PACKET_BYTES, 0, "Q", 1)[0] = packet_bytes
        self._waiting: list[bytes] | None = None
        self._afterwards: list[Callable[[], object]] = []

    def send(self, kind: int, *words: int) -> None:
        """Apply a command now, or with the others of the present batch."""
        self.send_packed(pack(f"={2 + len(words)}Q", kind, len(words), *words))

    def send_packed(self, commands: bytes) -> None:
        if self._waiting is not None:
            self._waiting.append(commands)
            return
        wrong = self.library.ss_apply(
            self.switch, self.ffi.from_buffer("uint64_t[]", commands), len(commands) // 8
        )
        if wrong:
            raise AssertionError(
                f"the native switch does not understand word {wrong - 1} of {commands.hex(' ', 8)}"
            )

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Let packets see all that is written meanwhile at once, at the end."""
        if self._waiting is not None:
            yield
            return
        self._waiting = []
        try:
            yield
        finally:
            waiting = b"".join(self._waiting)
            self._waiting = None
            if waiting:
                self.send_packed(waiting)
            afterwards = self._afterwards
            self._afterwards = []
            for call in afterwards:
                call()

    def afterwards(self, call: Callable[[], object]) -> None:
        """Call something when all that has been sent is applied."""
        if self._waiting is None:
            call()
        else:
            self._afterwards.append(call)

    def part(
        self,
        kind: int,
        number: int,
        item: Literal["Q", "q", "I"],
        count: int,
    ) -> memoryview:
        """Return ``count`` items of the switch's memory, which is that of packets, too."""
        memory = self.library.ss_part(self.switch, kind, number, 0)
        size = 4 if item == "I" else 8
        # The view refers to the switch, so that its memory stays.
        owner = self.ffi.gc(memory, _Keeper(self.switch))
        octets: memoryview[int] = memoryview(self.ffi.buffer(owner, count * size)).cast("B")
        return octets.cast(item)

    def state(self, table: int, number: int) -> Any:
        """Return the state of an entry, a pointer to ss_state."""
        return self.ffi.cast("ss_state *", self.library.ss_part(self.switch, STATES, table, number))


class _Keeper:
    """A destructor that only keeps something alive until then."""

    def __init__(self, kept: object) -> None:
        self.kept = kept

    def __call__(self, _memory: object) -> None:
        """Do nothing."""
