"""The order of kernels, from the streams and the times of a trace.

Chakra's linker gives kernels no dependency on the kernel before them (mlcommons/chakra #215), so
that all which a host has launched may run at once. Yet kernels of one stream run in order. Where
nodes on streams have start times, each waits for the node before it on its stream. If a rank could
still be through well before its trace is, since kernels of other streams wait for each other by
events that the trace does not have, a node also waits for the last node of each other stream that
had ended when it started, as for a profile of PyTorch.

A derived wait never contradicts the dependencies of the trace. What it contradicts is counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from echelon_importers.chakra.wire import METADATA, WireNode

_ENOUGH = 0.95
"""The part of the trace's own time that dependencies have to explain.

Times are in whole microseconds and kernels follow each other after one or two, which the replay
leaves out.
"""
_FAR = 0.9
"""The part of the longer of two times from which the shorter is as good as the same."""


@dataclass(slots=True)
class StreamOrder:
    """The waits of a rank's nodes beside their dependencies."""

    streams: frozenset[int] = frozenset()
    """The streams whose nodes say when they start."""
    waits: dict[int, list[int]] = field(default_factory=dict)
    """The numbers of the nodes that a node waits for, by its number."""
    on_stream: int = 0
    """Waits for the node before on the same stream."""
    between: int = 0
    """Waits for nodes of other streams."""
    contradictions: int = 0
    """Nodes that start before a node of their stream for which they wait."""
    span_us: int = 0
    """The time from the first start to the last end in the trace; 0: it does not say."""
    replayed_us: int = 0
    """The time that nodes need one behind the other, with the durations of the trace."""

    @property
    def is_far(self) -> bool:
        """Return whether the two times contradict each other."""
        shorter, longer = sorted((self.span_us, self.replayed_us))
        return self.span_us > 0 and shorter < _FAR * longer


def stream_of(node: WireNode) -> int | None:
    """Return the stream on which a node runs; None: on a CPU, or the trace does not say.

    Chakra's converter gives nodes of a CPU the stream 0.
    """
    if node.kind == METADATA or node.is_on_cpu:
        return None
    stream = node.attributes.get("stream")
    return stream if isinstance(stream, int) else None


def _timed_streams(nodes: Iterable[WireNode]) -> frozenset[int]:
    """Return the streams whose nodes say when they start."""
    count: Counter[int] = Counter()
    untimed: Counter[int] = Counter()
    for node in nodes:
        stream = stream_of(node)
        if stream is not None:
            count[stream] += 1
            untimed[stream] += node.start_us == 0
    timed = set()
    for stream, total in count.items():
        # One of several may lack its start: protobuf leaves out a 0.
        most = 1 if total > 1 else 0
        if untimed[stream] <= most:
            timed.add(stream)
    return frozenset(timed)


def stream_order(nodes: Sequence[WireNode]) -> StreamOrder:
    """Return what the nodes of a rank wait for by their streams and start times."""
    order = StreamOrder(_timed_streams(nodes))
    if not order.streams:
        return order
    ordered = _by_start(nodes)
    if len(ordered) < len(nodes):
        # The trace's own dependencies have a circle, which is refused later.
        return order
    kernels = [node for node in ordered if stream_of(node) in order.streams]
    _wait_on_streams(kernels, order)

    started = [node for node in nodes if node.start_us]
    first_us = min(node.start_us for node in started)
    last_us = max(node.end_us for node in started)
    order.span_us = last_us - first_us
    order.replayed_us = _replayed_us(ordered, order)
    # Streams that wait for each other more than the trace says are the exception: their overlap is
    # what hides communication.
    if order.replayed_us < _ENOUGH * order.span_us:
        _wait_between_streams(kernels, order)
        order.replayed_us = _replayed_us(ordered, order)
    return order


def _by_start(nodes: Sequence[WireNode]) -> list[WireNode]:
    """Return the nodes behind those that they wait for, and otherwise by start time (Kahn).

    What waits in a circle, or for a node that is not there, is missing.
    """
    followers: dict[int, list[int]] = {}
    missing = [0] * len(nodes)
    keys = [node.start_us for node in nodes]
    ready = []
    for place, node in enumerate(nodes):
        before = set(node.data_deps)
        missing[place] = len(before)
        for number in before:
            followers.setdefault(number, []).append(place)
        if not before:
            ready.append((node.start_us, place))
    heapify(ready)

    ordered = []
    while ready:
        key, place = heappop(ready)
        node = nodes[place]
        ordered.append(node)
        for follower in followers.get(node.number, ()):
            missing[follower] -= 1
            # What has no start time comes right behind what it waits for.
            if not nodes[follower].start_us:
                keys[follower] = max(keys[follower], key)
            if not missing[follower]:
                heappush(ready, (keys[follower], follower))
    return ordered


def _wait_on_streams(kernels: Iterable[WireNode], order: StreamOrder) -> None:
    """Let each kernel wait for the one before it on its stream."""
    last: dict[int | None, WireNode] = {}
    for node in kernels:
        stream = stream_of(node)
        before = last.get(stream)
        last[stream] = node
        if before is None:
            continue
        if 0 < node.start_us < before.start_us:
            order.contradictions += 1
        if before.number not in node.data_deps:
            order.on_stream += 1
            order.waits[node.number] = [before.number]


def _wait_between_streams(kernels: Iterable[WireNode], order: StreamOrder) -> None:
    """Let each kernel wait for the last one of each other stream that had ended by its start."""
    streams: dict[int | None, _Ended] = {}
    for node in kernels:
        stream = stream_of(node)
        for other, ended in streams.items():
            if other == stream:
                continue
            number = ended.last_at(node.start_us)
            if number is None or number in node.data_deps:
                continue
            order.between += 1
            order.waits.setdefault(node.number, []).append(number)
        streams.setdefault(stream, _Ended()).add(node)


@dataclass(frozen=True, slots=True)
class _Ended:
    """The nodes of a stream, and when all up to each of them have ended."""

    numbers: list[int] = field(default_factory=list)
    ends_us: list[int] = field(default_factory=list)

    def add(self, node: WireNode) -> None:
        """Add the next node."""
        end_us = node.end_us
        if self.ends_us:
            end_us = max(end_us, self.ends_us[-1])
        self.numbers.append(node.number)
        self.ends_us.append(end_us)

    def last_at(self, time_us: int) -> int | None:
        """Return the last node that had ended at a time."""
        count = bisect_right(self.ends_us, time_us)
        return self.numbers[count - 1] if count else None


def _replayed_us(ordered: Iterable[WireNode], order: StreamOrder) -> int:
    """Return when the last node ends, if each starts as soon as what it waits for has ended."""
    ends_us: dict[int, int] = {}
    last_us = 0
    for node in ordered:
        start_us = 0
        for number in node.data_deps:
            start_us = max(start_us, ends_us[number])
        for number in order.waits.get(node.number, ()):
            start_us = max(start_us, ends_us[number])
        end_us = start_us + node.duration_us
        ends_us[node.number] = end_us
        last_us = max(last_us, end_us)
    return last_us
