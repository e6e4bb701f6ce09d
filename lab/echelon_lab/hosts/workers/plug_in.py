"""Workers of jobs that are not emulated: a plug-in of the group `echelon.workers` runs them.

    [project.entry-points."echelon.workers"]
    program = "my_package.workers:ProgramWorkers"     # called as `MakeWorkers`

The entry `program` computes the jobs that a scenario has `commands` for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, Self, cast

from echelon.model.errors import RunError
from echelon.model.extras import plug_in
from echelon.planning.execution import Completion, JobRecord
from echelon_lab.hosts.backends.base import HostFabric
from echelon_lab.hosts.loop import RealTimeLoop
from echelon_lab.scenarios.results import Observed
from echelon_lab.scenarios.scenario import Scenario

GROUP = "echelon.workers"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment in which workers run."""

    scenario: Scenario
    hosts: HostFabric
    url: str
    """The service's API."""
    directory: Path
    """A place for logs and sockets."""
    loop: RealTimeLoop
    completion: Completion
    """The counter of finished iterations, which ends the run."""
    on_iteration: Callable[[str, int], None]
    """Called with a job and its iteration when all its workers have ended it."""
    on_ready: Callable[[], None]
    """Called once, when all workers wait to begin."""
    on_step: Callable[[], None]
    """Called whenever a worker has told something after that."""


class OtherWorkers(Protocol):
    """The workers of all jobs that are not emulated.

    A context manager: none of their processes outlives it.
    """

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def watched(self) -> AbstractContextManager[None]:
        """Watch them: a `RunError` comes out of the loop if one ends before it is stopped."""

    def begin(self, origin_ns: int) -> None:
        """Tell all workers when their jobs begin. `origin_ns` is time 0 of the run."""

    def stop(self) -> None:
        """Ask all workers to end."""

    def last_words(self, job: str) -> str:
        """Return the last words of a job's workers."""

    @property
    def missing(self) -> Sequence[str]:
        """Jobs whose workers do not all wait to begin."""

    @property
    def records(self) -> Mapping[str, JobRecord[Fraction]]:
        """The finished iterations of each job so far, in seconds from the beginning of the run."""

    @property
    def observed(self) -> Mapping[str, Observed]:
        """Return the reports of the workers of each job on its finished iterations."""

    @property
    def end_s(self) -> float:
        """Return when the last iteration was finished, in seconds from the beginning of the run."""


class MakeWorkers(Protocol):
    """A maker of the workers of a run, which also prepares for them."""

    def __call__(self, surroundings: Surroundings, /) -> OtherWorkers: ...

    def around_sandbox(self) -> AbstractContextManager[None]:
        """Prepare the machine for the run's sandbox beforehand, and undo it at the end."""

    def in_sandbox(self) -> None:
        """Prepare the first process of the run in its sandbox."""


class NoWorkers:
    """The other workers of a scenario whose jobs are all emulated."""

    missing: Sequence[str] = ()
    records: Mapping[str, JobRecord[Fraction]] = {}
    observed: Mapping[str, Observed] = {}
    end_s = 0.0

    def __init__(self, _surroundings: Surroundings) -> None:
        """Make none."""

    @staticmethod
    def around_sandbox() -> AbstractContextManager[None]:
        return nullcontext()

    @staticmethod
    def in_sandbox() -> None:
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def watched(self) -> AbstractContextManager[None]:
        return nullcontext()

    def begin(self, origin_ns: int) -> None:
        return

    def stop(self) -> None:
        return

    def last_words(self, job: str) -> str:
        return ""


def maker_of(scenario: Scenario) -> MakeWorkers:
    """Return the function that makes the workers of jobs that are not emulated.

    Raise `RunError` if no plug-in does.
    """
    if not scenario.commands:
        return NoWorkers
    for entry in entry_points(group=GROUP, name="program"):
        return cast("MakeWorkers", entry.load())
    raise RunError(f"jobs {', '.join(scenario.commands)} are programs: {plug_in(GROUP, 'program')}")
