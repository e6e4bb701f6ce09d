"""A switch forwards while its intent changes: after every single update, in whatever order a batch
is carried out.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from finsy.proto import p4r

from echelon.model.fabric.model import Fabric
from echelon.planning.plan import LEVELS, FlowPlan, Plan, QueuePlan
from echelon.planning.rankings.base import Ranking
from echelon.planning.rankings.deadline import Deadline
from echelon.planning.rankings.fixed import Fixed
from echelon.switches.lowering.identity import Identity, ShimIdentity
from echelon.switches.lowering.lower import Lowering
from echelon.switches.targets.softswitch.capabilities import softswitch
from echelon_lab.endhosts.shim import DataSegment, FlowAddress, ShimFrames

PORT_OF = {"s2": 2, "s3": 3}
JOBS = ("a", "b", "c")
FLOWS = 3
STRICT = tuple(QueuePlan(level=level) for level in range(LEVELS))
NOW_NS = 100 * 10**9
IDENTITIES: dict[str, dict[str, Identity]] = {
    job: {f"f{flow}": ShimIdentity(1 + number, flow) for flow in range(FLOWS)}
    for number, job in enumerate(JOBS)
}


HEAD = Deadline("e", Fraction(0), ())


@dataclass(frozen=True)
class Way:
    port: int
    queue: int


def queue_of(ranking: Ranking, opened_by: Ranking = HEAD) -> int:
    """Return a packet's queue at an iteration that a flow of `opened_by` opens.

    The opening flow is in time; this one is early by how much later its ideal finish is.
    """
    if isinstance(ranking, Fixed) or isinstance(opened_by, Fixed):
        return ranking.queue if isinstance(ranking, Fixed) else queue_of(ranking)
    tardiness_s = opened_by.offset_s - ranking.offset_s
    return min(
        ranking.lowest + sum(t <= tardiness_s for t in ranking.thresholds_s), ranking.highest
    )


def random_plan(random: Random) -> Plan:
    flows = []
    for job in JOBS:
        if random.random() < 0.25:
            continue
        for flow in range(FLOWS):
            if flow and random.random() < 0.5:
                ranking: Ranking = Fixed(random.randrange(1, 7))
            else:
                first = random.randrange(-9, 0)
                thresholds = tuple(Fraction(first + step) for step in range(7))
                # The first flow of a job is its head, which sets the reference time.
                ranking = Deadline("e", Fraction(random.randrange(1, 8) if flow else 0), thresholds)
            flows.append(
                FlowPlan(
                    job, f"f{flow}", ranking, ("h1", "s1", random.choice(("s2", "s3")), "s4", "h2")
                )
            )
    return Plan("test", tuple(flows), STRICT)


def ways(plan: Plan) -> dict[tuple[str, str], Way]:
    return {(f.job, f.flow): Way(PORT_OF[f.path[2]], queue_of(f.ranking)) for f in plan.flows}


def ways_in_part(plan: Plan) -> dict[tuple[str, str], set[Way]]:
    """Return the ways of each flow while only some of a job's flows are known, so that any of them
    may open the iteration.
    """
    return {
        (f.job, f.flow): {
            Way(PORT_OF[f.path[2]], queue_of(f.ranking, other.ranking))
            for other in plan.flows
            if other.job == f.job
        }
        for f in plan.flows
    }


class Prober:
    """A prober that sends a packet of every flow, of a new iteration each time, and records where
    it goes.
    """

    def __init__(self, rig: Any, fabric: Fabric) -> None:
        self._device = rig.device
        self._epoch = 0
        macs = fabric.hosts["h1"].mac, fabric.hosts["h2"].mac
        self._addresses = {
            (job, f"f{flow}"): FlowAddress(*macs, "10.0.0.1", "10.0.0.2", 0xC001, 1 + number, flow)
            for number, job in enumerate(JOBS)
            for flow in range(FLOWS)
        }

    def probe(self) -> dict[tuple[str, str], Way]:
        self._epoch = (self._epoch + 1) % 256
        found = {}
        for key, address in self._addresses.items():
            frame = ShimFrames(address, self._epoch, 200).data(DataSegment(200, 200))
            sent = self._device.switch.process(1, frame, NOW_NS)
            assert len(sent) == 1, f"a packet of {key} was dropped"
            port, data = sent[0]
            found[key] = Way(port, data[15] >> 5)
        return found


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.wide) for seed in (1, 2))]
)
async def test_no_packet_is_dropped_or_misrouted_while_plans_change(
    rig: Any, diamond_fabric: Fabric, seed: int
) -> None:
    random = Random(seed)
    plans = [random_plan(random) for _ in range(8)]
    lowering = Lowering(diamond_fabric, dict.fromkeys(diamond_fabric.switches, softswitch()))
    prober = Prober(rig, diamond_fabric)
    write_all = rig.device.write_all
    allowed: dict[tuple[str, str], set[Way]] = {}
    probes = 0
    wrong: list[str] = []
    """The errors found; they are raised at the end, because in the server's thread they would
    refuse an update.
    """

    def one_by_one(request: Any) -> None:
        nonlocal probes
        updates = list(request.updates)
        random.shuffle(updates)
        for update in updates:
            single = p4r.WriteRequest()
            single.CopyFrom(request.header)
            single.updates.add().CopyFrom(update)
            write_all(single)
            if allowed:
                probes += 1
                for key, way in prober.probe().items():
                    if way not in allowed[key]:
                        wrong.append(f"{key}: {way} is none of {allowed[key]} after {update}")

    async with rig.session() as session:
        first = lowering.lower(plans[0], IDENTITIES, version=1)["s1"]
        await session.reconcile(first)
        rig.device.write_all = one_by_one
        for version, (before, after) in enumerate(pairwise(plans), start=2):
            old, new = ways(before), ways(after)
            in_part = {**ways_in_part(before), **ways_in_part(after)}
            default = {Way(port, after.best_effort_queue) for port in PORT_OF.values()}
            allowed.clear()
            for key in prober.probe():
                known = [at[key] for at in (old, new) if key in at]
                # A flow in both: its old or new port, its old or new queue.
                allowed[key] = {Way(a.port, b.queue) for a in known for b in known}
                if len(known) < 2:
                    # In one of them: as there, also where others of its job are not known (yet); or
                    # it is not known itself, which is best effort over any of the equal paths.
                    allowed[key] |= default | in_part.get(key, set())
            intent = lowering.lower(after, IDENTITIES, version=version)["s1"]
            (await session.update(intent)).require()
            lowering.numbering.settle("s1", version)
            assert wrong == []
            at_rest = prober.probe()
            assert {key: way for key, way in at_rest.items() if key in new} == new
            assert {way for key, way in at_rest.items() if key not in new} <= default
    assert probes > 100
