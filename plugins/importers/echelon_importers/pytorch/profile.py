"""The profile of one rank: operations of its GPUs, and what the host did for them.

Times are in microseconds, as in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon_importers.importer import Source
from echelon_importers.pytorch.records import Fields, Place
from echelon_importers.pytorch.waits import RecordedWait
from echelon_importers.workload import Ranks


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a thread of the host made."""

    number: int
    """The place in the file."""
    thread: str
    start_us: Fraction
    end_us: Fraction
    arguments: Fields


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of a GPU."""

    gpu: str
    number: int


@dataclass(frozen=True, slots=True)
class Event:
    """An operation of a GPU."""

    number: int
    """The place in the file."""
    stream: Stream
    start_us: Fraction
    duration_us: Fraction
    name: str
    arguments: Fields
    launch: Call | None
    """The call of the host that launched it; None: the trace does not say."""

    @property
    def is_nccl(self) -> bool:
        """Return whether it is a kernel of NCCL or RCCL."""
        return self.name.startswith("nccl")

    @property
    def end_us(self) -> Fraction:
        """Return when it ended."""
        return self.start_us + self.duration_us


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the profiler, on the host."""

    start_us: Fraction
    end_us: Fraction


@dataclass(frozen=True, slots=True)
class Profile:
    """The trace of one rank."""

    source: Source
    events: Sequence[Event]
    """The operations of the GPUs, in the order of their starts."""
    steps: Sequence[Step]
    records: Sequence[Call]
    """The host's operations of process groups, in the order of their starts."""
    waits: Sequence[RecordedWait]
    """The waits between streams; none if they were not recorded."""
    groups: Mapping[str, Ranks]
    world: int | None
    """The number of ranks; None if the trace does not say."""

    def place(self, number: int) -> Place:
        """Return the place of an event."""
        return Place(self.source, number)
