"""Jobs for the tests."""

from __future__ import annotations

from echelon.model.jobs.spec import JobSpec, make_job_spec


def mesh(hosts: int = 4, **keys: object) -> JobSpec:
    """Return a job of so many replicas."""
    section: dict[str, object] = {
        "data": hosts,
        "micro_batches": 2,
        "layers": 4,
        "forward": "4 ms",
        "backward": "8 ms",
        "activation": "2 MB",
        "gradient": "40 MB",
    }
    return make_job_spec(
        job="gpt",
        parallelism="mesh",
        workers=[f"h{number}" for number in range(1, hosts + 1)],
        mesh={**section, **keys},
    )


def expert(hosts: int = 4, **keys: object) -> JobSpec:
    """Return a job whose experts are on all hosts."""
    section: dict[str, object] = {
        "group": hosts,
        "layers": 1,
        "attention": "1 ms",
        "expert": "2 ms",
        "tokens": "8 MB",
        "gradient": "4 MB",
    }
    return make_job_spec(
        job="moe",
        parallelism="expert",
        workers=[f"h{number}" for number in range(1, hosts + 1)],
        expert={**section, **keys},
    )
