"""The nodes of a rank's trace, from which a job is put together."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from echelon.model.documents import DocumentError
from echelon_importers.importer import Source
from echelon_importers.workload import CollectiveKind, Ranks


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of computing."""

    duration_s: Fraction
    label: str = ""
    """The part that computes, such as a module of the model; empty: the trace does not say."""


@dataclass(frozen=True, slots=True)
class Joined:
    """This rank's part of a collective."""

    kind: CollectiveKind
    group: str
    """The name of the group of ranks, as the names of nodes have it."""
    ranks: Ranks
    size_bytes: int
    parts: tuple[int, ...] | None = None
    """The bytes to each rank of the group, of an all-to-all with uneven parts."""


@dataclass(frozen=True, slots=True)
class TracedTransfer:
    """This rank's end of a transfer."""

    sends: bool
    peer: int
    tag: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One node of the trace of a rank."""

    number: int
    """The number of the node, unique in the trace."""
    after: tuple[int, ...]
    does: Work | Joined | TracedTransfer
    origin: str = ""
    """The place in the file, for messages; empty: the node's number."""
    ran_s: tuple[Fraction, Fraction] | None = None
    """The span of this rank's part in communication; None: the trace does not say."""


Transfers = Literal["eager", "rendezvous", "buffered"]
"""The conditions under which a transfer starts and its sender goes on.

* `eager`: it starts when its sender is ready, and what the sender waits for is its end.
* `rendezvous`: it starts when both are ready. NCCL's are so.
* `buffered`: the same, but its sender waits for no more than the start, since the kernel takes the
  bytes. A host sends one thing after the other, so the word that a receiver is ready comes behind
  what it sends already. Gloo's are so, and its all-reduces and all-gathers are described message by
  message.
"""


def node_fault(
    source: Source,
    node: TraceNode,
    reason: str,
    remedy: str,
) -> DocumentError:
    """Return an error about a node."""
    return DocumentError(
        source.name, node_place(node), f"{reason} ({remedy})", code="invalid-value"
    )


def node_place(node: TraceNode) -> str:
    """Return how messages name a node."""
    return node.origin or f"node {node.number}"
