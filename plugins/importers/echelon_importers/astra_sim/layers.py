"""The lines of a text workload that describe layers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from echelon.model.documents import suggestion
from echelon.model.quantities import excerpt
from echelon_importers.astra_sim.header import INFERENCE, Header
from echelon_importers.astra_sim.loops import LAYER_LOOPS, LOOPS, Loop
from echelon_importers.importer import Source
from echelon_importers.workload import CollectiveKind

CYCLE_S = Fraction(1, 10**9)
_COLLECTIVES: Mapping[str, CollectiveKind | None] = {
    "NONE": None,
    "ALLREDUCE": "all-reduce",
    "ALLGATHER": "all-gather",
    "REDUCESCATTER": "reduce-scatter",
    "ALLTOALL": "all-to-all",
    "BROADCAST": "broadcast",
}
_SCOPES = {"_DP_EP": "dp_ep", "_EP": "ep"}
"""Suffixes of SimAI's collectives, and the groups of ranks that run them."""
_COLUMNS = 12

Phase = Literal["fwd", "ig", "wg"]
_BACKWARD: tuple[Phase, ...] = ("ig", "wg")


class Part(NamedTuple):
    """One of the three parts of a layer."""

    compute_s: Fraction
    kind: CollectiveKind | None
    scope: str | None
    """The group that the collective names; None: that of the loop."""
    size_bytes: int
    unsent_bytes: int = 0
    """Bytes beside NONE, which neither ASTRA-sim nor SimAI sends."""
    is_empty: bool = False
    """Whether a collective has no bytes."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A line of a layer."""

    number: int
    """The number of the layer, counted from 1."""
    line: int
    name: str
    parts: Mapping[Phase, Part]
    loop: Loop


Rows = Sequence[Layer]


def parse_layer(
    source: Source,
    line: int,
    number: int,
    words: Sequence[str],
    header: Header,
) -> Layer:
    """Return the layer of a line. Raises `DocumentError`."""
    custom = header.loop == "HYBRID_CUSTOMIZED"
    columns = _COLUMNS + custom
    if len(words) != columns:
        reason = f"has {len(words)} columns"
        raise source.fault(line, reason, f"a layer has {columns}: correct it")
    if not re.fullmatch(r"-?[0-9]{1,9}", words[1]):
        raise source.fault(line, f"{excerpt(words[1])} is not a number", "write -1")
    loop = LOOPS[header.loop]
    if custom:
        loop_name = words[-1]
        if loop_name not in LAYER_LOOPS:
            reason = f"{excerpt(loop_name)} is not a loop of a layer"
            raise source.fault(line, reason, f"use {', '.join(LAYER_LOOPS)}")
        loop = LOOPS[loop_name]._replace(weights_first=False)
    forward = _part(source, line, words[2:5])
    input_gradient = _part(source, line, words[5:8])
    weight_gradient = _part(source, line, words[8:11])
    source.integer(line, words[11], "an update time")
    parts: dict[Phase, Part] = {"fwd": forward, "ig": input_gradient, "wg": weight_gradient}
    _check_phases(source, line, parts, header)
    return Layer(number, line, words[0], parts, loop)


def _part(
    source: Source,
    line: int,
    words: Sequence[str],
) -> Part:
    time, name, size = words
    cycles = source.integer(line, time, "a compute time")
    size_bytes = source.integer(line, size, "a number of bytes")
    scope = None
    for suffix, group in _SCOPES.items():
        if name.endswith(suffix):
            name = name.removesuffix(suffix)
            scope = group
            break
    if name not in _COLLECTIVES:
        reason = f"{excerpt(words[1])} is not a collective"
        raise source.fault(line, reason, suggestion(name, _COLLECTIVES))
    kind = _COLLECTIVES[name]
    compute_s = cycles * CYCLE_S
    if kind is None:
        return Part(compute_s, None, scope, 0, unsent_bytes=size_bytes)
    if not size_bytes:
        return Part(compute_s, None, scope, 0, is_empty=True)
    return Part(compute_s, kind, scope, size_bytes)


def _check_phases(
    source: Source,
    line: int,
    parts: Mapping[Phase, Part],
    header: Header,
) -> None:
    """Raise `DocumentError` if a layer contradicts the first line."""
    sends_back = any(parts[phase].kind is not None for phase in _BACKWARD)
    if header.number("mode", 0) == INFERENCE and sends_back:
        reason = "has a collective in the backward pass, but mode 1 is inference"
        raise source.fault(line, reason, "take one of them out")
    names_experts = any(part.scope and part.kind is not None for part in parts.values())
    if names_experts and "ep" not in header.settings:
        reason = "names a group of experts, but the first line does not say how many ranks it has"
        raise source.fault(line, reason, "add ep: and the number")
