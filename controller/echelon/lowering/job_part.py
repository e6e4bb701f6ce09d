"""The part of an intent for one job: paths, classifiers and connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from echelon.fabric.model import Fabric
from echelon.lowering.capabilities import Capabilities
from echelon.lowering.entry import entry, ipv4, mac, microseconds
from echelon.lowering.errors import LoweringError
from echelon.lowering.identity import FiveTuple, Identity, SegmentIdentity, ShimIdentity
from echelon.lowering.intent import Interval, KnownFlow, Match, Part, TableEntry
from echelon.lowering.numbering import JobNumbers
from echelon.lowering.profile import Steps, slack_steps
from echelon.plan import FlowPlan
from echelon.rankings.base import Ranking
from echelon.rankings.deadline import Deadline
from echelon.rankings.fixed import Fixed

_HEAD_SHARE = Fraction(95, 100)


@dataclass(frozen=True, slots=True)
class LoweredJob:
    """One job at one switch."""

    part: Part
    profiles: Mapping[int, Steps]
    """The profiles that the job needs, by number."""


def lower_job(
    switch: str,
    flows: Sequence[FlowPlan],
    identities: Mapping[str, Identity],
    fabric: Fabric,
    numbers: JobNumbers,
    capabilities: Capabilities,
) -> LoweredJob:
    """Lower the `flows` of a job that pass a switch, recognised by `identities` (by flow).

    Raise `LoweringError` or `echelon.lowering.numbering.ExhaustedError`.
    """
    return _JobAtSwitch(switch, identities, fabric, numbers, capabilities).lower(flows)


@dataclass(frozen=True, slots=True)
class _Connection:
    number: int
    segment: SegmentIdentity

    def entry(self, job: int, *, is_head: bool) -> TableEntry:
        s = self.segment
        key: dict[str, Match] = {
            "src": ipv4(s.src_ipv4),
            "dst": ipv4(s.dst_ipv4),
            "src_port": s.src_port,
            "dst_port": s.dst_port,
        }
        return entry(
            f"{s.protocol}_connection",
            key,
            "set_connection",
            connection=self.number,
            job=job,
            is_head=int(is_head),
            gap_us=microseconds(s.idle_gap_s),
            head_bytes=int(s.iteration_bytes * _HEAD_SHARE),
        )


@dataclass
class _JobAtSwitch:
    switch: str
    identities: Mapping[str, Identity]
    fabric: Fabric
    numbers: JobNumbers
    capabilities: Capabilities
    profiles: dict[int, Steps] = field(default_factory=dict)
    connections: dict[FiveTuple, _Connection] = field(default_factory=dict)
    _thresholds: tuple[object, ...] = ()
    _profile: int = 0

    def lower(self, flows: Sequence[FlowPlan]) -> LoweredJob:
        paths = []
        known = []
        for flow in flows:
            number = self.numbers.flow(flow.flow)
            paths.append(self._path_entry(number, flow))
            known.append(KnownFlow(number, flow.job, flow.flow, self._classifier(number, flow)))
        classifiers = [flow.classifier for flow in known]
        head = next(iter(self.connections.values()), None)
        connections = [
            connection.entry(self.numbers.register(), is_head=connection is head)
            for connection in self.connections.values()
        ]
        part = Part(self.numbers.job, (*paths, *classifiers, *connections), tuple(known))
        return LoweredJob(part, self.profiles)

    def _path_entry(self, number: int, flow: FlowPlan) -> TableEntry:
        following = flow.path[flow.path.index(self.switch) + 1]
        return entry(
            "flow_path",
            {"flow": number},
            "route",
            port=self.fabric.port_to[self.switch, following],
            dst_mac=mac(self.fabric.hosts[flow.path[-1]].mac),
        )

    def _classifier(self, number: int, flow: FlowPlan) -> TableEntry:
        identity = self.identities[flow.flow]
        kind, arguments = self._ranking(flow)
        match identity:
            case ShimIdentity(job=job, flow=in_shim):
                return entry("shim_flow", {"job": job, "flow": in_shim}, f"rank_{kind}", flow=number, **arguments)
            case SegmentIdentity() as segment:
                key: dict[str, Match] = {
                    "connection": self._connection(segment),
                    "position": Interval(segment.start_bytes, segment.end_bytes - 1),
                }
                arguments["end_bytes"] = segment.end_bytes
                return entry("segment", key, f"segment_{kind}", priority=1, flow=number, **arguments)

    def _connection(self, segment: SegmentIdentity) -> int:
        five_tuple = segment.five_tuple
        connection = self.connections.get(five_tuple)
        if connection is None:
            connection = self.connections[five_tuple] = _Connection(self.numbers.connection(five_tuple), segment)
        return connection.number

    def _ranking(self, flow: FlowPlan) -> tuple[str, dict[str, int]]:
        ranking: Ranking = flow.ranking
        match ranking:
            case Fixed(queue=queue):
                return "fixed", {"queue": queue}
            case Deadline():
                offset_us = microseconds(ranking.offset_s)
                bits = self.capabilities.offset_bits
                if not 0 <= offset_us < 1 << bits:
                    raise LoweringError(
                        f"job {flow.job}, flow {flow.flow}: offset {float(ranking.offset_s):g} s does not fit {bits} "
                        f"bits of microseconds ({(1 << bits) // 60_000_000} minutes); shorten the iteration",
                        flow.job,
                    )
                return "deadline", {
                    "echelonflow": self.numbers.echelonflow(ranking.echelonflow),
                    "profile": self._profile_of(ranking),
                    "offset_us": offset_us,
                }
            case _:
                raise LoweringError(
                    f"job {flow.job}, flow {flow.flow}: switches have no ranking {type(ranking).__name__}", flow.job
                )

    def _profile_of(self, ranking: Deadline) -> int:
        thresholds = (ranking.thresholds_s, ranking.lowest, ranking.highest)
        # The flows of a job share thresholds, mostly as one object: comparing those is much cheaper than computing
        # steps.
        if thresholds != self._thresholds:
            steps = slack_steps(ranking, self.capabilities.slack_bits)
            self._thresholds = thresholds
            self._profile = self.numbers.profile(steps)
            self.profiles[self._profile] = steps
        return self._profile
