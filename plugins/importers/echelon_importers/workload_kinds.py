"""Kinds of workloads, which readers of other files name when they refuse them."""

from __future__ import annotations

import re
import zlib

from echelon.model.foreign import ForeignKind

_TRACE = rb".{1,2}(?:\n.[0-9]+\.[0-9]+\.[0-9]+|\x12.\n.(?:schema|version))"
"""Chakra's first message: its length, and the version of the schema, or an attribute with it."""
_LOOPS = rb"\s*(?:DATA|MODEL|MICRO|HYBRID_[A-Z_]+)\b[^\n]*\r?\n\s*[0-9]+[ \t]*\r?\n"
_AICB_COLUMNS = rb"(?m)^comm_type,comm_group,"
_LAYER = rb"(?m)^\s*node[0-9]+ -- .* -- forward_compute_time="


def _unpacked(head: bytes) -> bytes:
    if not head.startswith(b"\x1f\x8b"):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, 1 << 16)
    except zlib.error:
        return head


def _is_chakra(head: bytes) -> bool:
    head = _unpacked(head)
    is_json = b'"workload_graph"' in head or (b'"node"' in head and b'"is_cpu_op"' in head)
    return bool(re.match(_TRACE, head, re.DOTALL) or (head.lstrip()[:1] == b"{" and is_json))


def _is_pytorch(head: bytes) -> bool:
    head = _unpacked(head)
    is_execution = b'"ctrl_deps"' in head and b'"nodes"' in head
    return head.lstrip()[:1] == b"{" and (b'"traceEvents"' in head or is_execution)


def _is_aicb(head: bytes) -> bool:
    return bool(re.search(_AICB_COLUMNS, head))


def _is_layers(head: bytes) -> bool:
    return bool(re.match(_LOOPS, head))


def _is_profile(head: bytes) -> bool:
    return bool(re.search(_LAYER, head))


CHAKRA = ForeignKind(
    "a Chakra trace",
    "echelon import chakra FILE -o job.yaml",
    _is_chakra,
    ("chakra",),
)
PYTORCH = ForeignKind(
    "a trace of PyTorch",
    "echelon import pytorch FILE -o job.yaml",
    _is_pytorch,
    ("pytorch",),
)
AICB = ForeignKind(
    "a list of AICB",
    "echelon import aicb FILE -o job.yaml",
    _is_aicb,
    ("aicb", "simai"),
)
LAYERS = ForeignKind(
    "a workload of ASTRA-sim or SimAI",
    "echelon import simai FILE -o job.yaml",
    _is_layers,
    ("aicb", "astra-sim", "simai"),
)
PIPEDREAM = ForeignKind(
    "a profile of PipeDream",
    "echelon import pipedream FILE -o job.yaml",
    _is_profile,
    ("pipedream",),
)
