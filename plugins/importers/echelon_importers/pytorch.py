"""Traces of PyTorch: of the profiler (Kineto, ``{"traceEvents": [...]}``), and execution traces
(``{"nodes": [...]}``).

A rank has one file of either kind, or both. What each says:

* Kineto has the kernels of the GPU with their times. Kernels on a stream follow each other. A
  kernel also waits for the last kernel of each other stream that had ended when it started. The
  time between its start and the end of those is computing of the host. Durations of NCCL's kernels
  are ignored: the simulation finds out how long they take. PyTorch since 2.2 writes collective,
  bytes and ranks into the events; for older traces the execution trace of the same rank is needed,
  whose k-th collective is the k-th kernel of NCCL.
* An execution trace has the collectives with their tensors (`record_param_comms`) in the order of
  the host. Without Kineto, each waits for the one before, and for the kernels between them if the
  trace has their times.

The bytes are those of a rank's input tensors; an all-gather has that times the number of ranks in
the end. An all-to-all to which ranks give different numbers of bytes becomes an even one with the
same total. Files without `distributedInfo` are those of the rank in their names, or are in the
order of ranks. With the files of one rank, all ranks run the same.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

from echelon.model.documents import DocumentError
from echelon.model.quantities import shown
from echelon_importers import importer
from echelon_importers.importer import Importer, Source, Span
from echelon_importers.traces import Joined, TraceNode, Work, assemble
from echelon_importers.workload import CollectiveKind, ReadCounts, Workload

_KINDS: tuple[tuple[str, CollectiveKind], ...] = (
    ("allreduce", "all-reduce"),
    ("allgather", "all-gather"),
    ("reducescatter", "reduce-scatter"),
    ("alltoall", "all-to-all"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("reduce", "reduce"),
)
"""Beginnings of PyTorch's names for collectives, in small letters only."""
_NOT_COLLECTIVES = ("wait", "init")
_ELEMENT_BYTES = {
    "byte": 1, "char": 1, "bool": 1, "half": 2, "bfloat16": 2, "short": 2, "float": 4, "int": 4, "double": 8, "long": 8,
}  # fmt: skip
_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_MOST_US = 10**12
_MOST_BYTES = 10**15
_US_S = Fraction(1, 10**6)


class PyTorchOptions(importer.ImportOptions):
    """The part of a trace to take."""

    iterations: Span | None = None
    """The steps of the profiler to take, counted from 1.

    None: the first, or everything if there are no steps.
    """


@dataclass(frozen=True, slots=True)
class _Collective:
    """A collective as a trace describes it."""

    kind: CollectiveKind
    process_group: str
    group_size: int | None
    ranks: tuple[int, ...] | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Event:
    """An operation of a GPU, in microseconds."""

    stream: int
    start_us: Fraction
    duration_us: Fraction
    nccl: str | None
    """The name of NCCL's kernel; None for others."""
    said: _Collective | None
    number: int


@dataclass(slots=True)
class _Rank:
    """The files of a rank."""

    kineto: Source | None = None
    execution: Source | None = None
    events: list[_Event] = field(default_factory=list)
    steps: list[tuple[Fraction, Fraction]] = field(default_factory=list)
    nodes: list[_Collective | Fraction] = field(default_factory=list)
    """Collectives of the execution trace, and seconds of computing between them."""
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    world: int | None = None

    @property
    def source(self) -> Source:
        """Return the file that messages name."""
        source = self.kineto or self.execution
        assert source is not None
        return source


class PyTorch(Importer[PyTorchOptions]):
    """Traces of PyTorch's profiler (Kineto) and execution traces, in JSON."""

    Options: ClassVar[type[importer.ImportOptions]] = PyTorchOptions

    def read(self, sources: Sequence[Source]) -> Workload:
        tally = ReadCounts()
        ranks = _ranks(sources, tally)
        count = len(ranks)
        if count == 1:
            world = ranks[0].world
            if world and self.options.ranks is None:
                count = world
            else:
                count = self.given_ranks(ranks[0].source)
            tally.derived["ranks that run the same trace"] = count
        self.agreed_ranks(ranks[0].source, count, "those of the files")
        traces = [list(self._trace(rank, count, tally)) for rank in ranks]
        if len(traces) == 1:
            traces = traces * count
            ranks = ranks * count
        traces = _even(traces, tally)
        return assemble([rank.source for rank in ranks], traces, tally)

    def _trace(self, rank: _Rank, count: int, tally: ReadCounts) -> Iterator[TraceNode]:
        if rank.kineto is None:
            yield from self._by_host(rank, count, tally)
            return
        events = self._chosen(rank, tally)
        # The k-th kernel of NCCL is the k-th collective of more than one rank.
        known = [
            node for node in rank.nodes if isinstance(node, _Collective) and node.group_size != 1
        ]
        all_nccl = [event for event in rank.events if event.nccl]
        match = {event.number: node for event, node in zip(all_nccl, known, strict=False)}
        if rank.execution is not None and len(known) != len(all_nccl):
            raise DocumentError(
                rank.execution.name,
                "",
                f"has {len(known)} collectives, but {rank.kineto.name} has {len(all_nccl)} kernels"
                " of NCCL (give two traces of the same steps)",
                code="wrong-length",
            )
        latest: dict[int, list[_Event]] = {}
        ends: dict[int, list[Fraction]] = {}
        for event in events:
            after: list[int] = []
            ready_us = Fraction(0)
            for stream, before in latest.items():
                if stream == event.stream:
                    place = len(before)
                else:
                    place = bisect_right(ends[stream], event.start_us)
                if place:
                    after.append(2 * before[place - 1].number)
                    ready_us = max(ready_us, ends[stream][place - 1])
            if after:
                idle_us = max(Fraction(0), event.start_us - ready_us)
            else:
                idle_us = Fraction(0)
            tally.derived["us of the host between kernels, as computing"] += round(idle_us)
            if event.nccl is None:
                tally.read["kernels"] += 1
                yield TraceNode(
                    2 * event.number, tuple(after), Work((event.duration_us + idle_us) * _US_S)
                )
            else:
                yield TraceNode(2 * event.number + 1, tuple(after), Work(idle_us * _US_S))
                said = event.said or match.get(event.number)
                yield TraceNode(
                    2 * event.number, (2 * event.number + 1,), _joined(rank, event, said, count)
                )
            latest.setdefault(event.stream, []).append(event)
            own = ends.setdefault(event.stream, [])
            own.append(max([event.start_us + event.duration_us, *own[-1:]]))

    def _chosen(self, rank: _Rank, tally: ReadCounts) -> list[_Event]:
        events = rank.events
        wanted = self.options.iterations
        if rank.steps and (len(rank.steps) > 1 or wanted is not None):
            wanted = wanted or range(1, 2)
            if wanted.stop - 1 > len(rank.steps):
                raise DocumentError(
                    rank.source.name,
                    "",
                    f"has {len(rank.steps)} steps (choose among them with --iterations)",
                    code="out-of-range",
                )
            start = rank.steps[wanted.start - 1][0]
            end = rank.steps[wanted.stop - 2][1]
            events = [event for event in events if start <= event.start_us < end]
            tally.ignored["events of other steps"] += len(rank.events) - len(events)
        elif wanted is not None:
            raise DocumentError(
                rank.source.name, "", "has no steps of the profiler (leave out --iterations)"
            )
        return events

    def _by_host(self, rank: _Rank, count: int, tally: ReadCounts) -> Iterator[TraceNode]:
        before: tuple[int, ...] = ()
        for number, node in enumerate(rank.nodes):
            if isinstance(node, Fraction):
                tally.read["kernels"] += 1
                yield TraceNode(number, before, Work(node))
            else:
                event = _Event(0, Fraction(0), Fraction(0), "", None, number)
                yield TraceNode(number, before, _joined(rank, event, node, count))
            before = (number,)


def _joined(rank: _Rank, event: _Event, said: _Collective | None, count: int) -> Joined:
    if said is None:
        raise DocumentError(
            rank.source.name,
            f"event {event.number}",
            f"{shown((event.nccl or '')[:40])} does not say its bytes (give the execution trace of"
            " this rank, too)",
            code="missing-key",
        )
    name = re.sub(r"[^a-z]", "", (event.nccl or "").lower()).removeprefix("nccl")
    name = name.removeprefix("dev").removeprefix("kernel")
    if event.nccl and _kind(name) not in (None, said.kind) and event.said is None:
        raise DocumentError(
            rank.source.name,
            f"event {event.number}",
            f"{shown(event.nccl[:40])} is {said.kind} in the execution trace (give two traces of"
            " the same steps)",
        )
    ranks = said.ranks or rank.groups.get(said.process_group)
    if ranks is None and said.group_size in (None, count):
        ranks = tuple(range(count))
    if ranks is None and said.group_size == 1:
        ranks = (0,)
    if ranks is None or (said.group_size or len(ranks)) != len(ranks):
        raise DocumentError(
            rank.source.name,
            f"event {event.number}",
            f"process group {said.process_group[:20]} has {said.group_size} of {count} ranks, and"
            " no file says which (give an execution trace that starts with the process groups)",
            code="missing-key",
        )
    size_bytes = said.size_bytes * (len(ranks) if said.kind == "all-gather" else 1)
    return Joined(said.kind, "pg", ranks, size_bytes)


def _even(traces: list[list[TraceNode]], tally: ReadCounts) -> list[list[TraceNode]]:
    """Return the traces with all-to-alls of which every rank has the mean of the bytes."""
    parts: dict[tuple[tuple[int, ...], int], list[int]] = {}
    for trace in traces:
        count: Counter[tuple[int, ...]] = Counter()
        for node in trace:
            if isinstance(node.does, Joined):
                key = node.does.ranks, count[node.does.ranks]
                count[node.does.ranks] += 1
                if node.does.kind == "all-to-all":
                    parts.setdefault(key, []).append(node.does.size_bytes)
    uneven = {
        key: -(-sum(sizes) // len(sizes)) for key, sizes in parts.items() if len(set(sizes)) > 1
    }
    if not uneven:
        return traces
    tally.derived["all-to-alls with the mean of the ranks' bytes"] = len(uneven)
    out: list[list[TraceNode]] = []
    for trace in traces:
        count = Counter()
        out.append([])
        for node in trace:
            does = node.does
            if isinstance(does, Joined):
                key = does.ranks, count[does.ranks]
                count[does.ranks] += 1
                does = Joined(does.kind, does.group, does.ranks, uneven.get(key, does.size_bytes))
            out[-1].append(TraceNode(node.number, node.after, does))
    return out


def _ranks(sources: Sequence[Source], tally: ReadCounts) -> list[_Rank]:
    found: dict[int, _Rank] = {}
    order: Counter[str] = Counter()
    for source in sources:
        document = source.json()
        if not isinstance(document, dict):
            raise DocumentError(
                source.name, "", "is not a mapping (check the format)", code="not-a-mapping"
            )
        events = document.get("traceEvents")
        nodes = document.get("nodes")
        kind = "kineto" if isinstance(events, list) else "execution"
        if not isinstance(events, list) and not isinstance(nodes, list):
            raise DocumentError(
                source.name, "", "has neither traceEvents nor nodes (check the format)"
            )
        number = _rank_of(source, document, order[kind])
        order[kind] += 1
        rank = found.setdefault(number, _Rank())
        if getattr(rank, kind) is not None:
            raise DocumentError(
                source.name, "", f"is the second {kind} trace of rank {number} (leave one out)"
            )
        if isinstance(events, list):
            rank.kineto = source
            info = document.get("distributedInfo")
            if isinstance(info, dict):
                world = info.get("world_size")
            else:
                world = None
            if type(world) is int and 0 < world < 10**6:
                rank.world = world
            else:
                rank.world = None
            _read_events(source, events, rank, tally)
        elif isinstance(nodes, list):
            rank.execution = source
            _read_nodes(source, nodes, rank, tally)
    missing = next((number for number in range(len(found)) if number not in found), None)
    if missing is not None and len(found) > 1:
        raise DocumentError(
            sources[0].name, "", f"has no companion of rank {missing} (add its file)"
        )
    return [found[number] for number in sorted(found)]


def _rank_of(source: Source, document: Mapping[str, Any], order: int) -> int:
    info = document.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    if type(rank) is int and 0 <= rank < 10**6:
        return rank
    named = re.search(r"(?:^|[^0-9])([0-9]{1,6})(?:_plus)?\.json(?:\.gz)?$", source.name)
    return int(named[1]) if named else order


def _read_events(source: Source, events: Sequence[Any], rank: _Rank, tally: ReadCounts) -> None:
    for number, event in enumerate(events):
        if not isinstance(event, dict):
            raise _fault(source, number, "is not a mapping", "check the format")
        name = event.get("name")
        kind = event.get("cat")
        if event.get("ph") != "X" or not isinstance(name, str):
            tally.ignored["events that take no time"] += 1
            continue
        if name.startswith("ProfilerStep") and kind == "user_annotation":
            start = _microseconds(source, number, event, "ts")
            rank.steps.append((start, start + _microseconds(source, number, event, "dur")))
        elif kind in _GPU:
            rank.events.append(_gpu_event(source, number, name, event))
        else:
            tally.ignored["events of the host"] += 1
    rank.steps.sort()
    rank.events.sort(key=lambda event: (event.start_us, event.number))
    if not rank.events:
        reason = (
            "has no kernels of a GPU (profile with CUDA activities; a job on CPUs: run it under"
            " echelon capture)"
        )
        raise DocumentError(source.name, "", reason, code="empty-document")


def _gpu_event(source: Source, number: int, name: str, event: Mapping[str, Any]) -> _Event:
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    stream = args.get("stream", event.get("tid"))
    if type(stream) is not int:
        raise _fault(
            source, number, f"stream {shown(stream)} is not a number", "give a whole number"
        )
    nccl = name if name.startswith("nccl") else None
    return _Event(
        stream,
        _microseconds(source, number, event, "ts"),
        _microseconds(source, number, event, "dur"),
        nccl,
        _described(source, number, args) if nccl else None,
        number,
    )


def _described(source: Source, number: int, args: Mapping[str, Any]) -> _Collective | None:
    """Return what PyTorch since 2.2 says of a kernel of NCCL."""
    if "Collective name" not in args:
        return None
    kind = _known(source, number, str(args["Collective name"]))
    elements = args.get("In msg nelems")
    element_bytes = _ELEMENT_BYTES.get(str(args.get("dtype")).lower())
    if kind != "barrier" and (
        type(elements) is not int or not 0 <= elements <= _MOST_BYTES or element_bytes is None
    ):
        raise _fault(
            source,
            number,
            f"has {shown(elements)} elements of {shown(args.get('dtype'))}",
            "give numbers and a type",
        )
    size = args.get("Group size")
    listed = args.get("Process Group Ranks")
    ranks = _listed(listed if isinstance(listed, str) else "")
    return _Collective(
        kind,
        str(args.get("Process Group Name", "")),
        size if type(size) is int and size > 0 else None,
        ranks,
        0 if kind == "barrier" else int(elements or 0) * (element_bytes or 0),
    )


def _listed(text: str) -> tuple[int, ...] | None:
    """Return the ranks in ``[0, 1]``; None for none, or for a list that PyTorch has cut off."""
    if not re.fullmatch(r"\[[0-9]{1,6}(, ?[0-9]{1,6})*\]", text):
        return None
    ranks = tuple(int(word) for word in re.findall(r"[0-9]+", text))
    return ranks if len(set(ranks)) == len(ranks) else None


def _read_nodes(source: Source, nodes: Sequence[Any], rank: _Rank, tally: ReadCounts) -> None:
    for at, node in enumerate(nodes):
        if not isinstance(node, dict) or not isinstance(node.get("name"), str):
            raise _fault(source, at, "is not a node with a name", "check the format")
        name = node["name"]
        inputs = node.get("inputs", [])
        if isinstance(inputs, dict):
            values = inputs.get("values", [])
        else:
            values = inputs
        if not isinstance(values, list):
            raise _fault(source, at, "has inputs that are not a list", "check the format")
        if "process_group:init" in name:
            rank.groups.update(_process_groups(source, at, values))
        elif name == "record_param_comms":
            collective = _recorded(source, at, values)
            if collective is None:
                tally.ignored["waits of the host"] += 1
            else:
                rank.nodes.append(collective)
        elif node.get("cat") in _GPU and not name.startswith("nccl"):
            rank.nodes.append(_microseconds(source, at, node, "dur") * _US_S)
        else:
            tally.ignored["operators of the host"] += 1


def _process_groups(source: Source, at: int, values: Sequence[Any]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of process groups that list them; those with an empty list have all
    ranks.
    """
    try:
        described = json.loads(values[0]) if values else []
        return {
            str(group["pg_name"]): tuple(int(rank) for rank in group["ranks"])
            for group in described
            if group["ranks"]
        }
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _fault(
            source, at, "does not describe process groups", "record the trace anew"
        ) from None


def _recorded(source: Source, at: int, values: Sequence[Any]) -> _Collective | None:
    """Return what a `record_param_comms` did: tensors, sequence number, process group, a number,
    name, ..., size.
    """
    # The name stands before the two lists of bytes for each rank.
    places = (at for at in range(2, len(values) - 1) if isinstance(values[at + 1], list))
    place = next((at for at in places if isinstance(values[at], str)), None)
    if place is None:
        raise _fault(source, at, "does not name a collective", "record the trace anew")
    if values[place] in _NOT_COLLECTIVES:
        return None
    kind = _known(source, at, values[place])
    group = values[place - 2]
    if isinstance(group, list) and group:
        # Since PyTorch 2.4, with its description.
        group = group[0]
    size = values[place + 3] if len(values) > place + 3 else None
    if kind == "barrier":
        size_bytes = 0
    else:
        size_bytes = _tensor_bytes(source, at, values[0])
    return _Collective(
        kind, str(group), size if type(size) is int and size > 0 else None, None, size_bytes
    )


def _tensor_bytes(source: Source, at: int, tensors: Any) -> int:
    """Return the bytes of ``[id, storage, offset, elements, bytes of an element, device]``, or of a
    list of those.
    """
    if isinstance(tensors, list) and len(tensors) == 6 and isinstance(tensors[5], str):
        tensors = [tensors]
    total = 0
    for tensor in tensors if isinstance(tensors, list) else [None]:
        sizes = tensor[3:5] if isinstance(tensor, list) else []
        if len(sizes) != 2 or not all(
            type(size) is int and 0 <= size <= _MOST_BYTES for size in sizes
        ):
            raise _fault(source, at, f"{shown(tensor)} is not a tensor", "record the trace anew")
        total += sizes[0] * sizes[1]
    if total > _MOST_BYTES:
        raise _fault(source, at, f"has {total} bytes", "correct the tensors")
    return total


def _kind(name: str) -> CollectiveKind | None:
    return next((kind for start, kind in _KINDS if name.startswith(start)), None)


def _known(source: Source, at: int, name: str) -> CollectiveKind:
    kind = _kind(re.sub(r"[^a-z]", "", name.lower()))
    if kind is None:
        raise _fault(
            source, at, f"{shown(name)} is not a collective that a job file has", "leave it out"
        )
    return kind


def _microseconds(source: Source, at: int, event: Mapping[str, Any], key: str) -> Fraction:
    value = event.get(key)
    limit = 10**18 if key == "ts" else _MOST_US
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= limit:
        raise _fault(source, at, f"{key} is {shown(value)}", "give microseconds")
    return Fraction(repr(value))


def _fault(source: Source, at: int, reason: str, remedy: str) -> DocumentError:
    return DocumentError(source.name, f"entry {at}", f"{reason} ({remedy})")
