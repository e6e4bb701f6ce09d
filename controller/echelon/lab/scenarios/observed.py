"""What was observed of jobs whose workers are programs: the times that the ranks of PyTorch have told."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.allocation import Number


@dataclass(frozen=True, slots=True)
class ObservedOperation:
    """An operation of `torch.distributed` as the rank of one worker saw it. Times are seconds of the run."""

    name: str
    """The kind of the operation, its number in the iteration and the worker, such as `all-reduce-2-h1`."""
    iteration: int
    """Counted from 1."""
    src: str
    """The worker."""
    dst: str
    """The worker of the rank that it sends to, or of the next rank of the group."""
    size_bytes: int
    """The bytes that the rank gave."""
    start: Number
    finish: Number


@dataclass(frozen=True, slots=True)
class ObservedComputing:
    """A time in which the rank of a worker did not wait."""

    name: str
    iteration: int
    worker: str
    start: Number
    finish: Number


@dataclass(frozen=True, slots=True)
class Observed:
    """What the ranks of one job told."""

    operations: tuple[ObservedOperation, ...] = ()
    computing: tuple[ObservedComputing, ...] = ()
