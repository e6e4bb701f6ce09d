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
from echelon.model.fabric.load import FabricSpec, LinkSpec, build_fabric, rate_words
from echelon.model.fabric.model import CableLink, Fabric, LinkEnd

LinkEnds = tuple[str, str]
"""The two ends of a link, in the order of their names."""

_SAVED = "(change the fabric file and reload the service)"


def ends_of(a: str, b: str) -> LinkEnds:
    """Return a link's name, whichever end comes first."""
    if a < b:
        return (a, b)
    return (b, a)


def ends_of_cable(cable: CableLink) -> LinkEnds:
    """Return the name of a link."""
    return ends_of(cable.a.node, cable.b.node)


def links_of(fabric: Fabric) -> frozenset[LinkEnds]:
    """Return the names of all links."""
    return frozenset(map(ends_of_cable, fabric.cables))


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
        return frozenset(map(ends_of_cable, self.going))

    def to_document(self, file: Fabric) -> Document:
        """Return what is saved. `file` is the fabric as its file has it."""
        return {
            "file": _rows(file),
            "now": _rows(self.now),
            "then": None if self.then is None else _rows(self.then),
            "begun": self.begun,
        }

    @classmethod
    def from_document(cls, document: Document, file: Fabric) -> Self | None:
        """Return what was saved; None: the file has other links since."""
        if document["file"] != _rows(file):
            return None
        if document["now"] == document["file"]:
            now = file
        else:
            now = _rewired(file, document["now"])
        then = None
        if document["then"] is not None:
            then = _rewired(file, document["then"])
        return cls(now, then, document["begun"])


def as_written(cable: CableLink) -> Document:
    """Return a link as a fabric file has it, with its ports."""
    ends = (cable.a, cable.b)
    ports = {end.node: end.port for end in ends if end.port}
    return {
        "between": [end.node for end in ends],
        "ports": ports,
        "rate": rate_words(cable.rate_bps),
    }


def moved_to(
    file: Fabric,
    now: Fabric,
    spec: FabricSpec,
) -> Fabric:
    """Return the fabric with the links of a specification.

    A link whose ports the specification does not fix keeps those that it has now, and a new one
    takes the first free port of its rate. Raises `RefusedError` if more than links differ, or if a
    port does not fit.
    """
    _check_nodes(file, build_fabric(spec))
    free = _FreePorts(file)
    ends: dict[tuple[int, str], LinkEnd] = {}
    # The ports of a link are chosen each by itself: at one end the file may fix it.
    halves: list[tuple[int, LinkSpec, str, str]] = []
    for number, link in enumerate(spec.links):
        a, b = link.between
        halves += [(number, link, a, b), (number, link, b, a)]

    for number, link, node, peer in halves:
        port = link.ports.get(node)
        if port is None:
            continue
        end = free.take(node, link.rate, port)
        if end is None:
            raise _no_port(number, link, node, peer, f"port {port} is no")
        ends[number, node] = end

    for number, link, node, peer in halves:
        port = now.port_to.get((node, peer))
        if port is None or (number, node) in ends:
            continue
        end = free.take(node, link.rate, port)
        if end is not None:
            ends[number, node] = end

    for number, link, node, peer in halves:
        if (number, node) in ends:
            continue
        end = free.take(node, link.rate)
        if end is None:
            raise _no_port(number, link, node, peer, "it has no")
        ends[number, node] = end

    cables = []
    for number, link in enumerate(spec.links):
        a, b = link.between
        cables.append(CableLink(ends[number, a], ends[number, b], link.rate, link.delay))
    return replace(file, cables=tuple(cables))


class _FreePorts:
    """The ports of a fabric file that no link of a specification has taken yet."""

    def __init__(self, file: Fabric) -> None:
        self._ports = {node: sorted(ports) for node, ports in file.ports.items()}
        self._rates_bps: dict[LinkEnd, int] = {}
        for cable in file.cables:
            self._rates_bps[cable.a] = cable.rate_bps
            self._rates_bps[cable.b] = cable.rate_bps

    def take(
        self,
        node: str,
        rate_bps: int,
        port: int | None = None,
    ) -> LinkEnd | None:
        """Take that port of a node, or its first one of that rate; None: there is none."""
        for candidate in self._ports[node]:
            end = LinkEnd(node, candidate)
            if port in (None, candidate) and self._rates_bps[end] == rate_bps:
                self._ports[node].remove(candidate)
                return end
        return None


def _no_port(
    number: int,
    link: LinkSpec,
    node: str,
    peer: str,
    lack: str,
) -> RefusedError:
    return RefusedError(
        f"'{node}' cannot be linked to '{peer}': {lack} free port of"
        f" {rate_words(link.rate)} in the fabric file {_SAVED}",
        f"links[{number}]",
        code="does-not-fit",
    )


def _check_nodes(file: Fabric, other: Fabric) -> None:
    """Raise `RefusedError` if hosts or switches differ."""
    _check_names("host", "hosts", file, file.hosts, other.hosts)
    _check_names("switch", "switches", file, file.switches, other.switches)


def _check_names(
    kind: str,
    key: str,
    file: Fabric,
    before: Mapping[str, object],
    after: Mapping[str, object],
) -> None:
    for name in [*before, *after]:
        if before.get(name) == after.get(name):
            continue
        if name not in before:
            fault = f"is not in fabric '{file.name}' ({suggestion(name, before)})"
        elif name not in after:
            fault = "is missing"
        else:
            fault = "would have another number (keep the order of names)"
        reason = f"{kind} '{name}' {fault}; only links can move {_SAVED}"
        raise RefusedError(reason, f"{key}.{name}")


def _missing(fabric: Fabric, other: Fabric) -> tuple[CableLink, ...]:
    """Return the links of a fabric that another one does not have at the same ports."""
    present = set(map(_both_ports, other.cables))
    return tuple([cable for cable in fabric.cables if _both_ports(cable) not in present])


def _both_ports(cable: CableLink) -> frozenset[LinkEnd]:
    return frozenset((cable.a, cable.b))


def _rows(fabric: Fabric) -> list[Any]:
    """Return the links as JSON has them."""
    rows = []
    for cable in fabric.cables:
        ends = [cable.a.node, cable.a.port, cable.b.node, cable.b.port]
        rows.append([*ends, cable.rate_bps, str(cable.delay_s)])
    return rows


def _rewired(file: Fabric, rows: Sequence[Any]) -> Fabric:
    """Return the fabric of a file with the links of such rows."""
    cables = []
    for a, a_port, b, b_port, rate_bps, delay_s in rows:
        ends = (LinkEnd(a, a_port), LinkEnd(b, b_port))
        cables.append(CableLink(*ends, rate_bps, Fraction(delay_s)))
    return replace(file, cables=tuple(cables))
