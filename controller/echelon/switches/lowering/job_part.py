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
    reverse,
)
from echelon.switches.lowering.intent import (
    ActionCall,
    Interval,
    KnownFlow,
    Match,
    MulticastGroup,
    Part,
    Resources,
    TableEntry,
    prefixes,
)
from echelon.switches.lowering.numbering import ExhaustedError, JobNumbers
from echelon.switches.lowering.parts import entry, ipv4, mac

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
    """Its multicast groups."""

    def with_resources(self, resources: Resources) -> LoweredJob:
        """Return the job with what the switch holds besides its flows."""
        entries = (*self.part.entries, *resources.entries)
        part = replace(self.part, entries=entries)
        return replace(self, part=part, groups=resources.groups)


Same = dict[tuple[int, int, int | None], Mapping[str, int]]
"""Arguments that are the same at all switches of a kind, by the identities of ranking and units,
and by `whole_bytes`."""


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

    `same` is of the job while it is lowered, empty at the first switch. Raise `LoweringError` or
    `echelon.switches.lowering.numbering.ExhaustedError`.
    """
    job = _JobAtSwitch(switch, identities, fabric, numbers, capabilities, same)
    return job.lower(flows)


def requeued(lowered: LoweredJob, queues: Mapping[str, Fixed]) -> LoweredJob:
    """Return a job after some of its flows (by name) went from one fixed queue to another."""
    entries = {}
    for flow, ranking in queues.items():
        place = lowered.part.places[flow]
        before = lowered.part.flows[place].entry
        (action,) = before.actions
        arguments = {**dict(action.arguments), "queue": ranking.queue}
        call = ActionCall(action.name, tuple(arguments.items()))
        entries[flow] = before._replace(actions=(call,))
    return replace(lowered, part=lowered.part.with_entries(entries))


@dataclass(frozen=True, slots=True)
class _Connection:
    """A connection that a switch follows, or several that count as one."""

    number: int
    segment: SegmentIdentity
    numbers: JobNumbers

    def entries(
        self,
        able: Capabilities,
        *,
        is_head: bool,
        is_shared: bool,
    ) -> Iterator[TableEntry]:
        """Yield the entries that recognise its packets, and those that answer them.

        Args:
            able: what the switch can carry.
            is_head: whether it begins iterations of the job.
            is_shared: whether it carries flows of the job both ways.
        """
        segment = self.segment
        arguments = self._arguments(able, is_head=is_head)
        counts_sequence = able.sequence_numbers and segment.protocol == "tcp"
        is_alone = len(segment.five_tuples) == 1
        for connection in segment.five_tuples:
            if segment.mtu is not None:
                yield self._queue_pair(connection, arguments)
                continue
            key = _ends(connection)
            if counts_sequence and not is_alone:
                # Several that count as one: each has sequence numbers of its own.
                number = self.numbers.connection(connection)
                yield entry("tcp_connection", key, "set_one_of", **arguments, sequence_of=number)
                continue
            if able.sequence_numbers:
                arguments["in_sequence"] = int(counts_sequence)
            yield entry(f"{segment.protocol}_connection", key, "set_connection", **arguments)
            if counts_sequence:
                yield self._answer(connection, is_shared=is_shared)

    def _arguments(self, able: Capabilities, *, is_head: bool) -> dict[str, int]:
        segment = self.segment
        time = able.units.time
        arguments = {
            "connection": self.number,
            "job": self.numbers.register(),
            "is_head": int(is_head),
            f"gap_{time.suffix}": time.count(segment.idle_gap_s),
            "head_bytes": int(segment.iteration_bytes * HEAD_SHARE),
        }
        if able.iterations_by_bytes:
            # 0: only a silence begins the next iteration.
            arguments["whole_bytes"] = 0
            if segment.by_bytes:
                arguments["whole_bytes"] = segment.iteration_bytes
        return arguments

    def _queue_pair(self, connection: FiveTuple, arguments: Mapping[str, int]) -> TableEntry:
        # Each queue pair has packet numbers of its own.
        queue_pair = self.numbers.connection(connection)
        _, _, dst, _, dst_port = connection
        key: dict[str, Match] = {"dst": ipv4(dst), "queue_pair": dst_port}
        action = f"set_queue_pair_{self.segment.mtu}"
        return entry("roce_connection", key, action, **arguments, queue_pair=queue_pair)

    def _answer(self, connection: FiveTuple, *, is_shared: bool) -> TableEntry:
        """Return the entry for the acknowledgements of a connection, and its window."""
        # With windows closed both ways, each side would take the other's acknowledgements for old
        # ones, and send nothing more.
        closes = int(self.segment.pause and not is_shared)
        key = _ends(reverse(connection))
        return entry(
            "tcp_answer",
            key,
            "set_answered",
            answered=self.number,
            closes=closes,
        )


def _ends(connection: FiveTuple) -> dict[str, Match]:
    """Return the key of a connection over TCP or UDP."""
    _, src, dst, src_port, dst_port = connection
    return {"src": ipv4(src), "dst": ipv4(dst), "src_port": src_port, "dst_port": dst_port}


@dataclass
class _JobAtSwitch:
    """One job at one switch while it is lowered.

    It is an `echelon.planning.rankings.in_switches.SwitchNumbers`.
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
        """Return the flows, how the switch recognises them, and the profiles that rank them."""
        numbered = []
        classifiers: list[TableEntry] = []
        for flow in flows:
            number = self.numbers.flow(flow.flow)
            flow_entry = self._flow_entry(number, flow)
            known_flow = KnownFlow(number, flow.job, flow.flow, flow_entry)
            numbered.append(known_flow)
            classifiers += self._classifiers(number, flow)

        connection_count = 0
        both_ways = self._both_ways()
        for index, connection in enumerate(self.connections.values()):
            five_tuples = connection.segment.five_tuples
            # Of connections that begin together, any may come first to a switch. If it could not
            # open the iteration, its first packets would count as of the last one.
            is_head = index == 0 or connection.segment.leads
            connection_count += len(five_tuples)
            is_shared = not both_ways.isdisjoint(five_tuples)
            classifiers += connection.entries(
                self.capabilities,
                is_head=is_head,
                is_shared=is_shared,
            )

        flow_entries = [flow.entry for flow in numbered]
        part = Part(self.numbers.job, (*flow_entries, *classifiers), tuple(numbered))
        return LoweredJob(part, self.profiles, connection_count)

    def _flow_entry(self, number: int, flow: FlowPlan) -> TableEntry:
        """Return the entry with a flow's next hop and ranking."""
        identity = self.identities[flow.flow]
        self.whole_bytes = None
        if isinstance(identity, SegmentIdentity) and not self.capabilities.left_by_position:
            self.whole_bytes = identity.end_bytes - identity.start_bytes
        try:
            action, arguments = flow.ranking.action(self)
        except ExhaustedError:
            raise
        except ValueError as error:
            raise LoweringError(f"job {flow.job}, flow {flow.flow}: {error}", flow.job) from None

        next_hop = self._next_hop(flow)
        destination = self.fabric.hosts[flow.path[-1]]
        return entry(
            "flow",
            {"flow": number},
            action,
            port=self.fabric.port_to[self.switch, next_hop],
            dst_mac=mac(destination.mac),
            **arguments,
        )

    def _next_hop(self, flow: FlowPlan) -> str:
        place = flow.path.index(self.switch)
        return flow.path[place + 1]

    def _classifiers(self, number: int, flow: FlowPlan) -> Iterator[TableEntry]:
        """Yield the entries that tell which packets are of a flow."""
        match self.identities[flow.flow]:
            case ShimIdentity(job=job, flow=in_shim):
                action = "set_flow"
                arguments = {"flow": number}
                if self.capabilities.max_pairs:
                    action = "set_flow_of"
                    ends = flow.path[0], flow.path[-1], self._next_hop(flow)
                    arguments["pair"] = self.numbers.pair(ends)
                yield entry("shim_flow", {"job": job, "flow": in_shim}, action, **arguments)
            case SegmentIdentity() as segment:
                connection = self._connection(segment)
                for start_bytes, end_bytes in segment.ranges:
                    arguments = {"flow": number, "end_bytes": end_bytes}
                    for position in self._positions(start_bytes, end_bytes):
                        key: dict[str, Match] = {"connection": connection, "position": position}
                        yield entry("segment", key, "set_segment", priority=1, **arguments)

    def _positions(self, start_bytes: int, end_bytes: int) -> Sequence[Match]:
        """Return the matches that together cover a range of positions."""
        interval = Interval(start_bytes, end_bytes - 1)
        if self.capabilities.position_ranges:
            return (interval,)
        return prefixes(interval, _POSITION_BITS)

    def _both_ways(self) -> AbstractSet[FiveTuple]:
        """Return the connections that may pause and carry flows of the job in both directions."""
        pauses = [connection.segment.pause for connection in self.connections.values()]
        if not any(pauses):
            return frozenset()
        connections: set[FiveTuple] = set()
        for identity in self.identities.values():
            if isinstance(identity, SegmentIdentity):
                connections.update(identity.five_tuples)
        return {connection for connection in connections if reverse(connection) in connections}

    def _connection(self, segment: SegmentIdentity) -> int:
        """Return the number of a flow's connection, which the switch follows from now on."""
        five_tuple = segment.five_tuple
        connection = self.connections.get(five_tuple)
        if connection is None:
            number = self.numbers.connection(five_tuple)
            connection = _Connection(number, segment, self.numbers)
            self.connections[five_tuple] = connection
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
        key = (id(ranking), id(self.units), self.whole_bytes)
        arguments = self.same.get(key)
        if arguments is None:
            arguments = make()
            self.same[key] = arguments
        return arguments

    def profile(self, content: Hashable, make: Callable[[], LevelProfile]) -> int:
        if content != self._content:
            profile = make()
            self._content = content
            self._profile = self.numbers.profile(profile)
            self.profiles[self._profile] = profile
        return self._profile
