"""The bytes of captured jobs are those that the kernel counts, for each kind of job."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugins.torch.tests.capture.network import Case, capture, sent_by_job, sent_by_kernel, summary
from tests.needs import needs

pytestmark = [needs("torch", "the laboratory's sandbox", "tc"), pytest.mark.xdist_group("torch")]

MOST_OVERHEAD = (1514 + 66) / 1448
"""Whole frames with a full segment each, and an acknowledgement for each segment that comes the
other way.
"""


@pytest.mark.long
def test_the_kernel_counts_the_bytes_of_the_job_file(tmp_path: Path) -> None:
    paradigms = {"ddp": "data", "fsdp": "fsdp", "pipeline": "pipeline", "moe": "expert"}
    cases = [Case(name, f"{name}.py", iterations=6, skip=2) for name in paradigms]
    capture(cases, tmp_path)
    for case in cases:
        directory = tmp_path / case.name
        assert [each["paradigm"] for each in summary(directory)["paradigms"]] == [
            paradigms[case.name]
        ]
        job, kernel = sent_by_job(directory / "job.yaml"), sent_by_kernel(directory, case)
        assert job.keys() == kernel.keys() == {"h1", "h2"}
        for host, counted in kernel.items():
            assert 1 < counted / job[host] < MOST_OVERHEAD, (case.name, host)
