"""The steps from one plan's intents to the next one's in which no packet of a flow circles or falls
into a hole.

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

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from echelon.model.fabric.model import Fabric, Path
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
    """How switches recognise the flows of each job."""
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
    out: dict[str, dict[str, tuple[Path, Path]]] = {}
    for job, now in flows.items():
        before = last.flows.get(job, now)
        if before is now:
            continue
        paths = {flow.flow: flow.path for flow in before}
        moved = {
            flow.flow: (old, flow.path)
            for flow in now
            if (old := paths.get(flow.flow, flow.path)) != flow.path
            and not (is_tree(old) or is_tree(flow.path))
            and all(
                last.fabric.port_to[link] == fabric.port_to.get(link)
                and frozenset(link) not in dead
                for link in pairwise(old)
            )
        }
        if moved and identities[job] == last.identities[job]:
            out[job] = moved
    return out


@dataclass(slots=True)
class _Turns:
    """When the flows of a job are as the new plan has them at one switch: the number of the step,
    by flow.
    """

    changed: dict[str, int] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    """Counted from the last step in which any flow changes."""


class LoopFreeOrder:
    """The order in which switches follow a new plan in which flows are rerouted (`reroutes`).

    `steps` is the number of steps before the last one, which brings every switch to the new plan; 0
    if no flow moves.
    """

    def __init__(self, paths: Mapping[str, Mapping[str, tuple[Path, Path]]]) -> None:
        self._turns: dict[str, dict[str, _Turns]] = {}
        self._changes = removals = 0
        for job, flows in paths.items():
            for flow, (old, new) in flows.items():
                after = dict(pairwise(new))
                before = dict(pairwise(old))
                changing = [
                    node
                    for node in reversed(new[1:-1])
                    if before.get(node, after[node]) != after[node]
                ]
                places = [old.index(node) for node in changing]
                at_once = places == sorted(places, reverse=True)
                for turn, node in enumerate(changing, start=1):
                    self._at(node, job).changed[flow] = 1 if at_once else turn
                self._changes = max(self._changes, 1 if at_once else len(changing))
                leaving = [node for node in old[1:-1] if node not in after]
                for turn, node in enumerate(leaving, start=1):
                    self._at(node, job).gone[flow] = turn
                removals = max(removals, len(leaving))
        self.steps = self._changes + removals

    def _at(self, switch: str, job: str) -> _Turns:
        return self._turns.setdefault(switch, {}).setdefault(job, _Turns())

    def between(
        self, before: Mapping[str, Intent], after: Mapping[str, Intent]
    ) -> Iterator[Mapping[str, Intent]]:
        """Yield the intents of each step but the last, whose intents are those `after`.

        An intent is the same object as in the step before if the switch has nothing to do.
        """
        last: dict[str, tuple[object, Intent]] = {}
        for step in range(self.steps):
            for switch, jobs in self._turns.items():
                late = {
                    job: flows for job, turns in jobs.items() if (flows := self._late(turns, step))
                }
                if switch not in last or last[switch][0] != late:
                    last[switch] = late, _merged(before[switch], after[switch], late)
            yield {**after, **{switch: intent for switch, (_, intent) in last.items()}}

    def _late(self, turns: _Turns, step: int) -> frozenset[str]:
        """Return the flows that a switch still has by the old plan after a step."""
        changing = {flow for flow, turn in turns.changed.items() if turn > step}
        return frozenset(
            changing.union(flow for flow, turn in turns.gone.items() if self._changes + turn > step)
        )


def _merged(before: Intent, after: Intent, late: Mapping[str, Collection[str]]) -> Intent:
    """Return the intent `after` with what the switch needs to know some flows as `before`, by
    job.
    """
    if not late:
        return after
    former, jobs = (
        {part.owner: part for part in intent.parts if part.known} for intent in (before, after)
    )
    always = [part for part in after.parts if not part.known]
    owners = {part.owner for part in always}
    # What is of no job and has gone: profiles, which come before the jobs that need them.
    profiles = [part for part in before.parts if not part.known and part.owner not in owners]
    jobs |= {job: _with_former(former[job], jobs.get(job), flows) for job, flows in late.items()}
    return replace(after, parts=(*always, *profiles, *jobs.values()))


def _with_former(former: Part, part: Part | None, late: Collection[str]) -> Part:
    """Return a job's part with the former entries of some flows; None: the switch has no other flow
    of the job.
    """
    part = Part(former.owner, ()) if part is None else part
    old = {flow.flow: flow for flow in former.known if flow.flow in late}
    known = [old.pop(flow.flow, flow) for flow in part.known]
    rest = list(part.entries[len(known) :])
    if old:
        numbers = {flow.number for flow in old.values()}
        keys = set(map(_key, rest))
        rest += (
            entry
            for entry in former.entries[len(former.known) :]
            if _key(entry) not in keys
            and (entry.table in _OF_CONNECTIONS or _flow_of(entry) in numbers)
        )
    known += old.values()
    return Part(former.owner, (*(flow.entry for flow in known), *rest), tuple(known))


def _key(entry: TableEntry) -> object:
    return entry.table, entry.match, entry.priority


def _flow_of(entry: TableEntry) -> int | None:
    """Return the number of the flow that an entry recognises."""
    if entry.table in _OF_FLOWS:
        return dict(entry.actions[0].arguments)["flow"]
    return None
