"""Expert parallelism: against the example plugin at equal load, and in closed form without."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import DocumentError, parse_document
from echelon.model.jobs import build_job
from echelon.model.jobs.analysis import earliest_start_s
from echelon.model.jobs.graph import Job
from echelon.model.jobs.spec import JobSpec
from echelon_example_plugins.mixture_of_experts import mixture_of_experts
from tests.drawing import examples


def job_of(workers: int, **keys: object) -> Job:
    document = {
        "job": "j",
        "parallelism": "expert",
        "workers": [f"h{i}" for i in range(workers)],
        "expert": keys,
    }
    return build_job(parse_document(JobSpec, document, "job"))


def sent(job: Job) -> Counter[tuple[str, str]]:
    out: Counter[tuple[str, str]] = Counter()
    for flow in job.flows:
        out[flow.src, flow.dst] += flow.size_bytes
    return out


def makespan_s(job: Job) -> Fraction:
    start_s = earliest_start_s(job, lambda _: Fraction(0))
    return max(start_s[unit.name] + unit.duration_s for unit in job.computes)


@given(st.integers(2, 5), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=examples(20), deadline=None)
def test_at_equal_load_it_is_the_example_of_the_plugins(
    group: int, groups: int, layers: int
) -> None:
    times = {"attention": "3 ms", "expert": "5 ms"}
    gradient = {"gradient": f"{60 * groups} B"} if groups > 1 else {}
    job = job_of(
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


def test_the_busiest_expert_gets_its_load_and_sets_the_pace() -> None:
    """The first rank gets 300 of 600 bytes at loads 3:1:1:1, returns as many, and computes twice as
    long.
    """
    job = job_of(
        4, group=4, layers=1, attention="10 ms", expert="20 ms", tokens="600 B", load=[3, 1, 1, 1]
    )
    sizes = {flow.name: flow.size_bytes for flow in job.flows}
    assert [sizes[f"dispatch-forward-l1-g1-w2-w{w}"] for w in (1, 3, 4)] == [300, 100, 100]
    assert [sizes[f"combine-forward-l1-g1-w1-w{w}"] for w in (2, 3, 4)] == [300, 300, 300]
    # Backward, gradients of results go where tokens went.
    assert sizes["combine-backward-l1-g1-w2-w1"] == 300
    assert sizes["dispatch-backward-l1-g1-w2-w1"] == 100
    assert makespan_s(job) == 3 * Fraction(10 + 2 * 20, 1000)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"group": 3}, "expert.group"),
        ({"group": 2}, "expert.gradient"),
        ({"load": [1, 1]}, "expert.load"),
        ({"load": [1, 1, 1, 0]}, "expert.load[3]"),
    ],
)
def test_what_is_refused(changes: dict[str, object], path: str) -> None:
    good: dict[str, object] = {
        "group": 4,
        "layers": 1,
        "attention": "1 s",
        "expert": "1 s",
        "tokens": "9 B",
    }
    with pytest.raises(DocumentError) as caught:
        job_of(4, **{**good, **changes})
    assert caught.value.path == path
