"""A rank's part of the job from its profile: kernels in the order of their streams.

Durations of NCCL's kernels are ignored: they include the waiting for other ranks, and the
simulation finds out how long the bytes take.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from echelon_importers.importer import Span
from echelon_importers.pytorch.members import Members
from echelon_importers.pytorch.operations import KernelOperations, Operation
from echelon_importers.pytorch.profile import Event, Profile
from echelon_importers.pytorch.streams import ALWAYS, Streams
from echelon_importers.pytorch.waits import RecordedWait
from echelon_importers.trace_parts import TraceNode, Work
from echelon_importers.workload import ReadCounts

_US_S = Fraction(1, 10**6)
_OTHER_LIBRARIES = re.compile("nvshmem|deep_ep|multimem|cross_device_reduce|_shot_all_reduce")
"""Parts of the names of kernels that send without NCCL, which no record of PyTorch describes."""


def chosen_events(
    profile: Profile,
    wanted: Span | None,
    tally: ReadCounts,
) -> Sequence[Event]:
    """Return the events of the steps to take: what the host launched in them.

    A GPU may run them later. An event whose launch is not in the trace counts by its own start.
    Raises `DocumentError`.
    """
    steps = profile.steps
    if wanted is None and len(steps) > 1:
        wanted = range(1, 2)
    if wanted is None:
        return profile.events
    if not steps:
        raise profile.source.refusal("has no steps of the profiler (leave out --iterations)")
    if wanted.stop - 1 > len(steps):
        reason = f"has {len(steps)} steps (choose among them with --iterations)"
        raise profile.source.refusal(reason, code="out-of-range")
    start_us = steps[wanted.start - 1].start_us
    end_us = steps[wanted.stop - 2].end_us
    events = []
    for event in profile.events:
        time_us = event.launch.start_us if event.launch else event.start_us
        if start_us <= time_us < end_us:
            events.append(event)
    tally.ignored["events of other steps"] += len(profile.events) - len(events)
    return events


def span_s(events: Sequence[Event]) -> Fraction:
    """Return the seconds from the start of the first event to the end of the last."""
    if not events:
        return Fraction(0)
    end_us = max(event.end_us for event in events)
    return (end_us - events[0].start_us) * _US_S


class GpuOrder:
    """The nodes of a rank in the making."""

    def __init__(
        self,
        members: Members,
        operations: KernelOperations,
        waits: Sequence[RecordedWait],
        tally: ReadCounts,
    ) -> None:
        self._members = members
        self._operations = operations
        self._tally = tally
        self._streams = Streams(waits)
        self._ends: dict[int, tuple[int, ...]] = {}
        """The nodes with which each event ends, by its number."""
        self._next = 0

    def nodes(self, events: Sequence[Event]) -> Iterator[TraceNode]:
        """Yield the nodes of events in the order of their starts. Raises `DocumentError`."""
        # Numbers are those of earlier versions, since they are parts of names in job files.
        # An event has the numbers 2 n and 2 n + 1. What its batch has more comes behind all those.
        most = max((event.number for event in events), default=0)
        self._next = 2 * most + 2
        for event in events:
            operations: Sequence[Operation] = ()
            need = ALWAYS
            if event.is_nccl:
                operations = self._operations.of_kernel(event)
                need = self._operations.need(event, operations)
            wait = self._streams.add(event, need)
            after: dict[int, None] = {}
            for number in wait.events:
                after.update(dict.fromkeys(self._ends[number]))
            us = round(wait.idle_us)
            self._tally.derived["us of the host between kernels, as computing"] += us
            if event.is_nccl:
                idle = Work(wait.idle_us * _US_S)
                # What the host does before the kernel is a node of its own.
                begin = TraceNode(2 * event.number + 1, tuple(after), idle)
                yield begin
                yield from self._communication(event, operations, begin.number)
            else:
                self._tally.read["kernels"] += 1
                if _OTHER_LIBRARIES.search(event.name):
                    noun = "kernels of other libraries that communicate, as computing"
                    self._tally.derived[noun] += 1
                number = 2 * event.number
                work = Work((event.duration_us + wait.idle_us) * _US_S)
                self._ends[event.number] = (number,)
                yield TraceNode(number, tuple(after), work)

    def _communication(
        self,
        event: Event,
        operations: Sequence[Operation],
        begin: int,
    ) -> Iterator[TraceNode]:
        ends: list[int] = []
        for operation in operations:
            number = 2 * event.number
            if ends:
                number = self._next
                self._next += 1
            ends.append(number)
            yield self._part(event, operation, number, begin)
        self._ends[event.number] = tuple(ends) or (begin,)

    def _part(
        self,
        event: Event,
        operation: Operation,
        number: int,
        begin: int,
    ) -> TraceNode:
        place = operation.place
        part = self._members.part(place, operation.recorded)
        origin = f"{place}, at {float(event.start_us):.15g} us"
        ran_s = event.start_us * _US_S, event.end_us * _US_S
        return TraceNode(number, (begin,), part, origin, ran_s)
