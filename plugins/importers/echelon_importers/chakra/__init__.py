"""Chakra execution traces (mlcommons/chakra): a file for each rank, `.et`, gzip or not, or JSON.

The JSON is that of Chakra's feeder, ``{"workload_graph": [{"Id": 1, "NodeType": 4, ...}]}``, or
that of its jsonizer. Files are those of ranks 0, 1, ..., by the number before their extension, or
in the order given. With one file and several hosts, all ranks run the same trace. A file that maps
numbers to lists of ranks, ASTRA-sim's configuration of communicators, says which ranks a `pg_name`
has.

Nodes wait for their `data_deps`. `ctrl_deps` are the calls around an operation, and Chakra's feeder
does not wait for them either. A collective with `is_cpu_op` is the call on the host, whose duration
is imported as computing; the kernel carries the bytes. `comm_size` is what a rank has before the
collective, as in ASTRA-sim's `Ring.cc`, so that an all-gather has that times the number of ranks in
the end. An all-to-all with uneven parts has `comm_parts`, a list of the bytes to each rank of its
group, which `echelon capture` writes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

from echelon.model.documents import DocumentError
from echelon.model.quantities import excerpt
from echelon_importers.chakra.wire import Value, WireNode, read_trace
from echelon_importers.importer import Importer, ImportOptions, Source
from echelon_importers.traces import (
    Joined,
    TracedTransfer,
    TraceNode,
    Transfers,
    Work,
    assemble,
    node_label,
)
from echelon_importers.workload import CollectiveKind, Ranks, ReadCounts, Workload

_KINDS = (
    "INVALID",
    "METADATA",
    "MEM_LOAD",
    "MEM_STORE",
    "COMP",
    "COMM_SEND",
    "COMM_RECV",
    "COMM_COLL",
)
_SEND, _RECEIVE, _COLLECTIVE = 5, 6, 7
_COLLECTIVES: Mapping[int, Mapping[int, CollectiveKind]] = {
    1: {0: "all-reduce", 1: "all-to-all", 2: "all-gather", 3: "reduce-scatter", 4: "broadcast"},
    2: {
        0: "all-reduce",
        1: "reduce",
        2: "all-gather",
        5: "broadcast",
        6: "all-to-all",
        7: "reduce-scatter",
        8: "reduce-scatter",
        9: "barrier",
    },
}
"""Collectives by `comm_type`, for each generation of the schema.

There is no gather and no scatter in a job file.
"""
_MOST_US = 10**12
_MOST_BYTES = 10**15


class ChakraOptions(ImportOptions):
    """The options of a Chakra import."""

    transfers: Transfers = "eager"


class Chakra(Importer[ChakraOptions]):
    """Chakra execution traces."""

    Options: ClassVar[type[ChakraOptions]] = ChakraOptions

    def read(self, sources: Sequence[Source]) -> Workload:
        files, groups = _split(sources)
        ordered = _by_rank(files)
        traces = [_parse(source) for source in ordered]
        tally = ReadCounts()
        files_read = len(traces)
        tally.read["nodes"] = sum(map(len, traces))
        if len(traces) == 1:
            ranks = self.given_ranks(ordered[0])
            if ranks > 1:
                tally.derived["ranks that run the same trace"] = ranks
            ordered = ordered * ranks
            traces = traces * ranks
        self.agreed_ranks(ordered[0], len(traces), "a file each")
        job = _Job(len(traces), groups)
        rank_nodes = []
        for rank, trace in enumerate(traces):
            # What several ranks run alike was read once.
            counts = tally if rank < files_read else ReadCounts()
            reader = _RankReader(ordered[rank], rank, job, counts)
            rank_nodes.append([reader.node(node) for node in trace])
        for source, nodes in zip(ordered, rank_nodes, strict=True):
            _check_numbers(source, nodes)
        return assemble(ordered, rank_nodes, tally, self.options.transfers)


def _check_numbers(source: Source, nodes: Iterable[TraceNode]) -> None:
    counts = Counter(node.number for node in nodes)
    for number, times in counts.items():
        if times > 1:
            raise _fault(source, number, "has the number of another node", "give each its own")


class _Job(NamedTuple):
    """The parts of a job to which the nodes of all ranks refer."""

    ranks: int
    groups: Mapping[str, Ranks]


@dataclass(frozen=True, slots=True)
class _RankReader:
    """A reader of the nodes of one rank."""

    source: Source
    rank: int
    job: _Job
    tally: ReadCounts

    def node(self, node: WireNode) -> TraceNode:
        if not 0 < node.kind < len(_KINDS):
            raise self._fault(node, f"{node.kind} is not a kind of node", "check the schema")
        if not 0 <= node.duration_us <= _MOST_US:
            raise self._fault(node, f"takes {node.duration_us} us", "correct the time")
        self.tally.ignored["control dependencies"] += len(node.ctrl_deps)
        # The call of a collective on the host, whose kernel has the bytes.
        is_call = node.attributes.get("is_cpu_op") and "comm_size" not in node.attributes
        does: Work | Joined | TracedTransfer
        if node.kind < _SEND or is_call:
            self.tally.read[f"{_KINDS[node.kind]} nodes"] += 1
            label = str(node.attributes.get("label", ""))
            does = Work(Fraction(node.duration_us, 10**6), label)
        elif node.kind == _COLLECTIVE:
            does = self._collective(node)
        else:
            does = self._transfer(node)
        return TraceNode(node.number, node.data_deps, does)

    def _transfer(self, node: WireNode) -> TracedTransfer:
        sends = node.kind == _SEND
        peer_key = "comm_dst" if sends else "comm_src"
        peer = self._integer(node, peer_key, self.job.ranks - 1)
        tag = self._integer(node, "comm_tag", 2**32, missing=0)
        size_bytes = self._integer(node, "comm_size", _MOST_BYTES)
        if peer == self.rank:
            raise self._fault(node, "is a transfer from its own rank", "correct the ranks")
        return TracedTransfer(sends, peer, tag, size_bytes)

    def _collective(self, node: WireNode) -> Joined:
        number = self._integer(node, "comm_type", 9)
        kind = _COLLECTIVES[node.generation].get(number)
        if kind is None:
            raise self._fault(node, f"comm_type {number} is not supported", "leave the node out")
        size_bytes = 0
        if kind != "barrier":
            size_bytes = self._integer(node, "comm_size", _MOST_BYTES)
        label, members = self._group(node)
        if kind == "all-gather":
            size_bytes *= len(members)
        parts = None
        if kind == "all-to-all" and "comm_parts" in node.attributes:
            parts = self._parts(node, len(members))
        return Joined(kind, label, members, size_bytes, parts)

    def _group(self, node: WireNode) -> tuple[str, Ranks]:
        """Return what the nodes of the group are called, and its ranks."""
        name = str(node.attributes.get("pg_name", ""))
        if not name or not self.job.groups:
            return "all", self._involved(node)
        if name not in self.job.groups:
            reason = f"no communicator is called {excerpt(name)}"
            raise self._fault(node, reason, "add it to the file")
        # A number follows, which tells groups of one label apart.
        called = node_label(str(node.attributes.get("label", "")))
        label = called.rstrip("0123456789") or "pg"
        return label, self.job.groups[name]

    def _parts(self, node: WireNode, ranks: int) -> tuple[int, ...]:
        parts = node.attributes["comm_parts"]
        if (
            not isinstance(parts, tuple)
            or len(parts) != ranks
            or max(parts, default=0) > _MOST_BYTES
        ):
            raise self._fault(node, f"comm_parts are not {ranks} sizes", "give one for each rank")
        return parts

    def _involved(self, node: WireNode) -> Ranks:
        dimensions = node.attributes.get("involved_dim", ())
        if not isinstance(dimensions, tuple):
            dimensions = (int(bool(dimensions)),)
        if all(dimensions):
            return tuple(range(self.job.ranks))
        reason = "runs along some dimensions only, which is not supported"
        raise self._fault(node, reason, "name groups by pg_name")

    def _integer(
        self,
        node: WireNode,
        key: str,
        most: int,
        missing: int | None = None,
    ) -> int:
        value = node.attributes.get(key, missing)
        if value is None:
            reason = f"is a {_KINDS[node.kind]} node without {key}"
            raise self._fault(node, reason, "convert the trace anew, with sizes")
        if not isinstance(value, int) or not 0 <= value <= most:
            reason = f"{key} is {excerpt(value)}"
            raise self._fault(node, reason, f"give a whole number from 0 to {most}")
        return value

    def _fault(
        self,
        node: WireNode,
        reason: str,
        remedy: str,
    ) -> DocumentError:
        return _fault(self.source, node.number, reason, remedy)


def _split(sources: Sequence[Source]) -> tuple[list[Source], Mapping[str, Ranks]]:
    """Return the traces, and the ranks of the communicators in the other files."""
    files: list[Source] = []
    groups: dict[str, Ranks] = {}
    for source in sources:
        begin = source.data[:4096].lower()
        is_mapping = begin.lstrip().startswith(b"{")
        is_trace = b"node" in begin or b'"version"' in begin
        communicators = None
        if is_mapping and not is_trace:
            communicators = source.json()
        if communicators is None:
            files.append(source)
        elif isinstance(communicators, dict):
            for name, ranks in communicators.items():
                groups[name] = _members(source, name, ranks)
    if not files:
        raise sources[0].refusal("is no trace (give the traces, too)", code="empty-document")
    return files, groups


def _members(
    source: Source,
    name: str,
    ranks: object,
) -> Ranks:
    if isinstance(ranks, list) and all(map(_is_rank, ranks)):
        members = tuple(ranks)
        if len(set(members)) == len(members):
            return members
    reason = "is not a list of ranks (write [0, 1])"
    raise DocumentError(source.name, name[:40], reason, code="not-a-list")


def _is_rank(value: object) -> bool:
    return type(value) is int and 0 <= value < 10**6


def _by_rank(files: Sequence[Source]) -> list[Source]:
    numbers: dict[int, Source] = {}
    for source in files:
        match = re.search(r"[._-]([0-9]{1,6})\.(?:et|json)(?:\.gz)?$", source.name)
        if match:
            numbers[int(match[1])] = source
    if len(files) > 1 and len(numbers) == len(files):
        missing = sorted(set(range(len(files))) - numbers.keys())
        if missing:
            raise files[0].refusal(f"has no companion of rank {missing[0]} (add its file)")
        return [numbers[rank] for rank in range(len(files))]
    return list(files)


def _parse(source: Source) -> list[WireNode]:
    data = source.unpacked()
    if data.lstrip()[:1] in (b"{", b"["):
        nodes = _json_nodes(source)
    else:
        nodes = read_trace(source)
    if not nodes:
        raise source.refusal("has no nodes (check the format)", code="empty-document")
    return nodes


def _json_nodes(source: Source) -> list[WireNode]:
    documents = _documents(source)
    first = documents[0] if documents else {}
    listed = first.get("nodes")
    is_alone = len(documents) == 1
    if is_alone and isinstance(listed, list) and listed and "type" in listed[0]:
        # Chakra's nodes have a type, and those of PyTorch's execution traces have not.
        documents = _mappings(source, listed)
        first = {}
    graph = first.get("workload_graph")
    if len(documents) == 1 and isinstance(graph, list):
        return _feeder_nodes(source, graph)
    if "nodes" in first or "traceEvents" in first:
        raise source.refusal("is a trace of PyTorch (import it with format pytorch)")
    nodes = []
    for index, document in enumerate(documents):
        # The first mapping may be about the trace as a whole.
        if "type" in document or index > 0:
            values = {_camel(key): value for key, value in document.items()}
            nodes.append(_JsonNode(source, index, values).of_jsonizer())
    return nodes


def _feeder_nodes(source: Source, graph: Iterable[object]) -> list[WireNode]:
    nodes = []
    for index, node in enumerate(graph):
        if not isinstance(node, dict):
            raise _fault(source, index, "is not a mapping", "check the format")
        nodes.append(_JsonNode(source, index, node).of_feeder())
    return nodes


def _documents(source: Source) -> list[dict[str, Any]]:
    """Return the mappings that follow each other in a file, or that are in its one list."""
    text = source.text()
    position = 0
    out = []
    if text.lstrip().startswith("["):
        return _mappings(source, source.json())
    decoder = json.JSONDecoder()
    while position < len(text):
        try:
            document, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, getattr(error, "pos", position)) + 1
            raise source.fault(line, "is not JSON", "correct it") from None
        if not isinstance(document, dict):
            raise source.refusal("is not a mapping (check the format)", code="not-a-mapping")
        out.append(document)
        position = len(text) - len(text[position:].lstrip())
    return out


def _mappings(source: Source, values: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the values if all are mappings."""
    for value in values:
        if not isinstance(value, dict):
            reason = f"{excerpt(value)} is not a node (check the format)"
            raise source.refusal(reason, code="not-a-mapping")
    return list(values)


_FEEDER_ATTRIBUTES = (
    "is_cpu_op",
    "comm_type",
    "comm_size",
    "comm_src",
    "comm_dst",
    "comm_tag",
    "pg_name",
)


@dataclass(frozen=True, slots=True)
class _JsonNode:
    """A node in JSON, and its place in the file."""

    source: Source
    index: int
    values: Mapping[str, Any]

    def of_feeder(self) -> WireNode:
        """Return the node that Chakra's feeder has written."""
        values = self.values
        attributes = {key: values[key] for key in _FEEDER_ATTRIBUTES if key in values}
        return WireNode(
            self._integer("Id"),
            self._integer("NodeType"),
            self._integers("ctrlDeps"),
            self._integers("data_deps"),
            self._integer("runtime", missing=0),
            attributes,
            2,
        )

    def of_jsonizer(self) -> WireNode:
        """Return the node that Chakra's jsonizer has written."""
        attributes = self._attributes(self.values.get("attr", []))
        stated = self.values.get("type")
        kind = stated
        if isinstance(kind, int) and 0 < kind < len(_KINDS):
            kind = _KINDS[kind]
        kind = str(kind).removesuffix("_NODE")
        if kind not in _KINDS:
            raise self._fault(f"{excerpt(stated)} is not a kind of node", "check the schema")
        return WireNode(
            self._integer("id", missing=0),
            _KINDS.index(kind),
            self._integers("ctrlDeps"),
            self._integers("dataDeps"),
            self._integer("durationMicros", missing=0),
            attributes,
            2,
        )

    def _attributes(self, listed: object) -> dict[str, Value]:
        attributes: dict[str, Value] = {}
        if not isinstance(listed, list):
            return attributes
        for each in listed:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise self._fault("has an attribute without a name", "correct it")
            for key, value in each.items():
                attribute = self._attribute(_camel(key), value)
                if attribute is not None:
                    attributes[each["name"]] = attribute
        return attributes

    def _attribute(self, key: str, value: Any) -> Value | None:
        """Return the value of an attribute; None: the key is not that of a value that is read."""
        match key:
            case "int64Val" | "uint64Val" | "int32Val" | "uint32Val":
                return self._checked(self.index, key, value, least=-(2**63))
            case "boolVal":
                return int(value is True)
            case "stringVal":
                return str(value)
            case "boolList" | "uint64List" if not isinstance(value, dict):
                return ()
            case "boolList":
                items = value.get("values", [])
                return tuple(int(item is True) for item in items)
            case "uint64List":
                return self._checked_list("values", value.get("values", []))
        return None

    def _integer(self, key: str, missing: int | None = None) -> int:
        number = self.values.get("Id", self.values.get("id", self.index))
        value = self.values.get(key, missing)
        return self._checked(number, key, value)

    def _integers(self, key: str) -> tuple[int, ...]:
        values = self.values.get(key, [])
        return self._checked_list(key, values)

    def _checked(
        self,
        number: object,
        key: str,
        value: Any,
        least: int = 0,
    ) -> int:
        """Return a whole number, which the jsonizer writes as text if it has 64 bits."""
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value):
            value = int(value)
        if type(value) is not int or not least <= value < 2**64:
            reason = f"{key} is {excerpt(value)}"
            raise _fault(self.source, number, reason, "give a whole number")
        return value

    def _checked_list(self, key: str, values: Any) -> tuple[int, ...]:
        if not isinstance(values, list):
            raise self._fault(f"{key} is not a list", "write [1, 2]")
        return tuple(self._checked(self.index, key, value) for value in values)

    def _fault(self, reason: str, remedy: str) -> DocumentError:
        return _fault(self.source, self.index, reason, remedy)


def _camel(key: str) -> str:
    """Return a name in one of the two ways in which protobuf writes it."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), key)


def _fault(
    source: Source,
    number: object,
    reason: str,
    remedy: str,
) -> DocumentError:
    return DocumentError(source.name, f"node {excerpt(number)}", f"{reason} ({remedy})")
