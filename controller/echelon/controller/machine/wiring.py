"""The links of the fabric as they are and as they are to be: what is saved of links that move.

The fabric file says which hosts, switches and ports there are, and the rate of each port. A change
moves links from port to port. It holds until the file has other links: then the file says which
they are, as before any change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

from echelon.controller.machine.errors import RefusedError
from echelon.controller.machine.records import Document
from echelon.model.documents import suggestion
from echelon.model.fabric.load import FabricSpec, build_fabric, rate_words
from echelon.model.fabric.model import CableLink, Fabric, LinkEnd

LinkEnds = tuple[str, str]
"""The two ends of a link, in the order of their names."""

_SAVED = "(change the fabric file and reload the service)"


def ends_of(a: str, b: str) -> LinkEnds:
    """Return a link's name, whichever end comes first."""
    return (a, b) if a < b else (b, a)


def links_of(fabric: Fabric) -> frozenset[LinkEnds]:
    """Return the names of all links."""
    return frozenset(ends_of(cable.a.node, cable.b.node) for cable in fabric.cables)


@dataclass(frozen=True)
class Wiring:
    """The links of the fabric, and those that they are to be."""

    now: Fabric
    """The fabric with all links."""
    then: Fabric | None = None
    """The fabric after the move that is under way; None: there is none."""
    begun: bool = False
    """Whether links may have moved: those that go are no longer where they were for sure."""

    @cached_property
    def going(self) -> tuple[CableLink, ...]:
        """Return the links that will be gone, or at other ports."""
        if self.then is None:
            return ()
        return _missing(self.now, self.then)

    @cached_property
    def coming(self) -> tuple[CableLink, ...]:
        """Return the links that will be new, or at other ports."""
        if self.then is None:
            return ()
        return _missing(self.then, self.now)

    @cached_property
    def avoided(self) -> frozenset[LinkEnds]:
        """Return the names of the links that plans avoid."""
        return frozenset(ends_of(cable.a.node, cable.b.node) for cable in self.going)

    def to_document(self, file: Fabric) -> Document:
        """Return what is saved. `file` is the fabric as its file has it."""
        then = None if self.then is None else _rows(self.then)
        return {"file": _rows(file), "now": _rows(self.now), "then": then, "begun": self.begun}

    @classmethod
    def from_document(cls, document: Document, file: Fabric) -> Self | None:
        """Return what was saved; None: the file has other links since."""
        if document["file"] != _rows(file):
            return None
        now = document["now"]
        then = document["then"]
        same = now == document["file"]
        return cls(
            file if same else _rewired(file, now),
            None if then is None else _rewired(file, then),
            document["begun"],
        )


def as_written(cable: CableLink) -> Document:
    """Return a link as a fabric file has it, with its ports."""
    ends = (cable.a, cable.b)
    ports = {end.node: end.port for end in ends if end.port}
    return {
        "between": [end.node for end in ends],
        "ports": ports,
        "rate": rate_words(cable.rate_bps),
    }


def moved_to(file: Fabric, now: Fabric, spec: FabricSpec) -> Fabric:
    """Return the fabric with the links of a specification.

    A link whose ports the specification does not fix keeps those that it has now, and a new one
    takes the first free port of its rate. Raises `RefusedError` if more than links differ, or if a
    port does not fit.
    """
    _check_nodes(file, build_fabric(spec))
    rate_bps = {end: cable.rate_bps for cable in file.cables for end in (cable.a, cable.b)}
    free = {node: sorted(ports) for node, ports in file.ports.items()}
    found: dict[tuple[int, str], LinkEnd] = {}
    for first in ("fixed", "kept", "any"):
        for number, link in enumerate(spec.links):
            for node, other in (link.between, link.between[::-1]):
                if (number, node) in found:
                    continue
                wanted = free[node]
                if first != "any":
                    if first == "fixed":
                        port = link.ports.get(node)
                    else:
                        port = now.port_to.get((node, other))
                    wanted = [] if port is None else [port]
                ends = [LinkEnd(node, port) for port in wanted if port in free[node]]
                end = next((one for one in ends if rate_bps[one] == link.rate), None)
                if end is not None:
                    found[number, node] = end
                    free[node].remove(end.port)
                elif first == "any" or (first == "fixed" and wanted):
                    if first == "any":
                        which = "it has no"
                    else:
                        which = f"port {wanted[0]} is no"
                    raise RefusedError(
                        f"'{node}' cannot be linked to '{other}': {which} free port of"
                        f" {rate_words(link.rate)} in the fabric file {_SAVED}",
                        f"links[{number}]",
                        code="does-not-fit",
                    )
    cables = (
        CableLink(
            found[number, link.between[0]], found[number, link.between[1]], link.rate, link.delay
        )
        for number, link in enumerate(spec.links)
    )
    return replace(file, cables=tuple(cables))


def _check_nodes(file: Fabric, other: Fabric) -> None:
    kinds: tuple[tuple[str, str, Mapping[str, object], Mapping[str, object]], ...] = (
        ("host", "hosts", file.hosts, other.hosts),
        ("switch", "switches", file.switches, other.switches),
    )
    for kind, key, before, after in kinds:
        for name in [*before, *after]:
            if before.get(name) == after.get(name):
                continue
            if name not in after:
                what = "is missing"
            else:
                what = "would have another number (keep the order of names)"
            if name not in before:
                what = f"is not in fabric '{file.name}' ({suggestion(name, before)})"
            raise RefusedError(
                f"{kind} '{name}' {what}; only links can move {_SAVED}", f"{key}.{name}"
            )


def _missing(fabric: Fabric, other: Fabric) -> tuple[CableLink, ...]:
    """Return the links of a fabric that another one does not have at the same ports."""
    there = {frozenset((cable.a, cable.b)) for cable in other.cables}
    return tuple(cable for cable in fabric.cables if frozenset((cable.a, cable.b)) not in there)


def _rows(fabric: Fabric) -> list[Any]:
    """Return the links as JSON has them."""
    return [
        [c.a.node, c.a.port, c.b.node, c.b.port, c.rate_bps, str(c.delay_s)] for c in fabric.cables
    ]


def _rewired(file: Fabric, rows: Sequence[Any]) -> Fabric:
    cables = (
        CableLink(LinkEnd(a, at), LinkEnd(b, there), rate, Fraction(delay))
        for a, at, b, there, rate, delay in rows
    )
    return replace(file, cables=tuple(cables))
