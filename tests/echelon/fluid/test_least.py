"""The least time of an iteration: no policy beats it, on any paths, and its parts against brute
force.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain, combinations

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.builders import (
    clos,
    dragonfly,
    dumbbell,
    fat_tree,
    leaf_spine,
    line,
    multi_rail,
    rail_optimised,
    torus,
)
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import ComputeUnit, Flow, Job
from echelon.planning.fluid import run_alone, simulate
from echelon.planning.fluid.least import jackson, least_iterations_s, parts
from echelon.planning.plan import PlanError
from echelon.planning.policies import make_policy
from echelon.planning.policies.registry import own_policy_names
from echelon.planning.windows import Windows
from echelon_lab.scenarios.results import alone_iterations_s
from echelon_lab.scenarios.scenario import load_scenario
from tests.drawing import examples
from tests.echelon.fluid.test_alone import any_job, fabrics
from tests.faults import coded

RATE = 8_000_000
FABRICS = [
    build_fabric(spec)
    for spec in (
        torus((3, 3), rate_bps=RATE),
        torus((4, 2), rate_bps=RATE),
        dragonfly(3, 2, 2, rate_bps=RATE),
        leaf_spine(2, 2, 4, 4, rate_bps=RATE),
        fat_tree(4, rate_bps=RATE),
        clos(2, 2, 2, 2, 2, rate_bps=RATE),
        rail_optimised(4, 2, 2, rate_bps=RATE),
        dumbbell(4, RATE),
        line(4, RATE),
        multi_rail(4, 2, 2, rate_bps=RATE),
    )
]


@st.composite
def situations(draw: st.DrawFn) -> tuple[Fabric, Sequence[Job]]:
    """Draw a fabric and up to three jobs on its hosts, which they may share."""
    fabric = replace(
        draw(st.sampled_from(FABRICS)), paths=draw(st.sampled_from(["kept", "hash", "valiant"]))
    )
    jobs = []
    for number in range(draw(st.integers(1, 3))):
        job = draw(any_job())
        at = dict(zip(job.workers, draw(st.permutations(sorted(fabric.hosts))), strict=False))
        computes = tuple(
            replace(c, worker=at[c.worker], duration_s=c.duration_s / 1000) for c in job.computes
        )
        flows = tuple(replace(f, src=at[f.src], dst=at[f.dst]) for f in job.flows)
        held = tuple(
            replace(h, offsets_s=tuple(o / 1000 for o in h.offsets_s)) for h in job.echelonflows
        )
        jobs.append(
            replace(
                job, name=f"j{number}", computes=computes, flows=flows, echelonflows=held, start_s=0
            )
        )
    return fabric, [job for job in jobs if any(f.size_bytes for f in job.flows)]


@settings(max_examples=examples(60), deadline=None)
@given(
    drawn=situations(),
    name=st.sampled_from(own_policy_names()),
    packet_bytes=st.sampled_from([None, 100, 1250]),
    delay_s=st.sampled_from([Fraction(1, 10**6), Fraction(1, 100)]),
)
def test_no_policy_beats_it(
    drawn: tuple[Fabric, Sequence[Job]], name: str, packet_bytes: int | None, delay_s: Fraction
) -> None:
    fabric, jobs = drawn
    fabric = replace(
        fabric, cables=tuple(replace(cable, delay_s=delay_s) for cable in fabric.cables)
    )
    windows = None
    if packet_bytes is not None:
        windows = Windows(packet_bytes, None, None, passes=True, streams=True)
    least_s = least_iterations_s(jobs, fabric, packet_bytes)
    run = simulate(jobs, fabric, make_policy(name), 3, windows=windows)
    for job in jobs:
        for time_s in run.iteration_times_s(job.name):
            assert time_s >= float(least_s[job.name]) * (1 - 1e-9)


@settings(max_examples=examples(150), deadline=None)
@given(job=any_job(), fabric=fabrics)
def test_the_job_by_itself_takes_no_less_in_exact_arithmetic(job: Job, fabric: Fabric) -> None:
    record = run_alone(job, fabric)
    assert record.finish is not None
    assert least_iterations_s([job], fabric)["j"] <= record.finish


TASKS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 6), st.integers(0, 9)), min_size=1, max_size=7
)


@settings(max_examples=examples(300))
@given(tasks=TASKS)
def test_jacksons_schedule_ends_at_the_largest_bound_of_a_set(
    tasks: list[tuple[int, int, int]],
) -> None:
    sets = chain.from_iterable(combinations(tasks, size) for size in range(1, len(tasks) + 1))
    bounds = [
        min(h for h, _, _ in of) + sum(w for _, w, _ in of) + min(t for _, _, t in of)
        for of in sets
    ]
    assert jackson(tasks) == max(bounds)


@settings(max_examples=examples(100))
@given(job=any_job())
def test_parts_are_between_steps_that_are_comparable_to_all(job: Job) -> None:
    graph = networkx.DiGraph()
    for step in (*job.computes, *job.flows):
        graph.add_node(step.name)
        graph.add_edges_from((other, step.name) for other in step.after)
    order = list(networkx.topological_sort(graph))
    before = {name: list(graph.predecessors(name)) for name in order}
    behind = {name: list(graph.successors(name)) for name in order}
    found = list(parts(order, before, behind))
    assert [name for part in found for name in part] == order
    reach = {
        name: networkx.ancestors(graph, name) | networkx.descendants(graph, name) for name in order
    }
    comparable = {name for name in order if len(reach[name]) == len(order) - 1}
    assert {part[-1] for part in found} - {order[-1]} == comparable - {order[-1]}


def job_of(*flows: Flow) -> Job:
    return Job("j", (ComputeUnit("c", flows[0].src, Fraction(1)),), flows, ())


def test_what_cuts_force() -> None:
    """Links carry 1 MB/s.

    Two flows of a host take turns, and those of two hosts share the only link between.
    """
    fabric = build_fabric(dumbbell(2, RATE, 4 * RATE))
    incast = job_of(Flow("f", "a1", "b1", 10**6, ("c",)), Flow("g", "a2", "b2", 10**6, ("c",)))
    assert least_iterations_s([incast], fabric)["j"] == 3
    # Four hosts of a leaf send 4 MB/s together, its two uplinks 1 MB/s; each carries half of it.
    fabric = build_fabric(leaf_spine(2, 2, 4, 4, rate_bps=RATE))
    across = job_of(*(Flow(f"f{n}", f"h{n}", f"h{n + 4}", 10**6, ("c",)) for n in (1, 2, 3, 4)))
    assert least_iterations_s([across], fabric)["j"] == 5
    assert least_iterations_s([job_of(across.flows[0])], fabric)["j"] == 3, (
        "one path at half of the rate"
    )
    tree = Flow("t", "h1", "h1", 10**6, ("c",), among=("h1", "h2", "h5", "h1"))
    assert least_iterations_s([job_of(tree)], fabric)["j"] == 3


def test_a_pipeline_whose_first_half_ends_before_its_second() -> None:
    """Its sixteen activations share one uplink; the times are those in the head of the file."""
    expected_s = {"gpipe": Fraction("1.58"), "data1": Fraction("0.92"), "data2": Fraction("1.08")}
    scenario = load_scenario("topologies/scenarios/shared_link.yaml")
    assert least_iterations_s(scenario.jobs, scenario.fabric) == expected_s
    # Packets of 1250 B take a little longer: they pass a link behind the slowest, once for each
    # flow that another step waits for.
    for job, least_s in alone_iterations_s(scenario).items():
        assert expected_s[job] <= least_s < expected_s[job] + Fraction(1, 1000)


def test_a_fabric_that_was_seen_leaves_nothing_to_the_collector() -> None:
    """A service asks at each dry run, and collects rings of objects late."""
    fabric = build_fabric(dumbbell(2, RATE, 4 * RATE))
    job = job_of(Flow("f", "a1", "b1", 10**6, ("c",)))
    least_iterations_s([job], fabric)
    gc.collect()
    gc.disable()
    try:
        least_iterations_s([job], fabric)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_host_that_cannot_be_reached() -> None:
    fabric = build_fabric(line(2)).without([("s1", "s2")])
    with pytest.raises(PlanError, check=coded("no-route", "'h1'", "'h2'", job="j")):
        least_iterations_s([job_of(Flow("f", "h1", "h2", 1))], fabric)
    with pytest.raises(PlanError, check=coded("unknown-node", "'h3'", job="j")):
        least_iterations_s([job_of(Flow("f", "h1", "h3", 1))], fabric)
    with pytest.raises(PlanError, check=coded("no-route", "'h2'", job="j")):
        least_iterations_s(
            [job_of(Flow("f", "h1", "h2", 1))], build_fabric(line(2)).without([("h2", "s2")])
        )
