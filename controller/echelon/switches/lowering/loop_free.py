"""The steps from one plan's intents to the next one's, without loops or holes for packets.

Ratul Mahajan and Roger Wattenhofer, "On Consistent Updates in Software Defined Networks", HotNets
2013: a switch may change its rule for a destination once those that the new rule leads to have
changed theirs. Here this holds for each flow that takes another path:

1. Switches that only its new path passes learn the flow. Nothing leads there yet.
2. Switches of both paths send it the new way. Where both paths pass them in the same order, all may
   do so at once: by old rules and by new ones, packets come nearer. Otherwise those near the
   destination go first.
3. Switches that only its old path passes forget it, those near the source first. A packet that is
   still there goes on by its address, and no switch that it comes to sends it back.

A step begins when the switches hold the one before. Within a step they may be written in any order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from echelon.model.fabric.model import Fabric, Path
from echelon.model.kept import replaced
from echelon.planning.paths import is_tree
from echelon.planning.plan import FlowPlan
from echelon.switches.lowering.intent import Intent, Part, TableEntry

_OF_FLOWS = frozenset({"shim_flow", "segment"})
"""The tables that tell which flow a packet is of."""
_OF_CONNECTIONS = frozenset({"tcp_connection", "udp_connection", "roce_connection", "tcp_answer"})
"""The tables that tell which connection of a job a packet is of, for several flows."""


@dataclass(frozen=True, slots=True)
class LastPlan:
    """The last plan, as far as the next one has to know it."""

    flows: Mapping[str, tuple[FlowPlan, ...]]
    """The flows of each job."""
    fabric: Fabric
    identities: Mapping[str, object]
    """The identities by which switches recognise the flows of each job."""
    intents: Mapping[str, Intent]


def reroutes(
    last: LastPlan,
    flows: Mapping[str, tuple[FlowPlan, ...]],
    fabric: Fabric,
    identities: Mapping[str, object],
    down: Collection[tuple[str, str]] = (),
) -> dict[str, dict[str, tuple[Path, Path]]]:
    """Return the old and the new path of each flow that takes another one, by job and flow.

    Flows are left out whose old path leads over links that are `down` or have moved: nothing passes
    there anyway. So are those of jobs that switches recognise by other packets than before, and
    trees.
    """
    dead = frozenset(map(frozenset, down))
    rerouted: dict[str, dict[str, tuple[Path, Path]]] = {}
    for job in replaced(flows, last.flows):
        moved = {}
        former = last.flows.get(job, ())
        for flow, (old, new) in _other_paths(former, flows[job]).items():
            if is_tree(old) or is_tree(new):
                continue
            if _still_leads(old, last.fabric, fabric, dead):
                moved[flow] = (old, new)
        if moved and identities[job] == last.identities[job]:
            rerouted[job] = moved
    return rerouted


def _other_paths(
    former: Iterable[FlowPlan], planned: Iterable[FlowPlan]
) -> dict[str, tuple[Path, Path]]:
    """Return the old and the new path of each flow that has two, by flow."""
    old_paths = {flow.flow: flow.path for flow in former}
    paths = {}
    for flow in planned:
        old = old_paths.get(flow.flow, flow.path)
        if old != flow.path:
            paths[flow.flow] = (old, flow.path)
    return paths


def _still_leads(
    path: Path,
    before: Fabric,
    after: Fabric,
    dead: Collection[frozenset[str]],
) -> bool:
    """Return whether all links of a path are where they were, and none of them is `dead`."""
    for link in pairwise(path):
        if frozenset(link) in dead:
            return False
        if before.port_to[link] != after.port_to.get(link):
            return False
    return True


@dataclass(slots=True)
class _Turns:
    """The steps after which the flows of a job are as the new plan has them at one switch."""

    changed: dict[str, int] = field(default_factory=dict)
    """The number of the step in which the switch sends a flow the new way, by flow."""
    removed: dict[str, int] = field(default_factory=dict)
    """The same for flows that the switch forgets, counted from the last step of any change."""


class LoopFreeOrder:
    """The order in which switches follow a new plan in which flows are rerouted (`reroutes`).

    `steps` is the number of steps before the last one, which brings every switch to the new plan; 0
    if no flow moves.
    """

    def __init__(self, paths: Mapping[str, Mapping[str, tuple[Path, Path]]]) -> None:
        self._turns: dict[str, dict[str, _Turns]] = {}
        self._changes = 0
        """The number of steps in which switches send flows the new way."""
        removals = 0
        for job, flows in paths.items():
            for flow, (old, new) in flows.items():
                change_steps = self._order_changes(job, flow, old, new)
                removal_steps = self._order_removals(job, flow, old, new)
                self._changes = max(self._changes, change_steps)
                removals = max(removals, removal_steps)
        self.steps = self._changes + removals

    def _order_changes(
        self,
        job: str,
        flow: str,
        old: Path,
        new: Path,
    ) -> int:
        """Order the switches that send a flow to another next hop; return the number of steps."""
        hop_before = dict(pairwise(old))
        hop_after = dict(pairwise(new))
        changing = []
        for node in reversed(new[1:-1]):
            hop = hop_after[node]
            if hop_before.get(node, hop) != hop:
                changing.append(node)

        old_places = [old.index(node) for node in changing]
        if old_places == sorted(old_places, reverse=True):
            for node in changing:
                self._turns_at(node, job).changed[flow] = 1
            return 1
        for turn, node in enumerate(changing, start=1):
            self._turns_at(node, job).changed[flow] = turn
        return len(changing)

    def _order_removals(
        self,
        job: str,
        flow: str,
        old: Path,
        new: Path,
    ) -> int:
        """Order the switches that a flow leaves; return the number of steps."""
        turn = 0
        for node in old[1:-1]:
            if node not in new:
                turn += 1
                self._turns_at(node, job).removed[flow] = turn
        return turn

    def _turns_at(self, switch: str, job: str) -> _Turns:
        turns_by_job = self._turns.setdefault(switch, {})
        return turns_by_job.setdefault(job, _Turns())

    def between(
        self, before: Mapping[str, Intent], after: Mapping[str, Intent]
    ) -> Iterator[Mapping[str, Intent]]:
        """Yield the intents of each step but the last, whose intents are those `after`.

        An intent is the same object as in the step before if the switch has nothing to do.
        """
        late_flows: dict[str, object] = {}
        moving: dict[str, Intent] = {}
        for step in range(self.steps):
            for switch, turns_by_job in self._turns.items():
                late = self._late_flows(turns_by_job, step)
                if late_flows.get(switch) != late:
                    late_flows[switch] = late
                    moving[switch] = _merged(before[switch], after[switch], late)
            yield {**after, **moving}

    def _late_flows(
        self, turns_by_job: Mapping[str, _Turns], step: int
    ) -> dict[str, frozenset[str]]:
        """Return the flows that a switch still has by the old plan after a step, by job."""
        late_by_job = {}
        for job, turns in turns_by_job.items():
            late = set()
            for flow, turn in turns.changed.items():
                if turn > step:
                    late.add(flow)
            for flow, turn in turns.removed.items():
                if self._changes + turn > step:
                    late.add(flow)
            if late:
                late_by_job[job] = frozenset(late)
        return late_by_job


def _merged(
    before: Intent,
    after: Intent,
    late: Mapping[str, Collection[str]],
) -> Intent:
    """Return the intent `after` in which some flows of each job are as `before`."""
    if not late:
        return after
    jobs = dict(after.jobs)
    shared = [part for part in after.parts if not part.flows]
    owners = {part.owner for part in shared}
    # What is of no job and has left the intent: profiles, which come before the jobs that need
    # them.
    former_profiles = [part for part in before.parts if not part.flows]
    shared += [part for part in former_profiles if part.owner not in owners]
    for job, flows in late.items():
        part_after = jobs.get(job)
        jobs[job] = _with_former(before.jobs[job], part_after, flows)
    return replace(after, parts=(*shared, *jobs.values()))


def _with_former(
    former: Part,
    part: Part | None,
    late: Collection[str],
) -> Part:
    """Return a job's part with the former entries of the flows that are `late`.

    Without a `part`, the switch has no flow of the job in the new plan.
    """
    if part is None:
        part = Part(former.owner, ())
    old = {flow.flow: flow for flow in former.flows if flow.flow in late}
    # Taken out of `old`, so that only the flows that the new plan has not at this switch are left.
    flows = [old.pop(flow.flow, flow) for flow in part.flows]
    classifiers = list(part.entries[len(flows) :])
    if old:
        numbers = {flow.number for flow in old.values()}
        keys = {_key(entry) for entry in classifiers}
        for entry in former.entries[len(former.flows) :]:
            recognises_old = entry.table in _OF_CONNECTIONS or _flow_number(entry) in numbers
            if recognises_old and _key(entry) not in keys:
                classifiers.append(entry)
    flows += old.values()
    flow_entries = [flow.entry for flow in flows]
    return Part(former.owner, (*flow_entries, *classifiers), tuple(flows))


def _key(entry: TableEntry) -> object:
    return entry.table, entry.match, entry.priority


def _flow_number(entry: TableEntry) -> int | None:
    """Return the number of the flow that an entry recognises, if it recognises one."""
    if entry.table in _OF_FLOWS:
        return dict(entry.actions[0].arguments)["flow"]
    return None
