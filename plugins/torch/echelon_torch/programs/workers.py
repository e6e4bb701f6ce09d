"""The programs of jobs as workers of a run on real hosts (`echelon_lab.hosts.workers.plug_in`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import Self

from echelon.planning.execution import JobRecord
from echelon_lab.hosts.workers.plug_in import Surroundings
from echelon_lab.scenarios.results import Observed
from echelon_torch.agent.groups import enter, group_for_run
from echelon_torch.programs.iterations import ProgramIterations
from echelon_torch.programs.launching import Programs
from echelon_torch.programs.listening import RankListener


class ProgramWorkers:
    """The programs of all jobs that `scenario.commands` has, and the sockets of their ranks."""

    around_sandbox = staticmethod(group_for_run)
    in_sandbox = staticmethod(enter)

    def __init__(self, place: Surroundings) -> None:
        ranks = place.directory / "ranks"
        self._loop = place.loop
        self._jobs = tuple(place.scenario.commands)
        self._programs = Programs(place.scenario, place.hosts, place.url, ranks, place.directory)
        jobs = [job for job in place.scenario.jobs if job.name in self._jobs]
        self._iterations = ProgramIterations(
            jobs, place.completion, place.on_iteration, self._programs.stop
        )
        self._listener = RankListener(
            place.loop, ranks, self._iterations, place.on_ready, place.on_step
        )

    def __enter__(self) -> Self:
        self._programs.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._programs.__exit__(*error)
        self._listener.close()

    def watched(self) -> AbstractContextManager[None]:
        return self._programs.watched(self._loop)

    def begin(self, origin_ns: int) -> None:
        self._listener.begin(origin_ns)

    def stop(self) -> None:
        for job in self._jobs:
            self._programs.stop(job)

    def last_words(self, job: str) -> str:
        return self._programs.last_words(job)

    @property
    def missing(self) -> Sequence[str]:
        return self._iterations.missing

    @property
    def records(self) -> Mapping[str, JobRecord[Fraction]]:
        return self._iterations.records

    @property
    def observed(self) -> Mapping[str, Observed]:
        return self._iterations.observed

    @property
    def end_s(self) -> float:
        return self._iterations.end_s
