"""What `echelon run` prints of its results: what iterations took under each policy, and what cross
traffic got.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import typer

from echelon.cli import tables
from echelon.cli.tables import Column

if TYPE_CHECKING:
    from rich.table import Table

    from echelon_lab.scenarios.results import Results
    from echelon_lab.scenarios.scenario import Scenario

_MOST_COLUMNS = 4
"""The most policies, or jobs, that are columns of a table on a terminal."""
_COLUMNS = ("job", "policy", "seconds", "change", "alone")
_OF_TRAFFIC = (
    "traffic",
    "policy",
    "offered",
    "achieved",
    "flows",
    "unfinished",
    "mean s",
    "99 % s",
)


def show(document: Results, scenario: Scenario) -> None:
    """Print the jobs' mean iteration times, with their change against the first policy, and the cross traffic.

    On a terminal, policies are columns if they are few and rows if they are many. A pipe gets a
    line for each job and policy, with all digits.
    """
    from rich.console import Console

    means = _Means.of(document, scenario)
    if len(means.policies) > 1:
        against = f", and change against {means.policies[0]}"
    else:
        against = ""
    typer.echo(f"{scenario.name}: seconds per iteration, mean of all{against}")
    console = Console(highlight=False)
    if console.is_terminal:
        for table in _tables(means):
            console.print(table)
    else:
        columns = [Column(title, right=title not in ("job", "policy")) for title in _COLUMNS]
        rows = [
            (job, of, f"{means.s[job, of]:.12g}", means.change(job, of) or "-", f"{alone_s:.12g}")
            for job, alone_s in means.alone_s.items()
            for of in means.policies
        ]
        tables.show(columns, rows, "")
    if scenario.traffic:
        typer.echo(_about_traffic(document, scenario))
        columns = [
            Column(title, right=title not in ("traffic", "policy"), wraps=True)
            for title in _OF_TRAFFIC
        ]
        tables.show(columns, list(_traffic(document, scenario)), "")


@dataclass(frozen=True, slots=True)
class _Means:
    """Mean seconds of an iteration by job and policy, and of each job alone."""

    policies: Sequence[str]
    s: Mapping[tuple[str, str], float]
    alone_s: Mapping[str, float]

    @classmethod
    def of(cls, document: Results, scenario: Scenario) -> _Means:
        policies = list(document["results"])
        jobs = {policy: document["results"][policy]["jobs"] for policy in policies}
        names = [job.name for job in scenario.jobs]
        return cls(
            policies,
            {
                (name, of): fmean(jobs[of][name]["iteration_times_s"])
                for name in names
                for of in policies
            },
            {name: jobs[policies[0]][name]["alone_iteration_s"] for name in names},
        )

    def change(self, job: str, policy: str) -> str:
        """Return the change against the first policy; nothing for that policy itself."""
        from echelon_lab.scenarios.report import change_percent

        first = self.policies[0]
        if policy == first:
            return ""
        return f"{change_percent(self.s[job, first], self.s[job, policy]):+.1f} %"

    def cell(self, job: str, policy: str) -> str:
        return f"{_seconds(self.s[job, policy])}\n{self.change(job, policy)}".rstrip()


def _tables(means: _Means) -> Iterator[Table]:
    jobs = list(means.alone_s)
    policies = means.policies
    if len(policies) <= _MOST_COLUMNS:
        rows = [
            [job, _seconds(means.alone_s[job]), *(means.cell(job, of) for of in policies)]
            for job in jobs
        ]
        yield _table(["job", "alone", *policies], rows)
        return
    for begin in range(0, len(jobs), _MOST_COLUMNS):
        shown = jobs[begin : begin + _MOST_COLUMNS]
        rows = [["alone", *(_seconds(means.alone_s[job]) for job in shown)]]
        yield _table(
            ["policy", *shown],
            [*rows, *([of, *(means.cell(job, of) for job in shown)] for of in policies)],
        )


def _seconds(value: float) -> str:
    """Return four places, or four digits of a short time."""
    return f"{value:.4f}" if value >= 0.01 else f"{value:.4g}"


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table whose cells are folded, not cut, where the terminal is narrow."""
    from rich.table import Table
    from rich.text import Text

    out = Table()
    for place, title in enumerate(titles):
        out.add_column(Text(title), justify="right" if place else "left", overflow="fold")
    for row in rows:
        out.add_row(*map(Text, row))
    return out


def _about_traffic(document: Results, scenario: Scenario) -> str:
    first = next(iter(document["results"].values()))["traffic"][scenario.traffic[0].name]
    return (
        f"cross traffic in the first {first['to_s']:.4g} s, the length of the shortest run, under"
        " every policy: Mbit/s offered and achieved, completion times of flows that finished in it"
    )


def _traffic(document: Results, scenario: Scenario) -> Iterator[Sequence[str]]:
    """Yield a row for each source of cross traffic and policy."""
    for source in scenario.traffic:
        for policy, of in document["results"].items():
            got = of["traffic"][source.name]
            times = (
                "-" if got[key] is None else f"{got[key]:.4f}"
                for key in ("mean_completion_s", "p99_completion_s")
            )
            rates = (f"{got[key] / 1e6:.2f}" for key in ("offered_bps", "achieved_bps"))
            yield source.name, policy, *rates, str(got["flows"]), str(got["unfinished"]), *times
