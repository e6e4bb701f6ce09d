"""The part of an intent for one job: its flows, and how the switch recognises their packets."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from echelon.model.fabric.model import Fabric
from echelon.planning.plan import FlowPlan
from echelon.planning.rankings.fixed import Fixed
from echelon.planning.rankings.in_switches import LevelProfile, Units
from echelon.switches.lowering.capabilities import Capabilities, LoweringError
from echelon.switches.lowering.identity import (
    UNPLANNED,
    FiveTuple,
    Identity,
    SegmentIdentity,
    ShimIdentity,
)
from echelon.switches.lowering.intent import (
    ActionCall,
    Interval,
    KnownFlow,
    Match,
    MulticastGroup,
    Part,
    TableEntry,
    prefixes,
)
from echelon.switches.lowering.numbering import ExhaustedError, JobNumbers
from echelon.switches.lowering.parts import entry, ipv4, mac
from echelon.switches.lowering.trees import HeldTree

HEAD_SHARE = 1 - UNPLANNED
"""The share of an iteration's bytes that has to pass before a silence ends it."""
_POSITION_BITS = 32


@dataclass(frozen=True, slots=True)
class LoweredJob:
    """One job at one switch."""

    part: Part
    profiles: Mapping[int, LevelProfile]
    """The profiles that the job needs, by number."""
    connections: int = 0
    """The number of connections by which the switch recognises it."""
    groups: tuple[MulticastGroup, ...] = ()
    """The multicast group of each of its trees."""

    def with_trees(self, trees: Sequence[HeldTree]) -> LoweredJob:
        """Return the job with what the switch holds for its trees."""
        entries = (*self.part.entries, *(one for tree in trees for one in tree.entries))
        return replace(
            self,
            part=replace(self.part, entries=entries),
            groups=tuple(tree.group for tree in trees),
        )


Same = dict[tuple[int, int, int | None], Mapping[str, int]]
"""Arguments that are the same at all switches of a kind, by ranking, units and `whole_bytes`; the
first two by identity."""


def lower_job(
    switch: str,
    flows: Sequence[FlowPlan],
    identities: Mapping[str, Identity],
    fabric: Fabric,
    numbers: JobNumbers,
    capabilities: Capabilities,
    same: Same,
) -> LoweredJob:
    """Lower the `flows` of a job that pass a switch, recognised by `identities` (by flow).

    `same` is of the job while it is lowered, empty at the first switch.
    Raise `LoweringError` or `echelon.switches.lowering.numbering.ExhaustedError`.
    """
    return _JobAtSwitch(switch, identities, fabric, numbers, capabilities, same).lower(flows)


def requeued(lowered: LoweredJob, queues: Mapping[str, Fixed]) -> LoweredJob:
    """Return a lowered job after some of its flows (by name) went from one fixed queue to
    another.
    """
    entries = {}
    for flow, ranking in queues.items():
        entry = lowered.part.known[lowered.part.places[flow]].entry
        (action,) = entry.actions
        arguments = {**dict(action.arguments), "queue": ranking.queue}
        entries[flow] = entry._replace(actions=(ActionCall(action.name, tuple(arguments.items())),))
    return replace(lowered, part=lowered.part.with_entries(entries))


@dataclass(frozen=True, slots=True)
class _Connection:
    number: int
    segment: SegmentIdentity
    number_of: Callable[[FiveTuple], int]

    def entries(
        self, job: int, able: Capabilities, *, is_head: bool, is_shared: bool
    ) -> Iterator[TableEntry]:
        time = able.units.time
        segment = self.segment
        counts = able.sequence_numbers and segment.protocol == "tcp"
        in_sequence = counts and len(segment.five_tuples) == 1
        if segment.by_bytes:
            whole_bytes = segment.iteration_bytes
        else:
            whole_bytes = 0
        for protocol, src, dst, src_port, dst_port in segment.five_tuples:
            given = {
                "connection": self.number,
                "job": job,
                "is_head": int(is_head),
                f"gap_{time.suffix}": time.count(segment.idle_gap_s),
                "head_bytes": int(segment.iteration_bytes * HEAD_SHARE),
                **({"whole_bytes": whole_bytes} if able.iterations_by_bytes else {}),
            }
            if segment.mtu is not None:
                # Each queue pair has packet numbers of its own.
                pair = self.number_of((protocol, src, dst, src_port, dst_port))
                to: dict[str, Match] = {"dst": ipv4(dst), "queue_pair": dst_port}
                yield entry(
                    "roce_connection", to, f"set_queue_pair_{segment.mtu}", **given, queue_pair=pair
                )
                continue
            key: dict[str, Match] = {
                "src": ipv4(src),
                "dst": ipv4(dst),
                "src_port": src_port,
                "dst_port": dst_port,
            }
            if counts and not in_sequence:
                # Several that count as one: each has sequence numbers of its own.
                one = self.number_of((protocol, src, dst, src_port, dst_port))
                yield entry("tcp_connection", key, "set_one_of", **given, sequence_of=one)
                continue
            yield entry(
                f"{protocol}_connection",
                key,
                "set_connection",
                **given,
                **({"in_sequence": int(in_sequence)} if able.sequence_numbers else {}),
            )
            if in_sequence:
                back: dict[str, Match] = {}
                back |= {
                    "src": ipv4(dst),
                    "dst": ipv4(src),
                    "src_port": dst_port,
                    "dst_port": src_port,
                }
                # With windows closed both ways, each side would take the other's acknowledgements
                # for old ones, and send nothing more.
                closes = int(segment.pause and not is_shared)
                yield entry("tcp_answer", back, "set_answered", answered=self.number, closes=closes)


@dataclass
class _JobAtSwitch:
    """One job at one switch while it is lowered (an
    `echelon.planning.rankings.base.SwitchNumbers`).
    """

    switch: str
    identities: Mapping[str, Identity]
    fabric: Fabric
    numbers: JobNumbers
    capabilities: Capabilities
    same: Same
    profiles: dict[int, LevelProfile] = field(default_factory=dict)
    connections: dict[FiveTuple, _Connection] = field(default_factory=dict)
    whole_bytes: int | None = None
    """The size of the flow that is lowered, if the switch cannot tell how much of it is left."""
    _content: Hashable = None
    _profile: int = 0

    def lower(self, flows: Sequence[FlowPlan]) -> LoweredJob:
        known = []
        classifiers: list[TableEntry] = []
        for flow in flows:
            number = self.numbers.flow(flow.flow)
            known.append(KnownFlow(number, flow.job, flow.flow, self._flow_entry(number, flow)))
            classifiers += self._classifiers(number, flow)
        head = next(iter(self.connections.values()), None)
        both_ways = self._both_ways()
        connections = [
            one
            for connection in self.connections.values()
            for one in connection.entries(
                self.numbers.register(),
                self.capabilities,
                is_head=connection is head,
                is_shared=not both_ways.isdisjoint(connection.segment.five_tuples),
            )
        ]
        entries = (*(flow.entry for flow in known), *classifiers, *connections)
        recognised = sum(
            len(connection.segment.five_tuples) for connection in self.connections.values()
        )
        return LoweredJob(Part(self.numbers.job, entries, tuple(known)), self.profiles, recognised)

    def _flow_entry(self, number: int, flow: FlowPlan) -> TableEntry:
        following = flow.path[flow.path.index(self.switch) + 1]
        match self.identities[flow.flow]:
            case SegmentIdentity(start_bytes=start, end_bytes=end) if (
                not self.capabilities.left_by_position
            ):
                self.whole_bytes = end - start
            case _:
                self.whole_bytes = None
        try:
            action, arguments = flow.ranking.action(self)
        except ExhaustedError:
            raise
        except ValueError as error:
            raise LoweringError(f"job {flow.job}, flow {flow.flow}: {error}", flow.job) from None
        return entry(
            "flow",
            {"flow": number},
            action,
            port=self.fabric.port_to[self.switch, following],
            dst_mac=mac(self.fabric.hosts[flow.path[-1]].mac),
            **arguments,
        )

    def _classifiers(self, number: int, flow: FlowPlan) -> Iterator[TableEntry]:
        match self.identities[flow.flow]:
            case ShimIdentity(job=job, flow=in_shim):
                yield entry("shim_flow", {"job": job, "flow": in_shim}, "set_flow", flow=number)
            case SegmentIdentity() as segment:
                connection = self._connection(segment)
                for start_bytes, end_bytes in segment.ranges:
                    whole = Interval(start_bytes, end_bytes - 1)
                    positions = (
                        (whole,)
                        if self.capabilities.position_ranges
                        else prefixes(whole, _POSITION_BITS)
                    )
                    for position in positions:
                        key: dict[str, Match] = {"connection": connection, "position": position}
                        yield entry(
                            "segment",
                            key,
                            "set_segment",
                            priority=1,
                            flow=number,
                            end_bytes=end_bytes,
                        )

    def _both_ways(self) -> AbstractSet[FiveTuple]:
        """Return the connections that may pause and carry flows of the job in both directions."""
        if not any(connection.segment.pause for connection in self.connections.values()):
            return frozenset()
        segments = {
            one.five_tuple: one
            for one in self.identities.values()
            if isinstance(one, SegmentIdentity)
        }
        tuples = {one for segment in segments.values() for one in segment.five_tuples}
        return {one for one in tuples if (one[0], one[2], one[1], one[4], one[3]) in tuples}

    def _connection(self, segment: SegmentIdentity) -> int:
        five_tuple = segment.five_tuple
        connection = self.connections.get(five_tuple)
        if connection is None:
            connection = self.connections[five_tuple] = _Connection(
                self.numbers.connection(five_tuple), segment, self.numbers.connection
            )
        return connection.number

    # -- what rankings ask for ---------------------------------------------------------------------

    @property
    def units(self) -> Units:
        return self.capabilities.units

    def echelonflow(self, name: str) -> int:
        return self.numbers.echelonflow(name)

    def group(self, name: str) -> int:
        return self.numbers.group(name)

    def once(self, ranking: object, make: Callable[[], Mapping[str, int]]) -> Mapping[str, int]:
        key = id(ranking), id(self.units), self.whole_bytes
        known = self.same.get(key)
        if known is None:
            known = self.same[key] = make()
        return known

    def profile(self, content: Hashable, make: Callable[[], LevelProfile]) -> int:
        if content != self._content:
            profile = make()
            self._content = content
            self._profile = self.numbers.profile(profile)
            self.profiles[self._profile] = profile
        return self._profile
