"""Expert parallelism in closed form; tests/examples has it beside the example plugin."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest

from echelon.model.documents import DocumentError, parse_document
from echelon.model.errors import Code
from echelon.model.jobs import build_job
from echelon.model.jobs.analysis import earliest_start_s
from echelon.model.jobs.graph import Job
from echelon.model.jobs.spec import JobSpec
from tests.shared import refused


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
    ("changes", "path", "code"),
    [
        ({"group": 3}, "expert.group", "wrong-length"),
        ({"group": 2}, "expert.gradient", "missing-key"),
        ({"load": [1, 1]}, "expert.load", "wrong-length"),
        ({"load": [1, 1, 1, 0]}, "expert.load[3]", "too-small"),
    ],
)
def test_what_is_refused(changes: dict[str, object], path: str, code: Code) -> None:
    good: dict[str, object] = {
        "group": 4,
        "layers": 1,
        "attention": "1 s",
        "expert": "1 s",
        "tokens": "9 B",
    }
    with refused(code, path, DocumentError):
        job_of(4, **{**good, **changes})
