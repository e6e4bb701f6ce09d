"""Chakra execution traces in JSON: those of Chakra's feeder, of its jsonizer, and of STAGE."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from echelon.model.quantities import excerpt
from echelon_importers.chakra.attributes import Scalar, Value
from echelon_importers.chakra.json_fields import JsonFields
from echelon_importers.chakra.stage_json import StageNode
from echelon_importers.chakra.wire import KINDS, WireNode, node_fault
from echelon_importers.importer import Source


def read_json(source: Source) -> list[WireNode]:
    """Return the nodes in a file. Raises `DocumentError`."""
    documents = _documents(source)
    first: Mapping[str, Any] = documents[0] if documents else {}
    if len(documents) > 1:
        return _jsonizer_nodes(source, documents)
    listed = first.get("nodes")
    graph = first.get("workload_graph")
    if isinstance(graph, list):
        return _feeder_nodes(source, graph)
    if isinstance(listed, list) and _have_key(listed, "node_type"):
        stage = _mappings(source, listed)
        return [StageNode(source, index, node).node() for index, node in enumerate(stage)]
    # Chakra's nodes have a type, and those of PyTorch's execution traces have not.
    if isinstance(listed, list) and _have_key(listed, "type"):
        documents = _mappings(source, listed)
    elif "nodes" in first or "traceEvents" in first:
        raise source.refusal("is a trace of PyTorch (import it with format pytorch)")
    return _jsonizer_nodes(source, documents)


def _jsonizer_nodes(source: Source, documents: Iterable[Mapping[str, Any]]) -> list[WireNode]:
    nodes = []
    for index, document in enumerate(documents):
        # The first mapping may be about the trace as a whole.
        if "type" in document or index > 0:
            values = {_camel(key): value for key, value in document.items()}
            nodes.append(_JsonNode(source, index, values).of_jsonizer())
    return nodes


def _have_key(nodes: list[Any], key: str) -> bool:
    """Return whether the first of the nodes has a key."""
    return bool(nodes) and isinstance(nodes[0], dict) and key in nodes[0]


def _feeder_nodes(source: Source, graph: Iterable[object]) -> list[WireNode]:
    mappings = _mappings(source, graph)
    return [_JsonNode(source, index, node).of_feeder() for index, node in enumerate(mappings)]


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
    mappings = []
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            reason = f"{excerpt(value)} is not a mapping"
            raise node_fault(source, index, reason, "check the format")
        mappings.append(value)
    return mappings


_FEEDER_ATTRIBUTES = (
    "is_cpu_op",
    "comm_type",
    "comm_size",
    "comm_src",
    "comm_dst",
    "comm_tag",
    "pg_name",
    "num_ops",
    "tensor_size",
    "stream",
)
_WHOLE = re.compile(r"[su]?int(32|64)|s?fixed(32|64)")
"""The types of attributes that are whole numbers."""
_TYPE = re.compile(r"(?P<kind>[a-z0-9]+)(?P<form>Val|List)")


class _JsonNode(JsonFields):
    """A node in JSON of Chakra."""

    def of_feeder(self) -> WireNode:
        """Return the node that Chakra's feeder has written."""
        attributes = {}
        for key in _FEEDER_ATTRIBUTES:
            if key in self.values:
                attributes[key] = self.values[key]
        return WireNode(
            self.integer("Id"),
            self.integer("NodeType"),
            self.integers("ctrlDeps"),
            self.integers("data_deps"),
            self.integer("runtime", missing=0),
            attributes,
            2,
        )

    def of_jsonizer(self) -> WireNode:
        """Return the node that Chakra's jsonizer has written."""
        attributes = self._attributes(self.values.get("attr", []))
        stated = self.values.get("type")
        kind = stated
        if isinstance(kind, int) and 0 < kind < len(KINDS):
            kind = KINDS[kind]
        kind = str(kind).removesuffix("_NODE")
        if kind not in KINDS:
            raise self.fault(f"{excerpt(stated)} is not a kind of node", "check the schema")
        return WireNode(
            self.integer("id", missing=0),
            KINDS.index(kind),
            self.integers("ctrlDeps"),
            self.integers("dataDeps"),
            self.integer("durationMicros", missing=0),
            attributes,
            2,
            self.integer("startTimeMicros", missing=0),
            self._inputs(),
        )

    def _inputs(self) -> str:
        inputs = self.values.get("inputs")
        if not isinstance(inputs, dict):
            return ""
        return str(inputs.get("values", ""))

    def _attributes(self, listed: object) -> dict[str, Value | None]:
        attributes: dict[str, Value | None] = {}
        if not isinstance(listed, list):
            return attributes
        for each in listed:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise self.fault("has an attribute without a name", "correct it")
            attributes[each["name"]] = self._value(each)
        return attributes

    def _value(self, stated: Mapping[str, Any]) -> Value | None:
        """Return the value of an attribute; None: it has none of a type of the schema."""
        for key, value in stated.items():
            match = _TYPE.fullmatch(_camel(key))
            if match is None:
                continue
            kind = match["kind"]
            if match["form"] == "Val":
                return self._scalar(kind, key, value)
            return self._list(kind, key, value)
        return None

    def _list(
        self,
        kind: str,
        key: str,
        value: Any,
    ) -> tuple[Scalar, ...]:
        # protobuf writes an empty list as an empty mapping, or not at all.
        listed = []
        if isinstance(value, dict):
            listed = value.get("values", [])
        if not isinstance(listed, list):
            raise self.fault(f"{key} is not a list", "write [1, 2]")
        out = []
        for each in listed:
            item = self._scalar(kind, key, each)
            if item is not None:
                out.append(item)
        return tuple(out)

    def _scalar(self, kind: str, key: str, value: Any) -> Scalar | None:
        if _WHOLE.fullmatch(kind):
            return self.checked(key, value, least=-(2**63))
        if kind == "bool":
            return int(value is True)
        if kind in ("double", "float") and isinstance(value, int | float):
            return float(value)
        if kind in ("string", "bytes"):
            return str(value)
        return None


def _camel(key: str) -> str:
    """Return a name in one of the two ways in which protobuf writes it."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), key)
