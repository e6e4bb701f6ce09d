"""Jobs as Slurm describes them, and what has to change, without Slurm."""

from __future__ import annotations

from typing import Any

import pytest

from echelon_site.slurm.differences import REFUSED, Difference, difference
from echelon_site.slurm.slurm_job import SlurmJob, allocated_jobs, is_from_slurm

ENVIRONMENT = {
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_UID": "1000",
    "SLURM_JOB_NODELIST": "gpu-[001-002]",
    "SLURM_JOB_COMMENT": "echelon:bert.yaml",
    "SLURM_JOB_WORK_DIR": "/home/ada",
}


def listed(**changes: Any) -> dict[str, Any]:
    """Return a job as `squeue --json` lists it."""
    return {
        "job_id": 12,
        "job_state": "RUNNING",
        "user_id": 1000,
        "nodes": "gpu-[001-002]",
        "comment": "echelon:bert.yaml",
        "current_working_directory": "/home/ada",
        "admin_comment": "",
        **changes,
    }


def job(number: int = 12, note: str = "") -> SlurmJob:
    return SlurmJob(number, 1000, "gpu-[001-002]", "echelon:bert.yaml", "/home/ada", note)


def test_hooks_and_the_list_describe_a_job_alike() -> None:
    hooked = SlurmJob.from_environment(ENVIRONMENT)
    assert list(allocated_jobs({"jobs": [listed()]})) == [hooked]
    assert hooked == job()
    assert hooked.name == "slurm-12"
    assert is_from_slurm(hooked.name)


def test_outside_of_a_hook() -> None:
    with pytest.raises(ValueError, match=r"^SLURM_JOB_ID is not set \(name deploy/slurm/hook.sh"):
        SlurmJob.from_environment({})


@pytest.mark.parametrize("name", ["slurm-", "slurm-12a", "myslurm-12", "bert", "slurm-1-2"])
def test_jobs_of_others(name: str) -> None:
    assert not is_from_slurm(name)


@pytest.mark.parametrize(
    ("states", "is_allocated"),
    [
        # Slurm 22.05.
        ("RUNNING", True),
        ("CONFIGURING", True),
        ("SUSPENDED", True),
        ("PENDING", False),
        ("COMPLETING", False),
        ("CANCELLED", False),
        ("NODE_FAIL", False),
        # Slurm 23.11 and later.
        (["RUNNING"], True),
        (["RUNNING", "CONFIGURING"], True),
        (["CANCELLED", "COMPLETING"], False),
        (["PENDING", "REQUEUED"], False),
    ],
)
def test_states(states: str | list[str], is_allocated: bool) -> None:
    jobs = list(allocated_jobs({"jobs": [listed(job_state=states)]}))
    assert len(jobs) == is_allocated


@pytest.mark.parametrize("comment", ["", "mine", "Echelon:x", " echelon:bert.yaml", "x\nechelon:y"])
def test_other_comments(comment: str) -> None:
    assert not list(allocated_jobs({"jobs": [listed(comment=comment)]}))


def test_nothing_has_to_change() -> None:
    registered = {"slurm-12": ["h1", "h2", "server"]}
    assert difference(registered, {job(): ["h1", "h2"]}) == Difference((), ())


def test_jobs_that_ended_and_that_are_missing() -> None:
    changes = difference({"slurm-3": ["h1"]}, {job(): ["h1", "h2"]})
    assert changes == Difference(("slurm-3",), (job(),))


def test_a_second_start_on_other_nodes() -> None:
    changes = difference({"slurm-12": ["h1", "h2"]}, {job(): ["h1", "h3"]})
    assert changes == Difference((), (job(),))


def test_a_refused_job_is_not_tried_again() -> None:
    refused = job(note=f"{REFUSED}bert.yaml: ...")
    assert difference({}, {refused: ["h1", "h2"]}) == Difference((), ())
