"""The nodes of one rank's trace, as steps that ranks match."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from echelon.model.documents import DocumentError
from echelon.model.quantities import excerpt
from echelon_importers.chakra.attributes import Value
from echelon_importers.chakra.groups import Groups, UnknownGroupError, group_name
from echelon_importers.chakra.wire import (
    COLLECTIVE,
    COMPUTING,
    KINDS,
    SEND,
    WireNode,
    node_fault,
)
from echelon_importers.importer import Source
from echelon_importers.roofline import Roofline
from echelon_importers.trace_parts import Joined, TracedTransfer, TraceNode, Work
from echelon_importers.traces import node_label
from echelon_importers.workload import CollectiveKind, Ranks, ReadCounts

_COLLECTIVES: Mapping[int, Mapping[int, CollectiveKind]] = {
    1: {
        0: "all-reduce",
        1: "all-to-all",
        2: "all-gather",
        3: "reduce-scatter",
        4: "broadcast",
    },
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
_MOST_OPERATIONS = 10**18


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of an import, the same for all ranks."""

    groups: Groups
    roofline: Roofline | None
    """The GPU that does operations without times."""
    without_computing: bool
    """Whether communication alone is meant."""
    element_bytes: int
    """Bytes that the file counts as one."""


@dataclass(frozen=True, slots=True)
class RankTrace:
    """A reader of the nodes of one rank."""

    source: Source
    rank: int
    settings: Settings
    tally: ReadCounts

    def steps(
        self,
        nodes: Sequence[WireNode],
        waits: Mapping[int, Iterable[int]],
    ) -> list[TraceNode]:
        """Return what the nodes do, with more nodes to wait for. Raises `DocumentError`."""
        # A missing file of groups is said before what a single node lacks.
        for node in nodes:
            if node.kind == COLLECTIVE and not _is_call(node):
                self._members(node)
        out = []
        numbers: set[int] = set()
        for node in nodes:
            step = self._step(node)
            if node.number in numbers:
                raise self._fault(node, "has the number of another node", "give each its own")
            numbers.add(node.number)
            more = waits.get(node.number)
            if more is not None:
                step = replace(step, after=(*step.after, *more))
            out.append(step)
        return out

    def _step(self, node: WireNode) -> TraceNode:
        if not 0 < node.kind < len(KINDS):
            raise self._fault(node, f"{node.kind} is not a kind of node", "check the schema")
        if not 0 <= node.duration_us <= _MOST_US:
            raise self._fault(node, f"takes {node.duration_us} us", "correct the time")
        self.tally.ignored["control dependencies"] += len(node.ctrl_deps)
        does: Work | Joined | TracedTransfer
        if node.kind < SEND or _is_call(node):
            does = self._work(node)
        elif node.kind == COLLECTIVE:
            does = self._collective(node)
        else:
            does = self._transfer(node)
        return TraceNode(node.number, node.data_deps, does)

    def _work(self, node: WireNode) -> Work:
        self.tally.read[f"{KINDS[node.kind]} nodes"] += 1
        label = str(self._value(node, "label", ""))
        if is_modelled(node):
            return Work(self._modelled_s(node), label)
        is_memory = "MEM" in KINDS[node.kind]
        if is_memory and not node.duration_us:
            self.tally.ignored["loads and stores of remote memory without times"] += 1
        return Work(Fraction(node.duration_us, 10**6), label)

    def _modelled_s(self, node: WireNode) -> Fraction:
        """Return the seconds of a node that says its operations and bytes in place of a time."""
        operations = self._integer(node, "num_ops", _MOST_OPERATIONS, missing=0)
        size = self._integer(node, "tensor_size", _MOST_BYTES, missing=0)
        roofline = self.settings.roofline
        if roofline is not None:
            noun = f"times from operations and bytes, by the roofline of {roofline.gpu}"
            self.tally.derived[noun] += 1
            return roofline.duration_s(operations, size * self.settings.element_bytes)
        if self.settings.without_computing:
            self.tally.ignored["nodes with operations and no times"] += 1
            return Fraction(0)
        reason = f"has {operations} operations and {size} bytes, but no time"
        remedy = "give --gpu A100, or --computing '0 s': communication alone is meant"
        raise self._fault(node, reason, remedy)

    def _transfer(self, node: WireNode) -> TracedTransfer:
        sends = node.kind == SEND
        peer_key = "comm_dst" if sends else "comm_src"
        last_rank = self.settings.groups.everybody[-1]
        peer = self._integer(node, peer_key, last_rank)
        tag = self._integer(node, "comm_tag", 2**32, missing=0)
        if peer == self.rank:
            raise self._fault(node, "is a transfer from its own rank", "correct the ranks")
        return TracedTransfer(sends, peer, tag, self._size_bytes(node))

    def _collective(self, node: WireNode) -> Joined:
        number = self._integer(node, "comm_type", 9)
        kind = _COLLECTIVES[node.generation].get(number)
        if kind is None:
            raise self._fault(node, f"comm_type {number} is not supported", "leave the node out")
        size_bytes = 0
        if kind != "barrier":
            size_bytes = self._size_bytes(node)
        if node.attributes.get("comm_priority"):
            self.tally.ignored["priorities of collectives"] += 1
        label, members = self._group(node)
        if kind == "all-gather":
            size_bytes *= len(members)
        parts = None
        if kind == "all-to-all" and "comm_parts" in node.attributes:
            parts = self._parts(node, len(members))
        return Joined(kind, label, members, size_bytes, parts)

    def _size_bytes(self, node: WireNode) -> int:
        size = self._integer(node, "comm_size", _MOST_BYTES)
        return size * self.settings.element_bytes

    def _group(self, node: WireNode) -> tuple[str, Ranks]:
        """Return what the nodes of the group are called, and its ranks."""
        members = self._members(node)
        if members is None:
            return "all", self._everybody(node)
        # A number follows, which tells groups of one label apart.
        stated = self._value(node, "label", "")
        label = node_label(str(stated)).rstrip("0123456789")
        return label or "pg", members

    def _members(self, node: WireNode) -> Ranks | None:
        """Return the ranks of a node's group; None: all ranks."""
        for key in ("pg_name", "comm_group"):
            self._value(node, key, "")
        name = group_name(node)
        try:
            members = self.settings.groups.find(self.rank, name)
        except UnknownGroupError as error:
            reason, remedy = error.args
            raise self._fault(node, reason, remedy) from None
        if members is not None and self.rank not in members:
            reason = f"is of group {excerpt(name)}, which lacks rank {self.rank}"
            raise self._fault(node, reason, "correct the group, or the order of the files")
        return members

    def _parts(self, node: WireNode, ranks: int) -> tuple[int, ...]:
        parts = self._value(node, "comm_parts", ())
        sizes = []
        for part in parts if isinstance(parts, tuple) else ():
            if isinstance(part, int) and 0 <= part <= _MOST_BYTES:
                sizes.append(part)
        if len(sizes) != ranks or parts != tuple(sizes):
            raise self._fault(node, f"comm_parts are not {ranks} sizes", "give one for each rank")
        return tuple(size * self.settings.element_bytes for size in sizes)

    def _everybody(self, node: WireNode) -> Ranks:
        stated = self._value(node, "involved_dim", ())
        dimensions = stated if isinstance(stated, tuple) else (stated,)
        if all(dimensions):
            return self.settings.groups.everybody
        reason = "runs along some dimensions only, which is not supported"
        raise self._fault(node, reason, "name groups by pg_name")

    def _integer(
        self,
        node: WireNode,
        key: str,
        most: int,
        missing: int | None = None,
    ) -> int:
        value = self._value(node, key, missing)
        if value is None:
            reason = f"is a {KINDS[node.kind]} node without {key}"
            raise self._fault(node, reason, "convert the trace anew, with sizes")
        if not isinstance(value, int) or not 0 <= value <= most:
            reason = f"{key} is {excerpt(value)}"
            raise self._fault(node, reason, f"give a whole number from 0 to {most}")
        return value

    def _value(
        self,
        node: WireNode,
        key: str,
        missing: Value | None,
    ) -> Value | None:
        """Return an attribute. Raises `DocumentError` for one without a value."""
        value = node.attributes.get(key, missing)
        if value is None and key in node.attributes:
            reason = f"the attribute '{key}' has no value"
            raise self._fault(node, reason, "give it one, or leave the attribute out")
        return value

    def _fault(
        self,
        node: WireNode,
        reason: str,
        remedy: str,
    ) -> DocumentError:
        return node_fault(self.source, node.number, reason, remedy)


def _is_call(node: WireNode) -> bool:
    """Return whether a node is the call of an operation on the host, whose kernel has the bytes."""
    return node.is_on_cpu and "comm_size" not in node.attributes


def is_modelled(node: WireNode) -> bool:
    """Return whether a node computes on a GPU, and has operations or bytes but no time."""
    if node.kind != COMPUTING or node.duration_us or node.is_on_cpu:
        return False
    operations = node.attributes.get("num_ops")
    size = node.attributes.get("tensor_size")
    return bool(operations or size)
