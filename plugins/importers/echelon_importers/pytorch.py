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
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar

from echelon.model.documents import DocumentError
from echelon.model.quantities import excerpt
from echelon_importers import importer
from echelon_importers.importer import Importer, Source, Span
from echelon_importers.traces import Joined, TraceNode, Work, assemble
from echelon_importers.workload import CollectiveKind, Ranks, ReadCounts, Workload

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
    ranks: Ranks | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Event:
    """An operation of a GPU, in microseconds."""

    stream: int
    start_us: Fraction
    duration_us: Fraction
    nccl: str | None
    """The name of NCCL's kernel; None for others."""
    recorded: _Collective | None
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
    groups: dict[str, Ranks] = field(default_factory=dict)
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

    def _trace(
        self,
        rank: _Rank,
        count: int,
        tally: ReadCounts,
    ) -> Iterator[TraceNode]:
        if rank.kineto is None:
            yield from self._by_host(rank, count, tally)
            return
        events = self._chosen(rank, tally)
        # The k-th kernel of NCCL is the k-th collective of more than one rank.
        recorded_nodes = []
        for node in rank.nodes:
            if isinstance(node, _Collective) and node.group_size != 1:
                recorded_nodes.append(node)
        all_nccl = [event.number for event in rank.events if event.nccl]
        match = dict(zip(all_nccl, recorded_nodes, strict=False))
        if rank.execution is not None and len(recorded_nodes) != len(all_nccl):
            reason = (
                f"has {len(recorded_nodes)} collectives, but {rank.kineto.name} has"
                f" {len(all_nccl)} kernels of NCCL (give two traces of the same steps)"
            )
            raise rank.execution.refusal(reason, code="wrong-length")
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
            idle_us = Fraction(0)
            if after:
                idle_us = max(idle_us, event.start_us - ready_us)
            tally.derived["us of the host between kernels, as computing"] += round(idle_us)
            number = 2 * event.number
            if event.nccl is None:
                tally.read["kernels"] += 1
                work = Work((event.duration_us + idle_us) * _US_S)
                yield TraceNode(number, tuple(after), work)
            else:
                # What the host does before the kernel is a node of its own.
                yield TraceNode(number + 1, tuple(after), Work(idle_us * _US_S))
                recorded = event.recorded or match.get(event.number)
                yield TraceNode(number, (number + 1,), _joined(rank, event, recorded, count))
            latest.setdefault(event.stream, []).append(event)
            stream_ends = ends.setdefault(event.stream, [])
            end_us = event.start_us + event.duration_us
            stream_ends.append(max([end_us, *stream_ends[-1:]]))

    def _chosen(self, rank: _Rank, tally: ReadCounts) -> list[_Event]:
        events = rank.events
        wanted = self.options.iterations
        if wanted is None and len(rank.steps) > 1:
            wanted = range(1, 2)
        if rank.steps and wanted is not None:
            if wanted.stop - 1 > len(rank.steps):
                reason = f"has {len(rank.steps)} steps (choose among them with --iterations)"
                raise rank.source.refusal(reason, code="out-of-range")
            start, _ = rank.steps[wanted.start - 1]
            _, end = rank.steps[wanted.stop - 2]
            events = [event for event in events if start <= event.start_us < end]
            tally.ignored["events of other steps"] += len(rank.events) - len(events)
        elif wanted is not None:
            raise rank.source.refusal("has no steps of the profiler (leave out --iterations)")
        return events

    def _by_host(
        self,
        rank: _Rank,
        count: int,
        tally: ReadCounts,
    ) -> Iterator[TraceNode]:
        before: tuple[int, ...] = ()
        for number, node in enumerate(rank.nodes):
            if isinstance(node, Fraction):
                tally.read["kernels"] += 1
                yield TraceNode(number, before, Work(node))
            else:
                event = _Event(0, Fraction(0), Fraction(0), "", None, number)
                yield TraceNode(number, before, _joined(rank, event, node, count))
            before = (number,)


def _joined(
    rank: _Rank,
    event: _Event,
    recorded: _Collective | None,
    count: int,
) -> Joined:
    if recorded is None:
        reason = (
            f"{excerpt((event.nccl or '')[:40])} does not say its bytes (give the execution trace"
            " of this rank, too)"
        )
        raise DocumentError(rank.source.name, f"event {event.number}", reason, code="missing-key")
    kind = _kernel_kind(event.nccl or "")
    differs = kind not in (None, recorded.kind)
    if event.nccl and differs and event.recorded is None:
        reason = (
            f"{excerpt(event.nccl[:40])} is {recorded.kind} in the execution trace (give two traces"
            " of the same steps)"
        )
        raise DocumentError(rank.source.name, f"event {event.number}", reason)
    ranks = recorded.ranks or rank.groups.get(recorded.process_group)
    if ranks is None and recorded.group_size in (None, count):
        ranks = tuple(range(count))
    if ranks is None and recorded.group_size == 1:
        ranks = (0,)
    if ranks is None or recorded.group_size not in (None, len(ranks)):
        reason = (
            f"process group {recorded.process_group[:20]} has {recorded.group_size} of {count}"
            " ranks, and no file says which (give an execution trace that starts with the process"
            " groups)"
        )
        raise DocumentError(rank.source.name, f"event {event.number}", reason, code="missing-key")
    size_bytes = recorded.size_bytes
    if recorded.kind == "all-gather":
        size_bytes *= len(ranks)
    return Joined(recorded.kind, "pg", ranks, size_bytes)


def _kernel_kind(name: str) -> CollectiveKind | None:
    letters = re.sub(r"[^a-z]", "", name.lower())
    for prefix in ("nccl", "dev", "kernel"):
        letters = letters.removeprefix(prefix)
    return _kind(letters)


def _even(traces: list[list[TraceNode]], tally: ReadCounts) -> list[list[TraceNode]]:
    """Return the traces with all-to-alls of which every rank has the mean of the bytes."""
    parts: defaultdict[tuple[Ranks, int], list[int]] = defaultdict(list)
    for trace in traces:
        count: Counter[Ranks] = Counter()
        for node in trace:
            does = node.does
            if isinstance(does, Joined):
                key = does.ranks, count[does.ranks]
                count[does.ranks] += 1
                if does.kind == "all-to-all":
                    parts[key].append(does.size_bytes)
    uneven = {}
    for key, sizes in parts.items():
        if len(set(sizes)) > 1:
            uneven[key] = -(-sum(sizes) // len(sizes))
    if not uneven:
        return traces
    tally.derived["all-to-alls with the mean of the ranks' bytes"] = len(uneven)
    return [list(_with_sizes(trace, uneven)) for trace in traces]


def _with_sizes(
    trace: Sequence[TraceNode],
    sizes: Mapping[tuple[Ranks, int], int],
) -> Iterator[TraceNode]:
    """Yield the nodes of a trace, whose collectives have `sizes` by group and number."""
    count: Counter[Ranks] = Counter()
    for node in trace:
        does = node.does
        if isinstance(does, Joined):
            key = does.ranks, count[does.ranks]
            count[does.ranks] += 1
            size_bytes = sizes.get(key, does.size_bytes)
            does = replace(does, size_bytes=size_bytes)
        yield replace(node, does=does)


def _ranks(sources: Sequence[Source], tally: ReadCounts) -> list[_Rank]:
    ranks: dict[int, _Rank] = {}
    order: Counter[str] = Counter()
    for source in sources:
        document = source.json()
        if not isinstance(document, dict):
            raise source.refusal("is not a mapping (check the format)", code="not-a-mapping")
        events = document.get("traceEvents")
        nodes = document.get("nodes")
        if isinstance(events, list):
            kind = "kineto"
        elif isinstance(nodes, list):
            kind = "execution"
        else:
            raise source.refusal("has neither traceEvents nor nodes (check the format)")
        number = _rank_of(source, document, order[kind])
        order[kind] += 1
        rank = ranks.setdefault(number, _Rank())
        if getattr(rank, kind) is not None:
            raise source.refusal(f"is the second {kind} trace of rank {number} (leave one out)")
        if isinstance(events, list):
            rank.kineto = source
            world = _distributed(document).get("world_size")
            rank.world = None
            if type(world) is int and 0 < world < 10**6:
                rank.world = world
            _read_events(source, events, rank, tally)
        elif isinstance(nodes, list):
            rank.execution = source
            _read_nodes(source, nodes, rank, tally)
    missing = sorted(set(range(len(ranks))) - ranks.keys())
    if missing and len(ranks) > 1:
        raise sources[0].refusal(f"has no companion of rank {missing[0]} (add its file)")
    return [ranks[number] for number in sorted(ranks)]


def _rank_of(
    source: Source,
    document: Mapping[str, Any],
    order: int,
) -> int:
    rank = _distributed(document).get("rank")
    if type(rank) is int and 0 <= rank < 10**6:
        return rank
    match = re.search(r"(?:^|[^0-9])([0-9]{1,6})(?:_plus)?\.json(?:\.gz)?$", source.name)
    return int(match[1]) if match else order


def _distributed(document: Mapping[str, Any]) -> Mapping[str, Any]:
    info = document.get("distributedInfo")
    return info if isinstance(info, dict) else {}


def _read_events(
    source: Source,
    events: Sequence[Any],
    rank: _Rank,
    tally: ReadCounts,
) -> None:
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
            duration = _microseconds(source, number, event, "dur")
            rank.steps.append((start, start + duration))
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
        raise source.refusal(reason, code="empty-document")


def _gpu_event(
    source: Source,
    number: int,
    name: str,
    event: Mapping[str, Any],
) -> _Event:
    args = event.get("args")
    if not isinstance(args, dict):
        args = {}
    stream = args.get("stream", event.get("tid"))
    if type(stream) is not int:
        reason = f"stream {excerpt(stream)} is not a number"
        raise _fault(source, number, reason, "give a whole number")
    start_us = _microseconds(source, number, event, "ts")
    duration_us = _microseconds(source, number, event, "dur")
    if not name.startswith("nccl"):
        return _Event(stream, start_us, duration_us, None, None, number)
    described = _described(source, number, args)
    return _Event(stream, start_us, duration_us, name, described, number)


def _described(
    source: Source,
    number: int,
    args: Mapping[str, Any],
) -> _Collective | None:
    """Return what PyTorch since 2.2 says of a kernel of NCCL."""
    if "Collective name" not in args:
        return None
    kind = _collective_kind(source, number, str(args["Collective name"]))
    size_bytes = 0
    if kind != "barrier":
        size_bytes = _message_bytes(source, number, args)
    name = str(args.get("Process Group Name", ""))
    size = _group_size(args.get("Group size"))
    ranks = _listed(args.get("Process Group Ranks"))
    return _Collective(kind, name, size, ranks, size_bytes)


def _message_bytes(
    source: Source,
    number: int,
    args: Mapping[str, Any],
) -> int:
    elements = args.get("In msg nelems")
    element = args.get("dtype")
    element_bytes = _ELEMENT_BYTES.get(str(element).lower())
    if type(elements) is not int or not 0 <= elements <= _MOST_BYTES or element_bytes is None:
        reason = f"has {excerpt(elements)} elements of {excerpt(element)}"
        raise _fault(source, number, reason, "give numbers and a type")
    return elements * element_bytes


def _group_size(size: object) -> int | None:
    return size if type(size) is int and size > 0 else None


def _listed(text: object) -> Ranks | None:
    """Return the ranks in ``[0, 1]``; None for none, or for a list that PyTorch has cut off."""
    if not isinstance(text, str):
        return None
    if not re.fullmatch(r"\[[0-9]{1,6}(, ?[0-9]{1,6})*\]", text):
        return None
    ranks = tuple(int(word) for word in re.findall(r"[0-9]+", text))
    return ranks if len(set(ranks)) == len(ranks) else None


def _read_nodes(
    source: Source,
    nodes: Sequence[Any],
    rank: _Rank,
    tally: ReadCounts,
) -> None:
    for index, node in enumerate(nodes):
        if not isinstance(node, dict) or not isinstance(node.get("name"), str):
            raise _fault(source, index, "is not a node with a name", "check the format")
        name = node["name"]
        values = node.get("inputs", [])
        if isinstance(values, dict):
            values = values.get("values", [])
        if not isinstance(values, list):
            raise _fault(source, index, "has inputs that are not a list", "check the format")
        if "process_group:init" in name:
            rank.groups.update(_process_groups(source, index, values))
        elif name == "record_param_comms":
            collective = _recorded(source, index, values)
            if collective is None:
                tally.ignored["waits of the host"] += 1
            else:
                rank.nodes.append(collective)
        elif node.get("cat") in _GPU and not name.startswith("nccl"):
            rank.nodes.append(_microseconds(source, index, node, "dur") * _US_S)
        else:
            tally.ignored["operators of the host"] += 1


def _process_groups(
    source: Source,
    index: int,
    values: Sequence[Any],
) -> dict[str, Ranks]:
    """Return the ranks of process groups that list them; an empty list stands for all ranks."""
    try:
        described = json.loads(values[0]) if values else []
        groups = {}
        for group in described:
            if group["ranks"]:
                name = str(group["pg_name"])
                groups[name] = tuple(map(int, group["ranks"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        reason = "does not describe process groups"
        raise _fault(source, index, reason, "record the trace anew") from None
    return groups


def _recorded(
    source: Source,
    index: int,
    values: Sequence[Any],
) -> _Collective | None:
    """Return the inputs of a `record_param_comms`: tensors, sequence number, group and more."""
    place = _name_place(values)
    if place is None:
        raise _fault(source, index, "does not name a collective", "record the trace anew")
    if values[place] in _NOT_COLLECTIVES:
        return None
    kind = _collective_kind(source, index, values[place])
    group = values[place - 2]
    if isinstance(group, list) and group:
        # Since PyTorch 2.4, with its description.
        group = group[0]
    size = None
    if len(values) > place + 3:
        size = _group_size(values[place + 3])
    size_bytes = 0
    if kind != "barrier":
        size_bytes = _tensor_bytes(source, index, values[0])
    return _Collective(kind, str(group), size, None, size_bytes)


def _name_place(values: Sequence[Any]) -> int | None:
    # The name stands before the two lists of bytes for each rank.
    for place in range(2, len(values) - 1):
        name, following = values[place : place + 2]
        if isinstance(name, str) and isinstance(following, list):
            return place
    return None


def _tensor_bytes(
    source: Source,
    index: int,
    tensors: Any,
) -> int:
    """Return the bytes of ``[id, storage, offset, elements, bytes of an element, device]``, or of a
    list of those.
    """
    if not isinstance(tensors, list):
        tensors = [None]
    elif len(tensors) == 6 and isinstance(tensors[5], str):
        tensors = [tensors]
    total = 0
    for tensor in tensors:
        sizes = tensor[3:5] if isinstance(tensor, list) else []
        if len(sizes) != 2 or not all(map(_is_size, sizes)):
            reason = f"{excerpt(tensor)} is not a tensor"
            raise _fault(source, index, reason, "record the trace anew")
        elements, element_bytes = sizes
        total += elements * element_bytes
    if total > _MOST_BYTES:
        raise _fault(source, index, f"has {total} bytes", "correct the tensors")
    return total


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MOST_BYTES


def _kind(name: str) -> CollectiveKind | None:
    for start, kind in _KINDS:
        if name.startswith(start):
            return kind
    return None


def _collective_kind(
    source: Source,
    index: int,
    name: str,
) -> CollectiveKind:
    letters = re.sub(r"[^a-z]", "", name.lower())
    kind = _kind(letters)
    if kind is None:
        reason = f"{excerpt(name)} is not a collective that a job file has"
        raise _fault(source, index, reason, "leave it out")
    return kind


def _microseconds(
    source: Source,
    index: int,
    event: Mapping[str, Any],
    key: str,
) -> Fraction:
    value: Any = event.get(key)
    limit = 10**18 if key == "ts" else _MOST_US
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= limit:
        raise _fault(source, index, f"{key} is {excerpt(value)}", "give microseconds")
    return Fraction(repr(value))


def _fault(
    source: Source,
    index: int,
    reason: str,
    remedy: str,
) -> DocumentError:
    return DocumentError(source.name, f"entry {index}", f"{reason} ({remedy})")
