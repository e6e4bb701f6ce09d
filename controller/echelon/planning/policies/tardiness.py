"""The tardiness of an EchelonFlow that has the whole network to itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction

from echelon.model.jobs.graph import EchelonFlow, Job
from echelon.planning.allocation import Capacities, Link
from echelon.planning.paths import Paths, links_of


class EffectiveTardiness(Mapping[str, Fraction]):
    """`effective_tardiness_s` of each EchelonFlow of a job, computed when it is first asked for."""

    def __init__(
        self,
        job: Job,
        paths: Paths,
        capacities: Capacities,
    ) -> None:
        self._echelonflows = {echelonflow.name: echelonflow for echelonflow in job.echelonflows}
        self._network = job, paths, capacities
        self._computed: dict[str, Fraction] = {}

    def __getitem__(self, name: str) -> Fraction:
        tardiness_s = self._computed.get(name)
        if tardiness_s is None:
            echelonflow = self._echelonflows[name]
            tardiness_s = effective_tardiness_s(echelonflow, *self._network)
            self._computed[name] = tardiness_s
        return tardiness_s

    def __iter__(self) -> Iterator[str]:
        return iter(self._echelonflows)

    def __eq__(self, other: object) -> bool:
        """Return whether both are of the same job on the same paths; nothing is computed."""
        return isinstance(other, EffectiveTardiness) and self._network == other._network

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._echelonflows)


def effective_tardiness_s(
    echelonflow: EchelonFlow,
    job: Job,
    paths: Paths,
    capacities: Capacities,
) -> Fraction:
    """Return the seconds by which an EchelonFlow alone is tardy: the worst of its links, by EDF.

    The flows start at their deadlines (their producers are on time). For a coflow it is
    the effective bottleneck of Varys. Source: EchelonFlow (HotNets '22) section 4, property 4: rank
    EchelonFlows by tardiness where coflow scheduling ranks by completion time. `capacities` are
    bytes per second.
    """
    size = {flow.name: flow.size_bytes for flow in job.flows}
    busy_until: dict[Link, Fraction] = defaultdict(lambda: echelonflow.offsets_s[0])
    worst = Fraction(0)
    for name, offset in zip(echelonflow.flows, echelonflow.offsets_s, strict=True):
        for link in links_of(paths[name]):
            busy_until[link] = max(busy_until[link], offset) + size[name] / capacities[link]
            worst = max(worst, busy_until[link] - offset)
    return worst
