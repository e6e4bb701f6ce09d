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
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

from echelon.model.documents import DocumentError
from echelon.model.quantities import shown
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
from echelon_importers.workload import CollectiveKind, ReadCounts, Workload

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
        made = [
            [
                self._node(
                    ordered[rank],
                    rank,
                    len(traces),
                    node,
                    groups,
                    tally if rank < files_read else ReadCounts(),
                )
                for node in trace
            ]
            for rank, trace in enumerate(traces)
        ]
        for rank, trace in enumerate(made):
            for number, times in Counter(node.number for node in trace).items():
                if times > 1:
                    raise _fault(
                        ordered[rank], number, "has the number of another node", "give each its own"
                    )
        return assemble(ordered, made, tally, self.options.transfers)

    def _node(
        self,
        source: Source,
        rank: int,
        ranks: int,
        node: WireNode,
        groups: Mapping[str, tuple[int, ...]],
        tally: ReadCounts,
    ) -> TraceNode:
        if not 0 < node.kind < len(_KINDS):
            raise _fault(
                source, node.number, f"{node.kind} is not a kind of node", "check the schema"
            )
        if not 0 <= node.duration_us <= _MOST_US:
            raise _fault(source, node.number, f"takes {node.duration_us} us", "correct the time")
        tally.ignored["control dependencies"] += len(node.ctrl_deps)
        does: Work | Joined | TracedTransfer
        if node.kind < _SEND or (
            node.attributes.get("is_cpu_op") and "comm_size" not in node.attributes
        ):
            tally.read[f"{_KINDS[node.kind]} nodes"] += 1
            does = Work(Fraction(node.duration_us, 10**6), str(node.attributes.get("label", "")))
        elif node.kind == _COLLECTIVE:
            does = self._collective(source, ranks, node, groups)
        else:
            sends = node.kind == _SEND
            peer = _whole(source, node, "comm_dst" if sends else "comm_src", ranks - 1)
            does = TracedTransfer(
                sends,
                peer,
                _whole(source, node, "comm_tag", 2**32, missing=0),
                _whole(source, node, "comm_size", _MOST_BYTES),
            )
            if peer == rank:
                raise _fault(
                    source, node.number, "is a transfer from its own rank", "correct the ranks"
                )
        return TraceNode(node.number, node.data_deps, does)

    def _collective(
        self, source: Source, ranks: int, node: WireNode, groups: Mapping[str, tuple[int, ...]]
    ) -> Joined:
        number = _whole(source, node, "comm_type", 9)
        kind = _COLLECTIVES[node.generation].get(number)
        if kind is None:
            raise _fault(
                source, node.number, f"comm_type {number} is not supported", "leave the node out"
            )
        if kind == "barrier":
            size_bytes = 0
        else:
            size_bytes = _whole(source, node, "comm_size", _MOST_BYTES)
        name = str(node.attributes.get("pg_name", ""))
        if name and groups:
            if name not in groups:
                raise _fault(
                    source,
                    node.number,
                    f"no communicator is called {shown(name)}",
                    "add it to the file",
                )
            # A number follows, which tells groups of one label apart.
            called = node_label(str(node.attributes.get("label", "")))
            label = called.rstrip("0123456789") or "pg"
            members = groups[name]
        else:
            label = "all"
            members = self._involved(source, ranks, node)
        if kind == "all-gather":
            size_bytes *= len(members)
        if kind == "all-to-all":
            parts = node.attributes.get("comm_parts")
        else:
            parts = None
        if parts is None:
            return Joined(kind, label, members, size_bytes)
        if (
            not isinstance(parts, tuple)
            or len(parts) != len(members)
            or max(parts, default=0) > _MOST_BYTES
        ):
            raise _fault(
                source,
                node.number,
                f"comm_parts are not {len(members)} sizes",
                "give one for each rank",
            )
        return Joined(kind, label, members, size_bytes, parts)

    def _involved(self, source: Source, ranks: int, node: WireNode) -> tuple[int, ...]:
        said = node.attributes.get("involved_dim", ())
        if isinstance(said, tuple):
            involved = said
        else:
            involved = (int(bool(said)),)
        if all(involved):
            return tuple(range(ranks))
        raise _fault(
            source,
            node.number,
            "runs along some dimensions only, which is not supported",
            "name groups by pg_name",
        )


def _split(sources: Sequence[Source]) -> tuple[list[Source], Mapping[str, tuple[int, ...]]]:
    """Return the traces, and the ranks of the communicators in the other files."""
    files: list[Source] = []
    groups: dict[str, tuple[int, ...]] = {}
    for source in sources:
        begin = source.data[:4096].lower()
        traced = begin.lstrip()[:1] != b"{" or b"node" in begin or b'"version"' in begin
        said = None if traced else source.json()
        if said is None:
            files.append(source)
            continue
        for name, ranks in said.items() if isinstance(said, dict) else ():
            whole = isinstance(ranks, list) and all(
                type(rank) is int and 0 <= rank < 10**6 for rank in ranks
            )
            if not whole or len(set(ranks)) != len(ranks):
                raise DocumentError(
                    source.name,
                    name[:40],
                    "is not a list of ranks (write [0, 1])",
                    code="not-a-list",
                )
            groups[name] = tuple(ranks)
    if not files:
        raise DocumentError(
            sources[0].name, "", "is no trace (give the traces, too)", code="empty-document"
        )
    return files, groups


def _by_rank(files: Sequence[Source]) -> list[Source]:
    found = [
        re.search(r"[._-]([0-9]{1,6})\.(?:et|json)(?:\.gz)?$", source.name) for source in files
    ]
    numbers = {int(each[1]): source for each, source in zip(found, files, strict=True) if each}
    if len(files) > 1 and len(numbers) == len(files):
        if sorted(numbers) != list(range(len(files))):
            missing = next(rank for rank in range(len(files)) if rank not in numbers)
            raise DocumentError(
                files[0].name, "", f"has no companion of rank {missing} (add its file)"
            )
        return [numbers[rank] for rank in range(len(files))]
    return list(files)


def _parse(source: Source) -> list[WireNode]:
    data = source.unpacked()
    if data.lstrip()[:1] in (b"{", b"["):
        nodes = _json_nodes(source)
    else:
        nodes = read_trace(source)
    if not nodes:
        raise DocumentError(
            source.name, "", "has no nodes (check the format)", code="empty-document"
        )
    return nodes


def _json_nodes(source: Source) -> list[WireNode]:
    documents = _documents(source)
    first = documents[0] if documents else {}
    listed = first.get("nodes")
    if len(documents) == 1 and isinstance(listed, list) and listed and "type" in listed[0]:
        # Chakra's nodes have a type, and those of PyTorch's execution traces have not.
        documents = [*map(_mapping(source), listed)]
        first = {}
    if len(documents) == 1 and isinstance(first.get("workload_graph"), list):
        return [_feeder_node(source, at, node) for at, node in enumerate(first["workload_graph"])]
    if "nodes" in first or "traceEvents" in first:
        raise DocumentError(
            source.name, "", "is a trace of PyTorch (import it with format pytorch)"
        )
    return [
        _jsonizer_node(source, at, node)
        for at, node in enumerate(documents)
        if "type" in node or at
    ]


def _documents(source: Source) -> list[dict[str, Any]]:
    """Return the mappings that follow each other in a file, or that are in its one list."""
    text = source.text()
    at = 0
    out = []
    if text.lstrip().startswith("["):
        listed = source.json()
        return [*map(_mapping(source), listed)]
    decoder = json.JSONDecoder()
    while at < len(text):
        try:
            document, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, getattr(error, "pos", at)) + 1
            raise source.fault(line, "is not JSON", "correct it") from None
        if not isinstance(document, dict):
            raise DocumentError(
                source.name, "", "is not a mapping (check the format)", code="not-a-mapping"
            )
        out.append(document)
        if at - len(text):
            at = len(text) - len(text[at:].lstrip())
        else:
            at = at
    return out


def _mapping(source: Source) -> Callable[[Any], dict[str, Any]]:
    """Return a function that refuses what is no mapping."""

    def mapping(value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        raise DocumentError(
            source.name,
            "",
            f"{shown(value)} is not a node (check the format)",
            code="not-a-mapping",
        )

    return mapping


_FEEDER_ATTRIBUTES = (
    "is_cpu_op",
    "comm_type",
    "comm_size",
    "comm_src",
    "comm_dst",
    "comm_tag",
    "pg_name",
)


def _feeder_node(source: Source, at: int, node: Any) -> WireNode:
    if not isinstance(node, dict):
        raise _fault(source, at, "is not a mapping", "check the format")
    number = _json_whole(source, at, node, "Id")
    attributes = {key: node[key] for key in _FEEDER_ATTRIBUTES if key in node}
    return WireNode(
        number,
        _json_whole(source, at, node, "NodeType"),
        _json_numbers(source, at, node, "ctrlDeps"),
        _json_numbers(source, at, node, "data_deps"),
        _json_whole(source, at, node, "runtime", missing=0),
        attributes,
        2,
    )


def _jsonizer_node(source: Source, at: int, node: dict[str, Any]) -> WireNode:
    attributes: dict[str, Value] = {}
    # Protobuf writes names in either way.
    node = {_camel(key): value for key, value in node.items()}
    listed = node.get("attr", [])
    for each in listed if isinstance(listed, list) else ():
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise _fault(source, at, "has an attribute without a name", "correct it")
        for key, value in ((_camel(key), value) for key, value in each.items()):
            if key in ("int64Val", "uint64Val", "int32Val", "uint32Val"):
                attributes[each["name"]] = _json_whole(
                    source, at, {key: value}, key, least=-(2**63)
                )
            elif key == "boolVal":
                attributes[each["name"]] = int(value is True)
            elif key == "stringVal":
                attributes[each["name"]] = str(value)
            elif key == "boolList":
                if isinstance(value, dict):
                    values = value.get("values", [])
                else:
                    values = []
                attributes[each["name"]] = tuple(int(item is True) for item in values)
            elif key == "uint64List":
                attributes[each["name"]] = _json_numbers(
                    source, at, value if isinstance(value, dict) else {}, "values"
                )
    if isinstance(node.get("type"), int) and 0 < node["type"] < len(_KINDS):
        node["type"] = _KINDS[node["type"]]
    kind = str(node.get("type", "")).removesuffix("_NODE")
    if kind not in _KINDS:
        raise _fault(
            source, at, f"{shown(node.get('type'))} is not a kind of node", "check the schema"
        )
    return WireNode(
        _json_whole(source, at, node, "id", missing=0),
        _KINDS.index(kind),
        _json_numbers(source, at, node, "ctrlDeps"),
        _json_numbers(source, at, node, "dataDeps"),
        _json_whole(source, at, node, "durationMicros", missing=0),
        attributes,
        2,
    )


def _camel(key: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), key)


def _json_whole(
    source: Source,
    at: int,
    node: Mapping[str, Any],
    key: str,
    missing: int | None = None,
    least: int = 0,
) -> int:
    """Return a whole number, which the jsonizer writes as text if it has 64 bits."""
    value = node.get(key, missing)
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value):
        value = int(value)
    if type(value) is not int or not least <= value < 2**64:
        raise _fault(
            source,
            node.get("Id", node.get("id", at)),
            f"{key} is {shown(value)}",
            "give a whole number",
        )
    return value


def _json_numbers(source: Source, at: int, node: Mapping[str, Any], key: str) -> tuple[int, ...]:
    values = node.get(key, [])
    if not isinstance(values, list):
        raise _fault(source, at, f"{key} is not a list", "write [1, 2]")
    return tuple(_json_whole(source, at, {key: value}, key) for value in values)


def _whole(source: Source, node: WireNode, key: str, most: int, missing: int | None = None) -> int:
    value = node.attributes.get(key, missing)
    if value is None:
        kind = _KINDS[node.kind]
        raise _fault(
            source,
            node.number,
            f"is a {kind} node without {key}",
            "convert the trace anew, with sizes",
        )
    if not isinstance(value, int) or not 0 <= value <= most:
        raise _fault(
            source, node.number, f"{key} is {shown(value)}", f"give a whole number from 0 to {most}"
        )
    return value


def _fault(source: Source, number: object, reason: str, remedy: str) -> DocumentError:
    return DocumentError(source.name, f"node {shown(number)}", f"{reason} ({remedy})")
