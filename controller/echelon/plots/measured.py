"""What pictures show: a `results.json`, and the part of it that is drawn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from echelon.documents import DocumentError

RESULTS = "results.json"


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A scenario under several policies, as measured (`echelon.scenarios.results`)."""

    scenario: str
    target: str
    policies: Mapping[str, Any]
    """The results by policy, the one to compare with first."""

    @property
    def jobs(self) -> Sequence[str]:
        """The names of the jobs."""
        return list(next(iter(self.policies.values()))["jobs"])

    def slowdowns(self, policy: str, job: str) -> Sequence[float]:
        """Return the time of each iteration over that of the job alone."""
        of = self.policies[policy]["jobs"][job]
        return [time_s / of["alone_iteration_s"] for time_s in of["iteration_times_s"]]


@dataclass(slots=True)
class Excerpt:
    """The part of a run to draw. None and nothing: all of it."""

    first: int | None = None
    last: int | None = None
    """Iterations from `first` to `last`, counted from 1."""
    jobs: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    """What the pictures leave out, for the person who made them."""

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def takes(self, iteration: int) -> bool:
        """Return whether an iteration is drawn."""
        return (self.first is None or iteration >= self.first) and (self.last is None or iteration <= self.last)


def load(path: Path, selection: Excerpt, policies: Sequence[str] = ()) -> MeasuredRun:
    """Return what a directory of `echelon run`, or its `results.json`, holds of `policies`, or of all.

    Raise `DocumentError`. A policy that was not run, or a job that a policy lacks, is a note.
    """
    file = path / RESULTS if path.is_dir() else path
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        results = dict(document["results"])
        scenario, target = str(document["scenario"]), str(document["target"])
    except OSError as error:
        reason = f"{error.strerror or error} (name a directory that echelon run has written)"
        raise DocumentError(str(file), "", reason, code="unreadable-file") from None
    except (ValueError, KeyError, TypeError):
        raise DocumentError(str(file), "", "is not the results of a run (name what echelon run has written)") from None
    missing = [policy for policy in policies if policy not in results]
    if missing:
        selection.note(f"not run, and not drawn: {', '.join(missing)} (there is {', '.join(results)})")
    shown = {policy: results[policy] for policy in policies or results if policy in results}
    if not shown:
        raise DocumentError(str(file), "results", f"none of the policies was run (there is {', '.join(results)})")
    wanted = selection.jobs or tuple(next(iter(shown.values()))["jobs"])
    common = [job for job in wanted if all(job in of["jobs"] for of in shown.values())]
    if absent := [job for job in wanted if job not in common]:
        selection.note(f"not measured under every policy, and not drawn: {', '.join(absent)}")
    if not common:
        raise DocumentError(str(file), "results", "there is no job to draw (check --job)")
    return MeasuredRun(
        scenario,
        target,
        {policy: {**of, "jobs": {job: of["jobs"][job] for job in common}} for policy, of in shown.items()},
    )
