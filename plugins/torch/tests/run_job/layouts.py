"""Job files for tests of run-job, as their mappings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from echelon.model.jobs.spec import make_job_spec
from echelon_torch.run_job.communicators import JobLayout, job_layout


def layout(**keys: object) -> JobLayout:
    """Return the layout of the job with these keys."""
    return job_layout(make_job_spec(job="gpt", **keys))


def hosts(count: int) -> list[str]:
    """Return the names of so many hosts."""
    return [f"h{number + 1}" for number in range(count)]


def mesh(workers: int, per_worker: int = 1, **keys: object) -> dict[str, Any]:
    """Return a mesh of two replicas of two stages, whose layers two ranks share."""
    section = {
        "data": 2,
        "pipeline": 2,
        "tensor": 2,
        "ranks_per_worker": per_worker,
        "micro_batches": 1,
        "forward": "10 ms",
        "backward": "20 ms",
        "activation": "80 kB",
        "gradient": "80 kB",
    }
    return {
        "parallelism": "mesh",
        "workers": hosts(workers),
        "mesh": section | keys,
    }


def graph(workers: Sequence[str], *nodes: dict[str, Any], **keys: object) -> dict[str, Any]:
    """Return a free graph of these nodes."""
    return {"parallelism": "graph", "workers": list(workers), "graph": {"nodes": nodes, **keys}}


def collective(name: str, group: str | list[int], kind: str = "all-reduce") -> dict[str, Any]:
    """Return a collective of a free graph."""
    return {"name": name, "collective": kind, "group": group, "bytes": "1 MB"}
