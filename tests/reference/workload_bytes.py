"""The bytes of workload files by collective and ranks, from the formats' descriptions alone.

ASTRA-sim's text format is described in `inputs/workload/README.md` of its branch ASTRA-sim-1.0, its
training loops in `Workload.cc` there; SimAI adds nothing that matters here but the meaning of an
all-gather's bytes. Chakra's nodes are described in `schema/protobuf/et_def.proto` of
mlcommons/chakra. Nothing here knows in which order anything happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Sent: TypeAlias = Counter[tuple[str, tuple[int, ...]]]
"""Bytes by kind of collective and its ranks; those of a ``send`` are its source and destination."""

_TEXT = {
    "ALLREDUCE": "all-reduce",
    "ALLGATHER": "all-gather",
    "REDUCESCATTER": "reduce-scatter",
    "ALLTOALL": "all-to-all",
    "BROADCAST": "broadcast",
}
_FORWARD_AND_INPUTS = {
    "HYBRID_DLRM": "all",
    "HYBRID_DLRM_ENHANCED": "all",
    "MODEL": "all",
    "HYBRID_DATA_MODEL": "model",
    "HYBRID_MODEL_DATA": "others",
    "HYBRID_TRANSFORMER": "model",
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": "model",
}
_WEIGHTS = {
    "DATA": "all",
    "HYBRID_DLRM": "all",
    "HYBRID_DLRM_ENHANCED": "all",
    "MICRO": "all",
    "HYBRID_DATA_MODEL": "others",
    "HYBRID_MODEL_DATA": "model",
    "HYBRID_TRANSFORMER": "others",
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": "others",
}


def of_text(text: str, ranks: int, *, gathers_input: bool) -> Sent:
    """Return what an iteration of a text workload sends on `ranks` ranks.

    `gathers_input` says whether the bytes of an all-gather are those before it (ASTRA-sim) or after
    it (SimAI).
    """
    head, _, *layers = text.splitlines()
    loop, *settings = head.split()
    numbers = _settings(settings)
    size = numbers.get("model_parallel_NPU_group", [1])[0]
    in_a_row = [tuple(range(first, first + size)) for first in range(0, ranks, size)]
    groups = {
        "model": in_a_row,
        "others": list(zip(*in_a_row, strict=True)),
        "all": [tuple(range(ranks))],
    }
    forward, inputs, weights = (
        [tuple(line.split()[at : at + 2]) for line in layers] for at in (3, 6, 9)
    )
    if loop in ("MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA"):
        del inputs[0]  # nobody needs the gradients of the first layer's input
    for layer in numbers.get("checkpoint_initiates", []):
        start = max((each for each in numbers["checkpoints"] if each <= layer), default=0)
        forward += forward[start:layer]
    if loop.startswith("HYBRID_DLRM"):
        forward = [each for each in forward if each[0] == "ALLTOALL"]
        # The embeddings' gradients are exchanged once the backward pass is at the layer after the
        # last bottom layer.
        inputs = inputs[: int(settings[-1]) + 1 < len(layers)]
    ran = [(_FORWARD_AND_INPUTS.get(loop), [*forward, *inputs]), (_WEIGHTS.get(loop), weights)]
    if loop == "HYBRID_CUSTOMIZED":
        inputs[0] = ("NONE", "0")
        ran = []
        for line, forth, back, weight in zip(layers, forward, inputs, weights, strict=True):
            own = line.split()[-1]
            ran += [(_FORWARD_AND_INPUTS.get(own), [forth, back]), (_WEIGHTS.get(own), [weight])]
    if loop == "DISTRIBUTED_INFERENCE":
        ran = [("all", forward)]
    sent: Sent = Counter()
    for scope, collectives in ran:
        for members in groups[scope] if scope else ():
            for kind, size_bytes in collectives:
                if kind != "NONE" and len(members) > 1:
                    times = len(members) if kind == "ALLGATHER" and gathers_input else 1
                    sent[_TEXT[kind], members] += times * int(size_bytes)
    return +sent


def _settings(words: Iterable[str]) -> Mapping[str, list[int]]:
    """Return the numbers behind each ``key:``; the first of a list says how many follow."""
    found: dict[str, list[int]] = {}
    numbers: list[int] = []
    for word in words:
        if word.endswith(":"):
            numbers = found[word[:-1]] = []
        else:
            numbers.append(int(word))
    return {
        key: values[1:] if key.startswith("checkpoint") else values for key, values in found.items()
    }


_CHAKRA = {
    1: {0: "all-reduce", 1: "all-to-all", 2: "all-gather", 3: "reduce-scatter", 4: "broadcast"},
    2: {
        0: "all-reduce",
        1: "reduce",
        2: "all-gather",
        5: "broadcast",
        6: "all-to-all",
        7: "reduce-scatter",
    },
}
"""`CollectiveCommType` in both generations of the schema."""
_SEND, _COLLECTIVE = 5, 7


def of_traces(
    traces: Sequence[Sequence[Any]], communicators: Mapping[str, Sequence[int]], generation: int = 2
) -> Sent:
    """Return what the ranks of a Chakra trace send.

    `traces` has the protobuf messages of each rank's nodes. Raises `AssertionError` if the ranks of
    a collective do not say the same.
    """
    by_rank: list[Sent] = []
    sent: Sent = Counter()
    for rank, nodes in enumerate(traces):
        joined: Sent = Counter()
        for node in nodes:
            said = _attributes(node)
            if node.type == _SEND:
                sent["send", (rank, said["comm_dst"])] += said["comm_size"]
            elif node.type == _COLLECTIVE:
                kind = _CHAKRA[generation][said["comm_type"]]
                members = tuple(communicators.get(said.get("pg_name", ""), range(len(traces))))
                times = len(members) if kind == "all-gather" else 1
                joined[kind, members] += times * said["comm_size"] if len(members) > 1 else 0
        by_rank.append(+joined)
    for rank, joined in enumerate(by_rank):
        for (kind, members), size_bytes in joined.items():
            assert all(by_rank[member][kind, members] == size_bytes for member in members), (
                rank,
                kind,
                members,
            )
            sent[kind, members] = size_bytes
    return +sent


def _attributes(node: Any) -> Mapping[str, Any]:
    """Return the attributes of a node of either generation by name, whatever their type."""
    if "attribute" in node.DESCRIPTOR.fields_by_name:
        return {each.name: each.i for each in node.attribute}
    return {each.name: getattr(each, each.WhichOneof("value")) for each in node.attr}
