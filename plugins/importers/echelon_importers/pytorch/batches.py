"""The records of the host that belong to each kernel of NCCL.

The profiler links a kernel to the record during which the host launched it. But PyTorch launches
what `batch_isend_irecv` and coalesced collectives hand over as one kernel, behind the records of
its operations, and links that to none of them (https://github.com/pytorch/pytorch/issues/194693).
On the thread that launches it, the batch is what was recorded since the last launch of a kernel of
NCCL.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction

from echelon_importers.pytorch.arguments import operation_name, record_id
from echelon_importers.pytorch.profile import Call, Event, Profile
from echelon_importers.pytorch.records import is_silent, rank_number

Batch = tuple[Call, ...]
"""The records of a kernel. Empty: it carries on what the kernel before has begun."""


class HostRecords:
    """The operations that the host recorded, of one rank."""

    def __init__(self, profile: Profile) -> None:
        self.batches: dict[int, Batch] = {}
        """The batch of each kernel that describes nothing itself, by the kernel's number.

        A kernel is missing whose operations were recorded before the trace begins.
        """
        self._described = 0
        self._by_thread = _by_thread(profile)
        self._by_id: dict[object, Call] = {}
        for calls in self._by_thread.values():
            for call in calls:
                self._by_id[record_id(call.arguments)] = call
        self._asked_us = _asked_us(profile)
        for thread, events in _launched(profile).items():
            self._share(events, self._by_thread.get(thread, ()))

    def _share(self, events: Sequence[Event], calls: Sequence[Call]) -> None:
        """Give each kernel the records before its launch that no earlier launch has taken."""
        taken = 0
        is_begun = False
        for event in events:
            place = bisect_left(calls, _launch_us(event), key=_start_us)
            batch = tuple(calls[taken:place])
            taken = max(taken, place)
            if operation_name(event.arguments):
                # What else was recorded before it launched nothing, such as a group of one rank.
                self._described += 1
                is_begun = False
            elif batch or is_begun:
                # NCCL splits what is too large for one kernel.
                self.batches[event.number] = batch
                is_begun = True

    def unlaunched(self) -> int:
        """Return how many operations of several ranks no kernel carries."""
        shared = 0
        for calls in self._by_thread.values():
            for call in calls:
                shared += call.arguments.get("Group size") != 1
        carried = self._described
        for batch in self.batches.values():
            carried += len(batch)
        return max(0, shared - carried)

    def is_recorded(self, event: Event) -> bool:
        """Return whether the trace says the operations of a kernel."""
        is_described = operation_name(event.arguments) is not None
        return is_described or event.number in self.batches

    def member(self, event: Event) -> int | None:
        """Return `Rank` in the record to which the profiler has linked a kernel; None: none."""
        name = operation_name(event.arguments)
        record = record_id(event.arguments)
        linked = None if record is None else self._by_id.get(record)
        for call in (linked, self._launching(event)):
            if call is not None and operation_name(call.arguments) == name:
                return rank_number(call.arguments.get("Rank"))
        return None

    def asked_us(self, event: Event) -> Fraction | None:
        """Return when the host first asked for an end (`wait`) after it launched a kernel.

        None: it did not. Older records do not say which end, so each may be that of any kernel.
        """
        if event.launch is None:
            return None
        place = bisect_right(self._asked_us, event.launch.start_us)
        return self._asked_us[place] if place < len(self._asked_us) else None

    def _launching(self, event: Event) -> Call | None:
        """Return the record during which the host launched a kernel."""
        launch = event.launch
        if launch is None:
            return None
        calls = self._by_thread.get(launch.thread, ())
        place = bisect_right(calls, launch.start_us, key=_start_us)
        if not place:
            return None
        call = calls[place - 1]
        return call if launch.start_us <= call.end_us else None


def _by_thread(profile: Profile) -> Mapping[object, Sequence[Call]]:
    """Return the records of operations on each thread, in the order of their starts."""
    calls: defaultdict[object, list[Call]] = defaultdict(list)
    for call in profile.records:
        name = operation_name(call.arguments)
        if name is not None and not is_silent(name):
            calls[call.thread].append(call)
    return calls


def _asked_us(profile: Profile) -> Sequence[Fraction]:
    """Return the times at which the host asked for the end of an operation."""
    times = []
    for call in profile.records:
        if operation_name(call.arguments) == "wait":
            times.append(call.start_us)
    return times


def _launched(profile: Profile) -> Mapping[object, Sequence[Event]]:
    """Return the kernels of NCCL that each thread launched, in the order of launches."""
    events: defaultdict[object, list[Event]] = defaultdict(list)
    for event in profile.events:
        if event.is_nccl and event.launch is not None:
            events[event.launch.thread].append(event)
    for launched in events.values():
        launched.sort(key=_launch_us)
    return events


def _launch_us(event: Event) -> Fraction:
    assert event.launch is not None
    return event.launch.start_us


def _start_us(call: Call) -> Fraction:
    return call.start_us
