"""What a training job does in one iteration: compute units, the flows between them, and the EchelonFlows they form.

Terms follow EchelonFlow (Pan et al., HotNets '22, section 3): an EchelonFlow is a set of flows whose *ideal finish
times* are related by an arrangement function, given here as offsets ``d_j - r`` from the reference time ``r``, the
actual start of its head flow in an iteration.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

FlowKey = tuple[str, str]
"""A flow of a job: (job, flow)."""


@dataclass(frozen=True, slots=True)
class ComputeUnit:
    """Work of one worker that nothing interrupts."""

    name: str
    """Unique among the compute units and flows of the job."""
    worker: str
    """The host that does it."""
    duration_s: Fraction
    after: tuple[str, ...] = ()
    """Names of the compute units and flows that must be finished before it starts. A worker does one unit at a time:
    the order of its units is part of these dependencies."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Bytes from one worker to another; it starts when all of `after` is finished."""

    name: str
    src: str
    dst: str
    size_bytes: int
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EchelonFlow:
    """Flows of one iteration related by an arrangement function.

    `flows` are flow names in ascending order of ideal finish time; the first is the head flow. `offsets_s[j]` is the
    ideal finish time of `flows[j]` relative to the reference time. All offsets equal: a coflow.
    """

    name: str
    flows: tuple[str, ...]
    offsets_s: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if len(self.flows) != len(self.offsets_s) or not self.flows:
            raise ValueError(f"EchelonFlow {self.name}: {len(self.flows)} flows but {len(self.offsets_s)} offsets")
        if any(a > b for a, b in zip(self.offsets_s, self.offsets_s[1:], strict=False)):
            raise ValueError(f"EchelonFlow {self.name}: offsets must not decrease")

    @property
    def is_coflow(self) -> bool:
        return self.offsets_s[0] == self.offsets_s[-1]


@dataclass(frozen=True, slots=True)
class Job:
    """A training job: the same iteration graph again and again, the next iteration when all of this one is finished."""

    name: str
    computes: tuple[ComputeUnit, ...]
    flows: tuple[Flow, ...]
    echelonflows: tuple[EchelonFlow, ...]
    start_s: Fraction = Fraction(0)
    weight: Fraction = Fraction(1)
    """Multiplies the job's normalised tardiness when it is compared with other jobs'."""

    @property
    def workers(self) -> tuple[str, ...]:
        """Hosts of the job, in order of first mention."""
        names = [c.worker for c in self.computes] + [h for f in self.flows for h in (f.src, f.dst)]
        return tuple(dict.fromkeys(names))
