"""The memory of one native switch, and the commands that change it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import pack
from typing import Any, Literal

from ctoolchain import Loaded
from softswitch.errors import TableFull, TooLarge

PUT, REMOVE, DEFAULT, CALL, UNCALL, CHOOSE, UNCHOOSE, VALUES, METER, STORE = range(1, 11)
"""The kinds of commands, as in switch.c."""

COUNTERS, REGISTERS, METERS, STATES, DROPPED, OVERRUNS, ERRORS, PACKETS, RANDOM, EVENTS, LOGGING = (
    range(11)
)
PACKET_BYTES = 12
"""The parts of a switch, as in switch.c."""

NONE = (1 << 64) - 1

_TAKING = frozenset((PUT, DEFAULT, CALL, CHOOSE, VALUES))
"""The commands that take memory. The others must go on when there is none."""


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
        self._waiting_words = 0
        self._reserved_words = 0
        """The commands, those that wait included, for which memory is set aside."""
        self._afterwards: list[Callable[[], object]] = []

    def send(self, kind: int, *words: int) -> None:
        """Apply a command now, or with the others of the present batch.

        Those that take memory raise as :meth:`reserve` does.
        """
        commands = pack(f"={2 + len(words)}Q", kind, len(words), *words)
        if kind in _TAKING:
            self.send_packed(commands)
        else:
            self._send(commands)

    def reserve(self, words: int) -> None:
        """Set memory aside for commands of so many more words, which then do not fail.

        Raises :class:`TableFull` if the system has none, or the program's budget is used up.
        """
        total = self._waiting_words + words
        if total <= self._reserved_words:
            return
        # Twice as much at first: a batch that grows entry by entry then rarely asks the system.
        for reserved in (2 * total, total):
            if self.library.ss_reserve(self.switch, reserved):
                self._reserved_words = reserved
                return
        raise TableFull(
            "no memory for more entries: those of the program have taken three quarters of what"
            " its arrays leave of --memory, or the system has none; delete some, or give more"
        )

    def send_packed(self, commands: bytes) -> None:
        """Apply commands, or keep them for the present batch. Raises as :meth:`reserve` does."""
        self.reserve(len(commands) // 8)
        self._send(commands)

    def _send(self, commands: bytes) -> None:
        if self._waiting is not None:
            self._waiting.append(commands)
            self._waiting_words += len(commands) // 8
            return
        self._apply(commands)

    def _apply(self, commands: bytes) -> None:
        self._reserved_words = 0
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
            self._waiting_words = 0
            if waiting:
                self._apply(waiting)
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
        """Return the state of an entry, a pointer to ss_state. Raises as :meth:`reserve` does."""
        state = self.library.ss_part(self.switch, STATES, table, number)
        if not state:
            raise TableFull("no memory for the counters of more entries; delete some")
        return self.ffi.cast("ss_state *", state)


class _Keeper:
    """A destructor that only keeps something alive until then."""

    def __init__(self, kept: object) -> None:
        self.kept = kept

    def __call__(self, _memory: object) -> None:
        """Do nothing."""
