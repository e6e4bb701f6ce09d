"""The variables with which NCCL marks the packets of a job as the plan says.

NCCL 2.30 takes NCCL_IB_TC before a communicator's own traffic class (`ncclConfig_t.trafficClass`),
and torchcomms since August 2026 (pull request 3879) after it. So that both do the same, only one is
set: NCCL_IB_TC for one class, or ECHELON_TRAFFIC_CLASSES, from which `echelon_torch` sets those of
communicators, for several. The other one is taken away. Both libraries take NCCL_IB_SL before the
traffic class, which NCCL would otherwise also use as the service level; that has only four bits.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from echelon.controller.resources.plan import ClassesResource

CLASSES_VARIABLE = "ECHELON_TRAFFIC_CLASSES"
"""The variable with the traffic class of each EchelonFlow, for programs that set it themselves."""


@dataclass(frozen=True, slots=True)
class NcclEnvironment:
    """The variables that the environment of a job's program needs, and those it must not have."""

    title: str
    """The job, its policy and its class, in one line."""
    variables: dict[str, str]
    unset: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the lines that a shell evaluates."""
        yield f"# {self.title}"
        for note in self.notes:
            yield f"# {note}"
        for name, value in self.variables.items():
            yield f"export {name}={shlex.quote(value)}"
        for name in self.unset:
            yield f"unset {name}"

    def applied_to(self, environment: dict[str, str]) -> dict[str, str]:
        """Return an environment with the variables, and without those that must not be there."""
        changed = {**environment, **self.variables}
        for name in self.unset:
            changed.pop(name, None)
        return changed


def nccl_environment(job: ClassesResource) -> NcclEnvironment:
    """Return the variables for the classes of a job. Raise ValueError if no class lasts."""
    lasting = [group for group in job.classes if group.queue is not None]
    if not lasting:
        raise ValueError(
            f"policy {job.policy} ranks the flows of job '{job.job}' packet by packet, and NCCL"
            " marks all packets of a communicator alike (let switches recognise its queue pairs,"
            " or take a policy with classes: echelon policy set classes)"
        )
    title = f"job {job.job}, policy {job.policy}"
    marks = {(group.queue, group.dscp, group.traffic_class) for group in job.classes}
    if len(marks) == 1:
        ((queue, dscp, byte),) = marks
        return NcclEnvironment(
            f"{title}: queue {queue}, DSCP {dscp}",
            {"NCCL_IB_TC": str(byte), "NCCL_IB_SL": str(queue)},
            (CLASSES_VARIABLE,),
        )
    notes = ["start a PyTorch program by `echelon run-job`, which gives each group its class; else"]
    notes.append("set ncclConfig_t.trafficClass of each communicator, or in PyTorch give its group")
    notes.append("pg_options=echelon_torch.nccl_options(NAME), which sets config.traffic_class")
    for group in job.classes:
        setting = f"traffic class {group.traffic_class}"
        if group.queue is None:
            setting = "ranked packet by packet"
        notes.append(f"{group.echelonflow}: {setting}")
    settings = [f"{group.echelonflow}={group.traffic_class}" for group in lasting]
    return NcclEnvironment(
        f"{title}: a traffic class for each process group",
        {CLASSES_VARIABLE: ",".join(settings), "NCCL_IB_SL": "0"},
        ("NCCL_IB_TC",),
        tuple(notes),
    )
