"""Kineto's traces: ``{"traceEvents": [...]}``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from echelon.model.quantities import excerpt
from echelon_importers.importer import Source
from echelon_importers.pytorch.profile import Call, Event, Profile, Step, Stream
from echelon_importers.pytorch.raw_events import GPU, RawEvent
from echelon_importers.pytorch.records import RECORD, Fields, Place
from echelon_importers.pytorch.waits import RecordedWait
from echelon_importers.workload import Ranks, ReadCounts

_CALLS = frozenset({"cuda_runtime", "cuda_driver"})
_STEP = "ProfilerStep"


@dataclass(slots=True)
class _Parts:
    """The events of a trace, sorted by kind."""

    operations: list[RawEvent] = field(default_factory=list)
    """The operations of a GPU."""
    calls: dict[int | None, RawEvent] = field(default_factory=dict)
    """Calls of CUDA, by correlation: the number that an operation of a GPU shares with them."""
    records: list[RawEvent] = field(default_factory=list)
    steps: list[RawEvent] = field(default_factory=list)
    waits: list[RawEvent] = field(default_factory=list)

    def add(self, event: RawEvent) -> bool:
        """Add an event. Return whether it is of use by itself."""
        kind = event.fields.get("cat")
        if event.name.startswith(_STEP) and kind == "user_annotation":
            self.steps.append(event)
        elif kind in GPU:
            self.operations.append(event)
        elif kind == "cuda_sync":
            self.waits.append(event)
        elif event.name == RECORD:
            self.records.append(event)
        else:
            correlation = event.integer("correlation")
            if kind in _CALLS and correlation is not None:
                self.calls[correlation] = event
            return False
        return True


def read_profile(
    source: Source,
    document: Fields,
    tally: ReadCounts,
) -> Profile:
    """Return the trace in a file. Raises `DocumentError`."""
    parts = _Parts()
    for number, event in enumerate(document["traceEvents"]):
        place = Place(source, number)
        if not isinstance(event, dict):
            raise place.fault("is not a mapping", "check the format")
        if event.get("ph") != "X" or not isinstance(event.get("name"), str):
            tally.ignored["events that take no time"] += 1
        elif not parts.add(RawEvent(place, event)):
            tally.ignored["events of the host"] += 1
    if not parts.operations:
        reason = (
            "has no kernels of a GPU (profile with CUDA activities; a job on CPUs: run it under"
            " echelon capture)"
        )
        raise source.refusal(reason, code="empty-document")

    steps = [event.call() for event in parts.steps]
    steps.sort(key=_call_start)
    records = [event.call() for event in parts.records]
    records.sort(key=_call_start)
    info = document.get("distributedInfo")
    if not isinstance(info, dict):
        info = {}
    return Profile(
        source,
        _events(parts),
        [Step(call.start_us, call.end_us) for call in steps],
        records,
        _waits(parts),
        _groups(info.get("pg_config")),
        _world(info.get("world_size")),
    )


def _call_start(call: Call) -> Fraction:
    return call.start_us


def _events(parts: _Parts) -> Sequence[Event]:
    events = []
    for event in parts.operations:
        launch = parts.calls.get(event.integer("correlation"))
        operation = Event(
            event.place.entry,
            _stream(event),
            event.start_us(),
            event.duration_us(),
            event.name,
            event.arguments,
            launch.call() if launch else None,
        )
        events.append(operation)
    events.sort(key=_in_time)
    return events


def _in_time(event: Event) -> tuple[Fraction, int]:
    return event.start_us, event.number


def _stream(event: RawEvent) -> Stream:
    number = event.arguments.get("stream", event.fields.get("tid"))
    if type(number) is not int:
        reason = f"stream {excerpt(number)} is not a number"
        raise event.place.fault(reason, "give a whole number")
    return Stream(str(event.arguments.get("device")), number)


def _waits(parts: _Parts) -> Sequence[RecordedWait]:
    waits = []
    for event in parts.waits:
        wait = _wait(event, parts.calls)
        if wait is not None:
            waits.append(wait)
    return waits


def _wait(
    event: RawEvent,
    calls: Mapping[int | None, RawEvent],
) -> RecordedWait | None:
    """Return a wait; None if nothing waits, or for what was before the trace."""
    call = calls.get(event.integer("correlation"), event)
    time_us = call.start_us()
    stream = event.integer("stream")
    if event.name == "Context Sync":
        return RecordedWait(time_us, None, None, time_us)
    if event.name == "Stream Sync":
        return RecordedWait(time_us, None, stream, time_us)

    record = calls.get(event.integer("wait_on_cuda_event_record_corr_id"))
    awaited = event.integer("wait_on_stream")
    # The host does not wait when it asks whether an event has happened.
    asks = call.name == "cudaEventQuery"
    if record is None or awaited is None or asks:
        return None
    waiting = stream if event.name == "Stream Wait Event" else None
    return RecordedWait(time_us, waiting, awaited, record.start_us())


def _groups(described: object) -> dict[str, Ranks]:
    """Return the process groups in `pg_config`, which lists what the host had made."""
    groups: dict[str, Ranks] = {}
    if not isinstance(described, list):
        return groups
    for group in described:
        ranks = group.get("ranks") if isinstance(group, dict) else None
        if not isinstance(ranks, list) or not ranks:
            continue
        if all(type(rank) is int for rank in ranks):
            groups[str(group.get("pg_name"))] = tuple(ranks)
    return groups


def _world(size: object) -> int | None:
    return size if type(size) is int and 0 < size < 10**6 else None
