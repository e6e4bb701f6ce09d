"""The outcome of a scenario under several policies: runs, results, data frames and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from echelon.model.errors import CodedError
from echelon.model.extras import how_to_install
from echelon.model.progress import UNSEEN, CommandProgress, Phase
from echelon_lab import plots
from echelon_lab.scenarios import report, results
from echelon_lab.scenarios.coarse import run_end_s
from echelon_lab.scenarios.results import PolicyRun, Results
from echelon_lab.scenarios.scenario import Scenario

if TYPE_CHECKING:
    import pandas as pd

RESULTS = "results.json"
NETWORK = "network.json"
REPORT = "report.md"
PICTURES = ("summary", "timeline")
"""The kinds of pictures that every run gets."""

KEEPING = "keep"
WRITING = "write"
RECORDS = "records"
DRAWING = "draw"
KEPT_RECORD_S = 1.2e-6
WRITTEN_RECORD_S = 8e-6
"""The time to keep a record of a flow or a compute unit, and to write one that is listed.

They are expected until a command has measured them itself. Of a job of 45,000 flows, 577,000
records took 0.7 s of a processor to keep, and 36,000 took 0.3 s to list and write.
"""
FILE_S = 0.1
"""The time that a file on the disk takes besides."""
DRAWN_S = 1.5
"""The same for a picture, or for the import of matplotlib with it."""


def expected_iterations(scenario: Scenario, alone_s: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Return about how many iterations each job does if all are as fast as alone."""
    if scenario.until != "all-done":
        return dict.fromkeys(alone_s, Fraction(scenario.iterations))
    end_s = run_end_s(scenario, alone_s)
    return {job.name: (end_s - job.start_s) / alone_s[job.name] for job in scenario.jobs}


def expected_records(scenario: Scenario, alone_s: Mapping[str, Fraction]) -> float:
    """Return about how many flows and compute units a run under one policy records."""
    iterations = expected_iterations(scenario, alone_s)
    records = 0.0
    for job in scenario.jobs:
        records += float(iterations[job.name]) * (len(job.computes) + len(job.flows))
    return records


def writing_phases(records: float) -> Iterator[Phase]:
    """Yield the phases of `PolicyComparison.write`, of so many records."""
    cost_s = FILE_S + records * WRITTEN_RECORD_S
    yield Phase(WRITING, RECORDS, cost_s, cost_s)
    if _can_draw():
        for kind in PICTURES:
            yield Phase(kind, DRAWING, 1, DRAWN_S)


def _can_draw() -> bool:
    try:
        return find_spec("matplotlib") is not None
    except ImportError:
        return False


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The outcome of one job under one policy. Times are in seconds."""

    job: str
    policy: str
    iteration_times_s: tuple[float, ...]
    """Durations of the finished iterations, in order."""
    alone_iteration_s: float
    """The least that an iteration can take without other jobs and packets.

    `echelon.planning.fluid.least` says how it is computed.
    """
    mean_slowdown: float
    """Mean iteration time divided by `alone_iteration_s`."""
    tardiness_s: Mapping[str, tuple[float, ...]]
    """Tardiness by EchelonFlow, one for each finished iteration."""

    @property
    def mean_iteration_s(self) -> float:
        """Return the mean duration of the finished iterations."""
        return sum(self.iteration_times_s) / len(self.iteration_times_s)


@dataclass(frozen=True)
class PolicyComparison:
    """A scenario's runs under several policies.

    It iterates over the outcomes, policy by policy and job by job.
    """

    scenario: Scenario
    target: str
    runs: Mapping[str, PolicyRun]
    """Runs by label of the policy, in the scenario's order.

    The first is the one that others are compared with.
    """
    alone_s: Mapping[str, Fraction]
    """Seconds that an iteration of each job takes alone at least, by job."""
    every_flow: bool = False
    """Whether results list all flows and compute units, however many there are."""

    @property
    def policies(self) -> tuple[str, ...]:
        """Return the labels of the policies."""
        return tuple(self.runs)

    @cached_property
    def results(self) -> Results:
        """Return the document that ``results.json`` holds (`echelon_lab.scenarios.results`).

        Raises `RunError` for a job that has finished no iteration.
        """
        return self._results(self.every_flow)

    def _results(self, every_flow: bool) -> Results:
        return results.assemble(self.scenario, self.target, self.runs, self.alone_s, every_flow)

    @property
    def _network(self) -> dict[str, Any]:
        return results.network_document(self.scenario, self.runs, self.every_flow)

    def __iter__(self) -> Iterator[JobOutcome]:
        for policy in self.runs:
            for job in self.scenario.jobs:
                yield self.outcome(policy, job.name)

    def outcome(self, policy: str, job: str) -> JobOutcome:
        """Return the outcome of `job` under `policy`.

        Raises `KeyError` for one that was not run, and as `results`.
        """
        measured = self.results["results"][policy]["jobs"][job]
        tardiness_s = {}
        for name, echelonflow in measured["echelonflows"].items():
            tardiness_s[name] = tuple(echelonflow["tardiness_s"])
        return JobOutcome(
            job,
            policy,
            tuple(measured["iteration_times_s"]),
            measured["alone_iteration_s"],
            measured["mean_slowdown"],
            tardiness_s,
        )

    def iterations(self) -> pd.DataFrame:
        """Return a row for each finished iteration.

        Its columns are policy, job, iteration (from 1), time_s and slowdown.
        """
        rows = []
        for outcome in self:
            for number, time_s in enumerate(outcome.iteration_times_s, start=1):
                slowdown = time_s / outcome.alone_iteration_s
                rows.append((outcome.policy, outcome.job, number, time_s, slowdown))
        return _frame(rows, "policy", "job", "iteration", "time_s", "slowdown")

    def jobs(self) -> pd.DataFrame:
        """Return a row for each policy and job.

        It has the mean and alone iteration times, the mean slowdown, the change of the mean against
        the first policy in percent, and the mean tardiness of the job's EchelonFlows.
        """
        rows = []
        first = self.policies[0]
        for outcome in self:
            before_s = self.outcome(first, outcome.job).mean_iteration_s
            mean_s = outcome.mean_iteration_s
            tardiness = [value for values in outcome.tardiness_s.values() for value in values]
            mean_tardiness_s = None
            if tardiness:
                mean_tardiness_s = sum(tardiness) / len(tardiness)
            rows.append(
                (
                    outcome.policy,
                    outcome.job,
                    len(outcome.iteration_times_s),
                    mean_s,
                    outcome.alone_iteration_s,
                    outcome.mean_slowdown,
                    report.change_percent(before_s, mean_s),
                    mean_tardiness_s,
                )
            )
        columns = (
            "iterations",
            "mean_s",
            "alone_s",
            "mean_slowdown",
            "change_percent",
            "mean_tardiness_s",
        )
        return _frame(rows, "policy", "job", *columns)

    def flows(self) -> pd.DataFrame:
        """Return a row for each flow of each finished iteration.

        Its columns are policy, job, and the keys of ``flows`` in ``results.json``.
        """
        rows = []
        for policy, measured in self._results(every_flow=True)["results"].items():
            for job, outcome in measured["jobs"].items():
                for flow in outcome["flows"]:
                    rows.append({"policy": policy, "job": job, **flow})
        return _frame(rows)

    def report(self, pictures: Sequence[str | Path] = (), notes: Sequence[str] = ()) -> str:
        """Return the report as Markdown.

        `pictures` are files next to it, and `notes` say what these leave out.
        """
        names = [Path(file).name for file in pictures]
        return report.write(self.scenario, self.results, self.runs, names, notes)

    def plot(
        self,
        kind: str,
        directory: str | Path,
        width: str = "text",
    ) -> tuple[list[Path], list[str]]:
        """Draw a kind of picture (`echelon plot`) as PNG.

        Return the files, and what they leave out.

        Raise `ImportError` without matplotlib, `DocumentError` for an unknown kind, and `OSError`.
        """
        selection = plots.Excerpt(most_pages=1)
        run = plots.MeasuredRun(self.results["results"], self._network)
        files = plots.draw(run, kind, selection, Path(directory), width=width)
        return files, selection.notes

    def write(self, directory: str | Path, progress: CommandProgress = UNSEEN) -> tuple[Path, ...]:
        """Write ``results.json``, ``network.json``, ``report.md`` and, with matplotlib, pictures.

        Return their paths. `progress` is told of a stage, and of the phases of `writing_phases`.

        Raises `OSError` if the directory cannot be written to.
        """
        out = Path(directory)
        out.mkdir(parents=True, exist_ok=True)
        progress.stage("writing", 3 + len(PICTURES) * _can_draw(), "files")
        progress.begin(WRITING)
        progress.doing(f"writing {RESULTS}")
        (out / RESULTS).write_text(results.to_text(self.results), encoding="utf-8")
        progress.done()
        progress.doing(f"writing {NETWORK}")
        (out / NETWORK).write_text(results.network_text(self._network), encoding="utf-8")
        progress.done()
        pictures: list[Path] = []
        notes: list[str] = []
        with suppress(ImportError):
            for kind in PICTURES:
                progress.doing(f"drawing {kind}")
                progress.begin(kind)
                files, left_out = self.plot(kind, out)
                progress.done()
                pictures += files
                notes += [f"{kind}: {note}" for note in left_out]
        progress.doing(f"writing {REPORT}")
        (out / REPORT).write_text(self.report(pictures, notes), encoding="utf-8")
        return (out / RESULTS, out / NETWORK, out / REPORT, *pictures)


def _frame(rows: list[Any], *columns: str) -> pd.DataFrame:
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise CodedError(how_to_install(error) or str(error)) from None
    return pd.DataFrame(rows, columns=list(columns) or None)
