"""Chakra traces of an iteration: what ranks compute and send, and what waits for what.

A rank computes one thing after the other. An operation waits for the computing before its call, and
computing for the operations for which the rank has waited. Times are those of the iteration that
took the median time, and sizes are means, of the iterations that are alike.

Three properties of libraries are in the traces, because the bytes and the times depend on them:

* A process group carries out its collectives in the order of their calls: NCCL one at a time, Gloo
  two.
* Gloo's reduce-scatter is an all-reduce of which each rank keeps its part, and sends as much.
* The root of a broadcast or a reduce is the first rank of a group in a job file, so such operations
  have a group in that order. Gathers and scatters are transfers from or to the root.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping

from echelon_importers.chakra.attributes import Value
from echelon_importers.chakra.wire import WireNode
from echelon_importers.chakra.writing import trace_bytes
from echelon_torch.capture.iterations import JobProfile, Moment, Operation, RankProfile

GROUPS_FILE = "groups.json"
_COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = 4, 5, 6, 7
_COMM_TYPES = {
    "all-reduce": 0, "reduce": 1, "all-gather": 2, "broadcast": 5, "all-to-all": 6, "reduce-scatter": 7, "barrier": 9,
}  # fmt: skip
_AT_A_TIME = {"gloo": 2}
"""The number of collectives of a process group that a backend carries out at a time, if not one."""
_ROOTED_TAG = 1 << 20
"""The tag of the transfers of gathers and scatters, apart from those of a job."""


def trace_files(profile: JobProfile) -> Mapping[str, bytes]:
    """Return the files of a capture by name: a trace for each rank, and the ranks of groups."""
    files: dict[str, bytes] = {}
    groups: dict[str, tuple[int, ...]] = {}
    for rank, rank_profile in enumerate(profile.ranks):
        files[f"rank-{rank}.et"] = trace_bytes(_nodes(rank, rank_profile))
        for each in rank_profile.operations:
            if each.call.kind in _COMM_TYPES:
                groups[group_name(each)] = members(each)
    files[GROUPS_FILE] = (json.dumps(groups, indent=1) + "\n").encode()
    return files


def members(operation: Operation) -> tuple[int, ...]:
    """Return the ranks of an operation in the order of a job file, the root first."""
    if operation.call.kind in ("broadcast", "reduce"):
        root = operation.ranks[operation.call.peer]
        return (root, *(rank for rank in operation.ranks if rank != root))
    return operation.ranks


def group_name(operation: Operation) -> str:
    """Return the name of the group with these ranks in this order."""
    name = operation.call.group
    if members(operation) == operation.ranks:
        return name
    return f"{name}-root{operation.call.peer}"


def kind_on_the_wire(operation: Operation) -> str:
    """Return the collective whose bytes the operation sends."""
    kind = operation.call.kind
    if kind == "reduce-scatter" and operation.backend == "gloo":
        return "all-reduce"
    return kind


def _nodes(rank: int, profile: RankProfile) -> Iterator[tuple[str, WireNode]]:
    numbers: dict[int, tuple[int, ...]] = {}
    """The nodes of each call."""
    queues: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    """The nodes of the collectives of each process group."""
    next_number = 1
    before: tuple[int, ...] = ()
    """The nodes for which the next work of the rank waits."""
    for moment in profile.moments:
        named = label(profile, moment)
        attributes: dict[str, Value] = {}
        if named:
            attributes["label"] = named
        compute_us = _us(moment.compute_s)
        node = WireNode(next_number, _COMPUTE, (), before, compute_us, attributes, 2)
        yield named or "computing", node

        before = (next_number,)
        next_number += 1
        if moment.call is None:
            for call in moment.waits:
                before += numbers.get(call, ())
            continue
        operation = profile.operations[moment.call]
        nodes = list(_communication(rank, operation))
        node_numbers = tuple(range(next_number, next_number + len(nodes)))
        numbers[moment.call] = node_numbers
        after: tuple[int, ...] = before
        if nodes and nodes[0][0] == _COLLECTIVE:
            queue = queues[operation.call.group]
            at_a_time = _AT_A_TIME.get(operation.backend, 1)
            if len(queue) >= at_a_time:
                after += queue[-at_a_time]
            queue.append(node_numbers)
        for kind, attributes in nodes:
            yield operation.call.kind, WireNode(next_number, kind, (), after, 0, attributes, 2)
            next_number += 1
    yield "computing", WireNode(next_number, _COMPUTE, (), before, _us(profile.rest_s), {}, 2)


def label(profile: RankProfile, moment: Moment) -> str:
    """Return what computes before a moment: the module that calls next, or the backward pass."""
    if moment.call is None:
        return "backward" if moment.ends_backward else ""
    call = profile.operations[moment.call].call
    parts = [call.module] if call.module else []
    if call.backward:
        parts.append("backward")
    return ".".join(parts)


def _communication(rank: int, operation: Operation) -> Iterator[tuple[int, dict[str, Value]]]:
    """Yield kind and attributes of the nodes of a call."""
    call = operation.call
    size = round(operation.size_bytes.mean)
    peer = operation.ranks[call.peer]
    peers = [member for member in operation.ranks if member != rank]
    if call.kind in ("send", "receive"):
        yield _transfer(call.kind == "send", rank, peer, call.tag, size)
    elif call.kind in ("gather", "scatter"):
        sends = (call.kind == "gather") != (rank == peer)
        if rank != peer:
            peers = [peer]
        for member in peers:
            yield _transfer(sends, rank, member, _ROOTED_TAG, size)
    elif peers:
        attributes: dict[str, Value] = {
            "comm_type": _COMM_TYPES[kind_on_the_wire(operation)],
            "comm_size": size,
            "pg_name": group_name(operation),
        }
        if operation.called:
            attributes["label"] = operation.called
        if operation.parts is not None:
            attributes["comm_parts"] = operation.parts
        yield _COLLECTIVE, attributes


def _transfer(
    sends: bool,
    rank: int,
    peer: int,
    tag: int,
    size_bytes: int,
) -> tuple[int, dict[str, Value]]:
    attributes: dict[str, Value] = {"comm_src": peer, "comm_dst": rank}
    kind = _RECEIVE
    if sends:
        attributes = {"comm_src": rank, "comm_dst": peer}
        kind = _SEND
    attributes.update(
        comm_tag=tag,
        comm_size=size_bytes,
    )
    return kind, attributes


def _us(seconds: float) -> int:
    return round(seconds * 10**6)
