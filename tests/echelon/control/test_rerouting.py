"""Flows that take other paths while jobs send: in no state between two plans does a packet circle or fall into a hole.

A walk through the entries of all switches is what the packets do. Switches are brought to what they should hold one
after the other, in every order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, combinations, pairwise

import pytest

from echelon.control.jobs import from_document
from echelon.control.jobstore import ChosenPolicy
from echelon.control.planning import Planned, Planner, PlanRequest
from echelon.control.wiring import Wiring, moved_to
from echelon.fabric.load import FabricSpec, build_fabric
from echelon.fabric.model import Fabric
from echelon.lowering.identity import ShimIdentity
from echelon.lowering.intent import Intent
from echelon.targets.softswitch.capabilities import softswitch
from tests.echelon.control.world import ring
from tests.echelon.service.moving import JOBS, OPPOSITE, TURNED
from tests.echelon.service.moving import fabric as panel
from tests.reference.walk import Packet, Tables, faults, tables_of

OTHERS = ((1, 5), (2, 4), (3, 6))


def subsets(switches: Mapping[str, object]) -> Iterator[frozenset[str]]:
    """Return which switches may be ahead of the others: what every order of them passes through."""
    sets = (combinations(switches, count) for count in range(len(switches) + 1))
    return map(frozenset, chain.from_iterable(sets))


def spec(*chords: tuple[int, int]) -> FabricSpec:
    return FabricSpec.model_validate(panel(*chords))


def moves(*wirings: tuple[tuple[int, int], ...]) -> list[tuple[Planned, Fabric]]:
    """Return the plans of moves from each of these links to the next: each with the links that there are then."""
    file = build_fabric(spec(*wirings[0]))
    jobs = tuple(
        from_document({"number": number, "accepted_at": float(number), "spec": ring(name, *workers), "offsets_s": {}})
        for number, (name, workers) in enumerate(JOBS.items(), start=1)
    )
    planner = Planner(dict.fromkeys(file.switches, softswitch()))

    def plan(fabric: Fabric) -> Planned:
        return planner.plan(PlanRequest(jobs, fabric, ChosenPolicy("echelon")))

    now, out = file, [(plan(file), file)]
    for chords in wirings[1:]:
        wiring = Wiring(now, moved_to(file, now, spec(*chords)))
        assert wiring.then is not None
        out.append((plan(now.without((), wiring.avoided)), now))
        now = wiring.then
        out.append((plan(now), now))
    return out


def packets(planned: Planned, fabric: Fabric) -> Iterator[tuple[Packet, tuple[str, ...]]]:
    """Yield a packet of each flow, and its path."""
    for job in planned.registered:
        identities = job.identities(fabric)
        for flow in planned.plan.by_job[job.name]:
            identity = identities[flow.flow]
            assert isinstance(identity, ShimIdentity)
            yield Packet(identity.job, identity.flow, flow.path[-1]), flow.path


def found(before: Mapping[str, Intent], after: Mapping[str, Intent], last: Planned, fabric: Fabric) -> Iterator[str]:
    """Yield what may befall packets while switches go from one intent to the next, in any order."""
    old, new = ({name: tables_of(intent.entries) for name, intent in all_.items()} for all_ in (before, after))
    for ahead in subsets(old):
        tables: dict[str, Tables] = {name: new[name] if name in ahead else old[name] for name in old}
        for packet, path in packets(last, fabric):
            # It may be anywhere on its former path.
            for at in path[1:-1]:
                yield from faults(tables, fabric, packet, at)


@pytest.mark.parametrize("wirings", [(OPPOSITE, TURNED, OPPOSITE), (OPPOSITE, OTHERS, TURNED)])
def test_no_packet_circles_while_links_move(wirings: tuple[tuple[tuple[int, int], ...], ...]) -> None:
    unordered = set()
    for (before, _), (after, fabric) in pairwise(moves(*wirings)):
        unordered |= set(found(before.intents, after.intents, before, fabric))
        assert after.version == before.version + len(after.steps) + 1
        for one, other in pairwise((before.intents, *after.steps, after.intents)):
            assert set(found(one, other, before, fabric)) == set()
    assert any("circles" in fault for fault in unordered), "nothing can go wrong without an order"
