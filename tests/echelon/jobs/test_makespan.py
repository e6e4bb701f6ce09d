"""The makespan of 3D jobs whose flows go first by deadline, under derived arrangement functions and
under others.

Deadlines say when a flow is needed, not how much follows after it, so that going by them does not
always give the shortest iteration: here with derived functions, there with those of the parts
(`docs/jobs.md`, 3D parallelism).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.jobs.graph import EchelonFlow, Job
from echelon.model.jobs.pipelines import one_f_one_b
from echelon.planning.fluid.alone import alone_iteration_s
from tests.echelon.jobs.test_mesh_paradigm import job_of

SHARED_BPS, HOST_BPS = 8_000, 32_000


def two_switches(sides: Sequence[int]) -> Fabric:
    """Return hosts at two switches, host i at switch ``sides[i]``, with a link of 1000 bytes per
    second between.
    """
    cables = [CableLink(LinkEnd("s0", 0), LinkEnd("s1", 0), SHARED_BPS, Fraction(0))]
    cables += [
        CableLink(LinkEnd(f"h{i}", 0), LinkEnd(f"s{side}", i + 1), HOST_BPS, Fraction(0))
        for i, side in enumerate(sides)
    ]
    hosts = {
        f"h{i}": Host(f"h{i}", f"10.0.1.{i + 1}", f"02:00:00:00:01:{i + 1:02x}")
        for i in range(len(sides))
    }
    return Fabric(
        name="two switches",
        hosts=hosts,
        switches={"s0": Switch("s0", 1), "s1": Switch("s1", 2)},
        cables=tuple(cables),
    )


class Mesh3D:
    """Two replicas of a 1F1B pipeline of equal stages, with seconds of computing and bytes."""

    def __init__(
        self, stages: int, batches: int, forward: int, backward: int, activation: int, gradient: int
    ) -> None:
        self._stages, self._batches = stages, batches
        self._forward, self._backward, self._activation = forward, backward, activation
        self.derived = job_of(
            "mesh",
            2 * stages,
            data=2,
            pipeline=stages,
            micro_batches=batches,
            forward=f"{forward} s",
            backward=f"{backward} s",
            activation=f"{activation} B",
            gradient=f"{gradient} B",
        )

    @property
    def of_parts(self) -> Job:
        """The job with the functions of its parts: the schedule's for each pipeline, coflows for
        the all-reduces.
        """
        stages = self._stages
        alone = one_f_one_b(
            [f"h{i}" for i in range(stages)],
            self._batches,
            [Fraction(self._forward)] * stages,
            [self._activation] * (stages - 1),
            [Fraction(self._backward)] * stages,
        )
        found = []
        for replica, function in product((1, 2), alone.echelonflows):
            flows = tuple(f"{name.replace('-m', f'-d{replica}-m')}-t1" for name in function.flows)
            found.append(EchelonFlow(flows[0], flows, function.offsets_s))
        arranged = {name for function in found for name in function.flows}
        for stage in range(1, stages + 1):
            flows = tuple(
                f.name for f in self.derived.flows if f.name.startswith(f"gradient-s{stage}-t1")
            )
            found.append(EchelonFlow(f"sum-{stage}", flows, (Fraction(0),) * len(flows)))
            arranged.update(flows)
        assert arranged == {flow.name for flow in self.derived.flows}
        return replace(self.derived, echelonflows=tuple(found))

    def in_every_order(self, sides: Sequence[int]) -> Iterator[Job]:
        """Yield the job with the flows over each direction of the shared link in every order."""
        names: dict[tuple[int, int], list[str]] = {(0, 1): [], (1, 0): [], (0, 0): [], (1, 1): []}
        for flow in self.derived.flows:
            names[sides[int(flow.src[1:])], sides[int(flow.dst[1:])]].append(flow.name)
        for there, back in product(permutations(names[0, 1]), permutations(names[1, 0])):
            order = (*there, *back, *names[0, 0], *names[1, 1])
            # Deadlines far apart from each other are an order, whenever the flows start.
            offsets_s = tuple(Fraction(10**6 * at) for at in range(len(order)))
            yield replace(self.derived, echelonflows=(EchelonFlow("order", order, offsets_s),))


def test_the_earliest_deadline_first_is_not_always_the_shortest_iteration() -> None:
    """All flows are heads, so that every derivation has the same deadlines; another order is
    shorter.
    """
    mesh, sides = Mesh3D(2, 1, 1, 1, 2000, 2000), [0, 0, 1, 0]
    fabric = two_switches(sides)
    orders = [alone_iteration_s(job, fabric) for job in mesh.in_every_order(sides)]
    assert len(orders) == 4
    assert all(offset_s == 0 for h in mesh.derived.echelonflows for offset_s in h.offsets_s)
    by_deadline_s = alone_iteration_s(mesh.derived, fabric)
    assert by_deadline_s == alone_iteration_s(mesh.of_parts, fabric) == 12
    assert min(orders) == 10


def test_with_two_stages_derived_functions_are_never_worse_than_those_of_the_parts() -> None:
    better = 0
    for sides in ([0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 1, 0], [0, 1, 0, 1]):
        fabric = two_switches(sides)
        for batches, forward, activation, gradient in product(
            (2, 3), (1, 3), (1000, 3000), (1000, 4000)
        ):
            mesh = Mesh3D(2, batches, forward, 1, activation, gradient)
            derived_s, parts_s = (
                alone_iteration_s(job, fabric) for job in (mesh.derived, mesh.of_parts)
            )
            assert derived_s <= parts_s
            better += derived_s < parts_s
    assert better


def test_with_three_stages_either_function_may_be_better() -> None:
    shorter, longer = Mesh3D(3, 3, 3, 1, 4000, 5000), Mesh3D(3, 2, 1, 2, 1000, 4000)
    found = []
    for mesh, sides in ((shorter, [0, 0, 0, 1, 0, 1]), (longer, [0, 1, 1, 0, 1, 0])):
        fabric = two_switches(sides)
        found.append([alone_iteration_s(job, fabric) for job in (mesh.derived, mesh.of_parts)])
    assert found[0][0] < found[0][1]
    assert found[1] == [Fraction(41, 2), Fraction(39, 2)]
