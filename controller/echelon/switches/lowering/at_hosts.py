"""Lowering for hosts, which rank packets where switches do not.

Senders compute the rank of each packet and mark it with its queue.

A sender holds for each of its flows what the P4 program has in its tables `flow`, `level` and
`period`. The same rankings make it, and a sender computes as the program does
(`echelon_lab.endhosts.ranks`). One thing differs: a switch compares a packet with the most urgent
flow at the port, which no host sees. Hosts compare it with the rank `TOP`, so that levels are
absolute.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Self

from echelon.model.fabric.choices.addressed import next_hop
from echelon.model.fabric.model import Fabric
from echelon.model.p4program import constants
from echelon.planning.plan import FlowPlan, Plan, PortSchedule
from echelon.planning.policies.levels import MIN_SHARE, strict
from echelon.planning.rankings.deadline import Deadline
from echelon.planning.rankings.in_switches import KeyRange, LevelProfile, Units
from echelon.switches.lowering.capabilities import Capabilities, LoweringError
from echelon.switches.lowering.identity import Identity, SegmentIdentity, ShimIdentity
from echelon.switches.lowering.parts import RoutesByAddress

TOP = Fraction(1)
"""The rank, in units of the job, from which packets have the highest level."""
STEPS = tuple(Fraction(part, 100) for part in (50, 90, 120, 150, 190, 240))
"""A packet goes one level down for each of these by which its rank is behind `TOP`.

The rank of a job that is on time grows from below -1 to 0 while it sends, and what it lost in
former iterations lifts it. Of five choices, this one was best on eleven even seeds of `echelon
evaluate` (docs/ranking-at-hosts.md)."""
APART = 25
"""The factor by which copies of a job that start together are further apart than in switches.

A switch sends the most urgent first, however little it is ahead. Absolute levels tell two jobs
apart only if a step is between them.
"""
_MOVING = strict(MIN_SHARE)
_STRICT = strict()


@dataclass(frozen=True, slots=True)
class HostRule:
    """The rule by which a sender ranks the packets of one flow.

    Times are microseconds, ranks those of the P4 program.
    """

    job: str
    flow: str
    src: str
    """The host that sends the flow."""
    identity: Identity
    queue: int = 0
    """The queue of all packets, if there is no `echelonflow`."""
    echelonflow: str | None = None
    """The EchelonFlow whose reference time and memory count."""
    offset_us: int = 0
    due_us: int = 0
    left_shift: int = 0
    levels: tuple[KeyRange, ...] = ()
    """The queue for each key."""
    factor: int = 0
    """0: keys are slacks.

    Otherwise the rank decides: a tardiness by `factor` / 2 to the power of `factor_shift`.
    """
    factor_shift: int = 0
    rank_at_zero: int = 0
    alone_us: int = 0
    top: int = 0
    """The rank from which packets have the highest level."""

    def to_document(self) -> dict[str, Any]:
        """Return the rule as JSON."""
        document = asdict(self)
        if isinstance(self.identity, SegmentIdentity):
            document["identity"]["idle_gap_s"] = str(self.identity.idle_gap_s)
        return document

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Self:
        """Return the rule of which `to_document` made a document."""
        values = dict(document)
        values["identity"] = _identity_of(document["identity"])
        values["levels"] = tuple(KeyRange(*level) for level in document["levels"])
        return cls(**values)


def _identity_of(document: Mapping[str, Any]) -> Identity:
    if "idle_gap_s" not in document:
        return ShimIdentity(**document)
    values = dict(document)
    values["idle_gap_s"] = Fraction(document["idle_gap_s"])
    if document["reported"] is not None:
        values["reported"] = tuple((src, dst) for src, dst in document["reported"])
    return SegmentIdentity(**values)


def lower_at_hosts(
    job: str,
    flows: Iterable[FlowPlan],
    identities: Mapping[str, Identity],
    fabric: Fabric,
    able: Capabilities,
    routes: RoutesByAddress = MappingProxyType({}),
) -> tuple[HostRule, ...]:
    """Return how the senders of a job rank its flows. `able` is what the switches can carry.

    `routes` are those of the plan, where switches have others than the fabric's. Raise
    `LoweringError` for a path that switches without entries for flows do not take, and for a
    ranking that needs what hosts do not know.
    """
    rules = []
    for flow in flows:
        _check_path(flow, fabric, able, routes)
        try:
            rules.append(_rule(flow, identities[flow.flow], able))
        except ValueError as error:
            raise LoweringError(f"job {job}, flow {flow.flow}: {error}", job) from None
    return tuple(rules)


def for_code_points(plan: Plan) -> Plan:
    """Return the plan without the shares that keep packets moving in lower queues.

    Packets move there until they are ranked once more, so switches that do not rank have no use for
    those shares. Other shares stay, and are refused where switches have none.
    """
    schedules = {port: _without_moving(schedule) for port, schedule in plan.schedules.items()}
    default = _without_moving(plan.default_schedule)
    return plan.with_rankings(
        {},
        default_schedule=default,
        schedules=schedules,
    )


def _without_moving(schedule: PortSchedule) -> PortSchedule:
    if schedule == _MOVING:
        return _STRICT
    return schedule


def _check_path(
    flow: FlowPlan,
    fabric: Fabric,
    able: Capabilities,
    routes: RoutesByAddress,
) -> None:
    for switch, planned in zip(flow.path[1:-1], flow.path[2:], strict=True):
        destination = flow.path[-1]
        hop = routes.get((switch, destination)) or next_hop(fabric, switch, destination)
        if hop != planned:
            raise LoweringError(
                f"job {flow.job}, flow {flow.flow}: switch {switch}: target {able.target} forwards"
                f" by address, to {hop}, and the plan's path goes to {planned}; give the fabric"
                " 'paths: address'",
                flow.job,
            )


def _rule(
    flow: FlowPlan,
    identity: Identity,
    able: Capabilities,
) -> HostRule:
    ranking = flow.ranking
    levels: tuple[KeyRange, ...] = ()
    top = 0
    if isinstance(ranking, Deadline) and ranking.relative is not None:
        relative = ranking.relative
        head_start = relative.head_start + (APART - 1) * relative.apart
        at_hosts = replace(
            relative,
            steps=STEPS,
            head_start=head_start,
        )
        unit = Fraction(constants()["RANK_UNIT"])
        levels = at_hosts.ranges(ranking.lowest, ranking.highest, unit, able.units.key_bits)
        ranking = replace(ranking, relative=at_hosts)
        top = round(TOP * unit)
    numbers = _Numbers(able.units)
    action, arguments = ranking.action(numbers)
    rule = HostRule(flow.job, flow.flow, flow.path[0], identity)
    if action == "fixed":
        return replace(rule, queue=arguments["queue"])
    if not able.hosts_rank:
        raise ValueError(
            f"target {able.target}: a flow has one queue for good, and is not ranked by '{action}';"
            " choose another policy, such as classes, or switches that rank"
        )
    if action != "deadline":
        raise ValueError(
            f"target {able.target}: hosts rank by deadline or into fixed queues, not by '{action}';"
            " choose another policy, or switches that rank"
        )
    assert numbers.levels is not None
    timed = replace(
        rule,
        echelonflow=numbers.echelonflow_name,
        offset_us=arguments["offset_us"],
        due_us=arguments["due_us"],
        left_shift=arguments["left_shift"],
        levels=levels or numbers.levels.steps,
        top=top,
    )
    period = dict(numbers.levels.period)
    return replace(
        timed,
        factor=period.get("factor", 0),
        factor_shift=period.get("factor_shift", 0),
        rank_at_zero=period.get("rank_at_zero", 0),
        alone_us=period.get("alone_tardiness_us", 0),
    )


@dataclass
class _Numbers:
    """The answers to a ranking for a host, which needs no numbers.

    It is an `echelon.planning.rankings.in_switches.SwitchNumbers`.
    """

    units: Units
    whole_bytes: int | None = None
    echelonflow_name: str = ""
    levels: LevelProfile | None = None

    def echelonflow(self, name: str) -> int:
        self.echelonflow_name = name
        return 0

    def group(self, name: str) -> int:
        return 0

    def profile(self, content: Hashable, make: Callable[[], LevelProfile]) -> int:
        self.levels = make()
        return 0

    def once(self, ranking: object, make: Callable[[], Mapping[str, int]]) -> Mapping[str, int]:
        return make()
