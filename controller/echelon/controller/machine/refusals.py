"""The parts of its intent that a switch does not hold, and the jobs that have to do without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from echelon.controller.machine.wiring import LinkEnds, ends_of
from echelon.model.fabric.model import Fabric
from echelon.switches.southbound.outcomes import Refused


@dataclass(frozen=True, slots=True)
class Lack:
    """A part that a switch does not hold."""

    problem: str
    job: str | None
    """The job that the part is for; None: it is for all jobs of `links`."""
    links: frozenset[LinkEnds] | None
    """The links of the switch that it concerns; None: all."""
    takes_links: bool
    """Whether plans lead around these links, where there is another path."""

    def concerns(self, job: str, links: frozenset[LinkEnds]) -> bool:
        """Return whether a job whose paths have these links needs the part."""
        if self.job is not None:
            return self.job == job
        return self.links is None or not self.links.isdisjoint(links)


def lacks_of(
    switch: str,
    parts: Iterable[Refused],
    fabric: Fabric,
) -> tuple[Lack, ...]:
    """Return what a switch lacks that refuses these parts.

    A full table refuses thousands of entries. Those that concern the same jobs are one lack, with
    the problem of the first.
    """
    lacks: dict[tuple[str | None, frozenset[int] | None, bool], Lack] = {}
    for part in parts:
        concern = part.job, part.ports, part.takes_links
        if concern in lacks:
            continue
        links = None
        if part.ports is not None:
            links = _links_of(switch, part.ports, fabric)
        lacks[concern] = Lack(
            problem=str(part),
            job=part.job,
            links=links,
            takes_links=part.takes_links,
        )
    return tuple(lacks.values())


def _links_of(
    switch: str,
    ports: frozenset[int],
    fabric: Fabric,
) -> frozenset[LinkEnds]:
    """Return the links of those ports that have one."""
    links = set()
    for port, neighbour in fabric.ports[switch].items():
        if port in ports:
            links.add(ends_of(switch, neighbour))
    return frozenset(links)


def ports_without_service(parts: Iterable[Refused]) -> Mapping[int, str]:
    """Return the ports that do not serve as planned, each with the reason."""
    reasons: dict[int, str] = {}
    for part in parts:
        if not part.takes_links:
            continue
        for port in part.ports or ():
            reasons.setdefault(port, part.reason)
    return reasons
