"""Registered jobs: what is accepted, what is kept of it on disk, and what of it the policies see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from echelon.documents import DocumentError, parse_document, path_text, suggestion
from echelon.fabric.model import Fabric
from echelon.jobs import build_job
from echelon.jobs.analysis import with_offsets
from echelon.jobs.graph import Job
from echelon.jobs.spec import JobSpec
from echelon.lowering.identity import Identity, identities_of
from echelon.service.errors import RefusedError

LAST_NUMBER = 0xFFFF
"""Of the 16 bits that the shim header has for a job; 0 is nobody's."""


@dataclass(frozen=True)
class RegisteredJob:
    """A job that was accepted. `document` is what was sent, as it was sent."""

    name: str
    number: int
    """In the shim header of its packets."""
    accepted_at: float
    """Seconds since the epoch."""
    document: Mapping[str, Any]
    spec: JobSpec
    offsets_s: Mapping[str, tuple[Fraction, ...]]
    """Profiled arrangement functions that were reported, by EchelonFlow; they replace those of the spec."""
    observed_s: Mapping[str, tuple[Fraction, ...]] = field(default_factory=dict)
    """Likewise, what switches saw, where the service goes by that; not kept on disk: they will see it again."""

    @cached_property
    def reported(self) -> Job:
        """What the spec implies, with what was reported. Raises `DocumentError` where that does not fit. Takes time for
        a job of many flows."""
        return with_offsets(build_job(self.spec), self.offsets_s)

    @cached_property
    def job(self) -> Job:
        """What policies see. Raises as `reported`."""
        return with_offsets(self.reported, self.observed_s)

    @property
    def is_numbered_by_sender(self) -> bool:
        """Whether packets say of which iteration they are (shim), the same to all switches."""
        return self.spec.recognition.by == "shim"

    def identities(self, fabric: Fabric) -> Mapping[str, Identity]:
        """How switches recognise the packets of its flows, by flow."""
        return identities_of(self.job, self.number, self.spec, fabric)

    def to_document(self) -> dict[str, Any]:
        """What the store keeps; exact."""
        return {
            "number": self.number,
            "accepted_at": self.accepted_at,
            "spec": dict(self.document),
            "offsets_s": {name: [str(offset) for offset in offsets] for name, offsets in self.offsets_s.items()},
        }

    def with_reported(self, echelonflow: str, offsets_s: tuple[Fraction, ...]) -> RegisteredJob:
        """The same job with another arrangement function, and nothing seen of it yet. Raises `DocumentError` if it does
        not fit."""
        changed = replace(self, offsets_s={**self.offsets_s, echelonflow: offsets_s}, observed_s={})
        changed.build()
        return changed

    def build(self) -> None:
        """Make `job` now, in whatever thread this is. Raises as `reported`."""
        _ = self.job

    def is_expected_as(self, other: RegisteredJob) -> bool:
        """Whether what switches see of the one can be held against the other's spec and reported distances."""
        return self.spec is other.spec and self.offsets_s is other.offsets_s


def parse_job(document: Mapping[str, Any]) -> JobSpec:
    """Raises `DocumentError`."""
    return parse_document(JobSpec, dict(document), "job")


def from_document(document: Mapping[str, Any]) -> RegisteredJob:
    """What `to_document` made. Raises `DocumentError` for a spec that this version does not understand."""
    spec = parse_job(document["spec"])
    return RegisteredJob(
        name=spec.job,
        number=int(document["number"]),
        accepted_at=float(document["accepted_at"]),
        document=document["spec"],
        spec=spec,
        offsets_s={
            name: tuple(Fraction(offset) for offset in offsets) for name, offsets in document["offsets_s"].items()
        },
    )


def check_hosts(spec: JobSpec, fabric: Fabric) -> None:
    """Raises `DocumentError` for a host of the job that the fabric does not have."""
    for host, at in spec.hosts.items():
        if host not in fabric.hosts:
            raise DocumentError(
                "job",
                path_text(at),
                f"'{host}' is no host of fabric '{fabric.name}' ({suggestion(host, fabric.hosts)})",
            )


def check_size(spec: JobSpec, flows_per_job: int) -> None:
    """Before the graph is built. Raises `RefusedError`."""
    if spec.flow_count > flows_per_job:
        raise RefusedError(
            f"the job has {spec.flow_count} flows, this service takes at most {flows_per_job} a job "
            "(use fewer workers or micro-batches, or raise limits.flows_per_job)",
            "workers",
        )


def free_number(taken: Iterable[int], last: int) -> int:
    """The number after `last` that is not `taken`, round and round, so that a number comes back as late as possible:
    packets of a job that was removed may still be under way. Raises `RefusedError` when none is left."""
    used = set(taken)
    for step in range(LAST_NUMBER):
        number = (last + step) % LAST_NUMBER + 1
        if number not in used:
            return number
    raise RefusedError(f"all {LAST_NUMBER} job numbers are taken (remove jobs)")
