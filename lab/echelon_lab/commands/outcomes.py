"""The results that `echelon run` prints: times of iterations by policy, and cross traffic."""

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
_STEADY = "mean slowdown of the jobs without the first third of the run, with its 95 % interval"
_TRAFFIC_COLUMNS = (
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
    """Print the jobs' mean iteration times, with their change, and the cross traffic.

    The change is against the first policy. On a terminal, policies are columns if they are few and
    rows if they are many. A pipe gets a line for each job and policy, with all digits.
    """
    from rich.console import Console

    means = _Means.from_results(document, scenario)
    against = ""
    if len(means.policies) > 1:
        against = f", and change against {means.policies[0]}"
    typer.echo(f"{scenario.name}: seconds per iteration, mean of all{against}")
    console = Console(highlight=False)
    if console.is_terminal:
        for table in _tables(means):
            console.print(table)
    else:
        columns = []
        for title in _COLUMNS:
            columns.append(Column(title, right=title not in ("job", "policy")))
        tables.show(columns, list(_lines(means)), "")
    typer.echo(_STEADY)
    columns = [Column("policy"), Column("slowdown", right=True)]
    if scenario.precise_from is not None:
        columns.append(Column("ended"))
    rows = [cells[: len(columns)] for cells in _steady(document)]
    tables.show(columns, rows, "")
    if scenario.traffic:
        typer.echo(_about_traffic(document, scenario))
        columns = []
        for title in _TRAFFIC_COLUMNS:
            is_number = title not in ("traffic", "policy")
            columns.append(Column(title, right=is_number, wraps=True))
        tables.show(columns, list(_traffic(document, scenario)), "")


@dataclass(frozen=True, slots=True)
class _Means:
    """Mean seconds of an iteration by job and policy, and of each job alone."""

    policies: Sequence[str]
    s: Mapping[tuple[str, str], float]
    alone_s: Mapping[str, float]

    @classmethod
    def from_results(cls, document: Results, scenario: Scenario) -> _Means:
        policies = list(document["results"])
        means_s = {}
        alone_s = {}
        for job in scenario.jobs:
            for policy in policies:
                measured = document["results"][policy]["jobs"][job.name]
                means_s[job.name, policy] = fmean(measured["iteration_times_s"])
            first = document["results"][policies[0]]["jobs"][job.name]
            alone_s[job.name] = first["alone_iteration_s"]
        return cls(policies, means_s, alone_s)

    def change(self, job: str, policy: str) -> str:
        """Return the change against the first policy; nothing for that policy itself."""
        from echelon_lab.scenarios.report import change_percent

        first = self.policies[0]
        if policy == first:
            return ""
        percent = change_percent(self.s[job, first], self.s[job, policy])
        return f"{percent:+.1f} %"

    def cell(self, job: str, policy: str) -> str:
        return f"{_seconds(self.s[job, policy])}\n{self.change(job, policy)}".rstrip()


def _lines(means: _Means) -> Iterator[Sequence[str]]:
    for job, alone_s in means.alone_s.items():
        for policy in means.policies:
            mean = f"{means.s[job, policy]:.12g}"
            change = means.change(job, policy) or "-"
            yield job, policy, mean, change, f"{alone_s:.12g}"


def _steady(document: Results) -> Iterator[Sequence[str]]:
    from echelon_lab.scenarios.report import ENDS
    from echelon_lab.tables import with_half_width

    for policy, measured in document["results"].items():
        steady = measured["steady"]
        slowdown = with_half_width(steady["mean_slowdown"], steady["half_width"])
        yield policy, slowdown, ENDS.get(steady["ended"], "")


def _tables(means: _Means) -> Iterator[Table]:
    jobs = list(means.alone_s)
    policies = means.policies
    if len(policies) <= _MOST_COLUMNS:
        rows = []
        for job in jobs:
            cells = [means.cell(job, policy) for policy in policies]
            rows.append([job, _seconds(means.alone_s[job]), *cells])
        yield _table(["job", "alone", *policies], rows)
        return
    for begin in range(0, len(jobs), _MOST_COLUMNS):
        columns = jobs[begin : begin + _MOST_COLUMNS]
        rows = [["alone", *(_seconds(means.alone_s[job]) for job in columns)]]
        for policy in policies:
            rows.append([policy, *(means.cell(job, policy) for job in columns)])
        yield _table(["policy", *columns], rows)


def _seconds(value: float) -> str:
    """Return four places, or four digits of a short time."""
    if value >= 0.01:
        return f"{value:.4f}"
    return f"{value:.4g}"


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table whose cells are folded, not cut, where the terminal is narrow."""
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for place, title in enumerate(titles):
        table.add_column(
            Text(title),
            justify="right" if place else "left",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _about_traffic(document: Results, scenario: Scenario) -> str:
    first = next(iter(document["results"].values()))
    end_s = first["traffic"][scenario.traffic[0].name]["to_s"]
    return (
        f"cross traffic in the first {end_s:.4g} s, the length of the shortest run, under"
        " every policy: Mbit/s offered and achieved, completion times of flows that finished in it"
    )


def _traffic(document: Results, scenario: Scenario) -> Iterator[Sequence[str]]:
    """Yield a row for each source of cross traffic and policy."""
    for source in scenario.traffic:
        for policy, measured in document["results"].items():
            summary = measured["traffic"][source.name]
            cells = [source.name, policy]
            cells += [f"{summary[key] / 1e6:.2f}" for key in ("offered_bps", "achieved_bps")]
            cells += [str(summary["flows"]), str(summary["unfinished"])]
            for key in ("mean_completion_s", "p99_completion_s"):
                time_s = summary[key]
                cells.append("-" if time_s is None else f"{time_s:.4f}")
            yield cells
