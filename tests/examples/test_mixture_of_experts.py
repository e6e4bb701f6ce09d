"""The iteration graph of a mixture of experts against closed forms and an independent account of
who waits for whom.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.jobs.analysis import connections, earliest_start_s, topological_order
from echelon.model.jobs.graph import Job
from echelon_example_plugins.mixture_of_experts import MixtureOfExperts, mixture_of_experts
from tests.echelon.jobs.test_expert import job_of as expert_job
from tests.echelon.jobs.test_expert import makespan_s, sent

SHAPES = st.tuples(st.integers(2, 4), st.integers(1, 3), st.integers(1, 3))
"""Experts, groups, layers."""


def job_of(experts: int, groups: int, layers: int, tokens: int = 1000, gradient: int = 600) -> Job:
    workers = [f"h{n}" for n in range(experts * groups)]
    return Job(
        "j",
        *mixture_of_experts(workers, experts, layers, Fraction(1), Fraction(2), tokens, gradient),
    )


@given(SHAPES)
@settings(max_examples=25, deadline=None)
def test_what_is_known_without_building_the_graph(shape: tuple[int, int, int]) -> None:
    experts, groups, layers = shape
    job = job_of(*shape)
    keys = {
        "experts": experts,
        "layers": layers,
        "attention": "1 s",
        "expert": "2 s",
        "tokens": "1000 B",
    }
    section = MixtureOfExperts.model_validate({**keys, "gradient": "600 B"})
    assert section.flow_count(experts * groups) == len(job.flows)
    carried = [sum(flow.size_bytes for flow in flows) for flows in connections(job).values()]
    bound = section.connection_bytes(experts * groups)
    # Up to one byte for each chunk of the connection.
    assert max(carried) <= bound <= max(carried) + len(job.flows)


@given(SHAPES)
@settings(max_examples=25, deadline=None)
def test_an_iteration_takes_what_its_steps_take(shape: tuple[int, int, int]) -> None:
    """Each of the 4L exchanges takes (E - 1) t, the ring 2 (G - 1) t, and computing three times the
    forward pass, if every flow takes t and no flows share a link."""
    experts, groups, layers = shape
    job = job_of(*shape)
    t = Fraction(7)
    start = earliest_start_s(job, lambda _flow: t)
    lasts = {unit.name: unit.duration_s for unit in job.computes} | {
        flow.name: t for flow in job.flows
    }
    duration = max(start[name] + lasts[name] for name in topological_order(job))
    assert duration == layers * 3 * (1 + 2) + 4 * layers * (experts - 1) * t + 2 * (groups - 1) * t


@given(SHAPES)
@settings(max_examples=25, deadline=None)
def test_tokens_stay_in_their_group_and_gradients_between_replicas(
    shape: tuple[int, int, int],
) -> None:
    experts, groups, layers = shape
    job = job_of(*shape, tokens=experts * 10, gradient=groups * 4)
    sent: Counter[tuple[str, bool]] = Counter()
    for flow in job.flows:
        src, dst = int(flow.src[1:]), int(flow.dst[1:])
        exchanged = not flow.name.startswith("allreduce")
        if exchanged:
            assert src // experts == dst // experts
        else:
            assert src % experts == dst % experts
        sent[flow.src, exchanged] += flow.size_bytes
    for worker in job.workers:
        assert sent[worker, True] == 4 * layers * (experts - 1) * 10
        assert sent[worker, False] == 2 * (groups - 1) * 4


@given(SHAPES)
@settings(max_examples=25, deadline=None)
def test_every_flow_is_in_one_coflow_and_nobody_waits_for_another_group(
    shape: tuple[int, int, int],
) -> None:
    experts, groups, _ = shape
    job = job_of(*shape)
    members = [name for echelonflow in job.echelonflows for name in echelonflow.flows]
    assert sorted(members) == sorted(flow.name for flow in job.flows)
    assert all(echelonflow.is_coflow for echelonflow in job.echelonflows)
    where = {unit.name: {unit.worker} for unit in job.computes} | {
        f.name: {f.src, f.dst} for f in job.flows
    }
    group_of = {f"h{n}": n // experts for n in range(experts * groups)}
    for step in (
        *job.computes,
        *(flow for flow in job.flows if not flow.name.startswith("allreduce")),
    ):
        here = {group_of[host] for host in where[step.name]}
        assert len(here) == 1
        assert all({group_of[host] for host in where[before]} == here for before in step.after)


@given(st.integers(2, 5), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_at_equal_load_it_is_the_paradigm_of_the_core(group: int, groups: int, layers: int) -> None:
    times = {"attention": "3 ms", "expert": "5 ms"}
    gradient = {"gradient": f"{60 * groups} B"} if groups > 1 else {}
    job = expert_job(
        group * groups, group=group, layers=layers, tokens=f"{60 * group} B", **times, **gradient
    )
    hosts = [f"h{i}" for i in range(group * groups)]
    other = Job(
        "p",
        *mixture_of_experts(
            hosts, group, layers, Fraction(3, 1000), Fraction(5, 1000), 60 * group, 60 * groups
        ),
    )
    assert sent(job) == sent(other)
    assert makespan_s(job) == makespan_s(other)
    # Between the last exchange forward and the first backward nothing is computed: they are one
    # coflow here.
    assert len(job.echelonflows) == len(other.echelonflows) - groups
    assert all(h.is_coflow for h in job.echelonflows)
