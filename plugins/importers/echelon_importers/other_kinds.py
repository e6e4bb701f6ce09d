"""Kinds of files that stand beside workloads and topologies, and that nothing reads.

People try them, and another reader may take them for its own: a list of flows begins like a trace
of coflows. A refusal names the kind of the file, and says what to give instead.
"""

from __future__ import annotations

import re
from functools import partial

from echelon.model.foreign import ForeignKind

_NUMBER = rb"[0-9]+(?:\.[0-9]+)?"
_SCHEDULE = "write what it sends as a schedule of traffic: start_us,src,dst,bytes"
_TRACES = "import the network.yml and the traces; this file has neither"
_SHAPE = "write the fabric with echelon fabric, or as a fabric file"


def _begins(pattern: bytes, head: bytes) -> bool:
    return bool(re.match(pattern, head.lstrip()))


def _has_keys(keys: tuple[bytes, ...], head: bytes) -> bool:
    """Return whether a mapping of JSON or YAML has all of these keys."""
    patterns = (rb'(?m)(?:^|[\s{,"])' + key + rb'"?\s*:' for key in keys)
    return all(re.search(pattern, head) for pattern in patterns)


def _beginning(description: str, advice: str, pattern: bytes) -> ForeignKind:
    return ForeignKind(description, "", partial(_begins, pattern), (), advice)


def _having(description: str, advice: str, *keys: bytes) -> ForeignKind:
    return ForeignKind(description, "", partial(_has_keys, keys), (), advice)


_GROUP = rb'\s*"[^"]*"\s*:\s*\[[0-9,\s]*\]\s*'
_XML = rb"(?:<\?[^>]*\?>|<!--.*?-->|\s)*"
# The number of flows; then source, destination, priority, perhaps a port, bytes, seconds.
_FLOWS = rb"[0-9]+[ \t]*\r?\n(?:[0-9]+[ \t]+){4,5}" + _NUMBER + rb"[ \t]*(?:\r?\n|$)"

_CONFIG = (rb"model_type", rb"hidden_size", rb"num_hidden_layers")

KINDS = (
    ForeignKind(
        "a model's config.json",
        "echelon job new FILE --gpus 16 --sequence 4096 -o job.yaml",
        partial(_has_keys, _CONFIG),
        (),
    ),
    _beginning("a list of flows of ns-3", _SCHEDULE, _FLOWS),
    _beginning("a connection matrix of htsim", _SCHEDULE, rb"Nodes\s+[0-9]+\s+Connections\s"),
    _beginning("a GOAL schedule", "give a Chakra trace of the same job", rb"num_ranks\s+[0-9]+"),
    _beginning("a topology inside a host, of NCCL", _SHAPE, rb"(?s)" + _XML + rb"<system\s"),
    _beginning("a search graph of NCCL", _SHAPE, rb"(?s)" + _XML + rb"<graphs\s"),
    _beginning(
        "an algorithm of MSCCL",
        "convert it to Chakra traces, as ASTRA-sim does, and import these",
        rb"(?s)" + _XML + rb"<algo\s",
    ),
    _beginning(
        "an SQLite database, as Nsight Systems writes",
        "profile with torch.profiler, and run: echelon import pytorch",
        rb"SQLite format 3\0",
    ),
    _having(
        "a network of ASTRA-sim 1.0",
        "write its network.yml: topology, npus_count, bandwidth and latency of each dimension",
        b"topologies-per-dim",
    ),
    _having("a logical topology of ASTRA-sim", _TRACES, b"logical-dims"),
    _having("a system of ASTRA-sim", _TRACES, b"scheduling-policy", b"all-reduce-implementation"),
    _having("a memory of ASTRA-sim", _TRACES, b"memory-type"),
    _having(
        "a workload of MLPerf Storage's DLIO",
        "it reads files and says nothing of communication: take echelon job new",
        b"workflow",
        b"dataset",
        b"reader",
    ),
    _beginning(
        "a file of process groups",
        "give it with the traces: echelon import chakra TRACES GROUPS -o job.yaml",
        rb"\{(?:" + _GROUP + rb",)*" + _GROUP + rb"\}\s*$",
    ),
)
