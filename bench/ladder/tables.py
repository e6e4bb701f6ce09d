"""The tables of a ladder: what each rung costs, and whom its ports serve out of order.

Rungs with limits of Tofino's program have a table of their own: what each costs beside the product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from bench.ladder.rungs import AS_IT_IS, Rung, beside_fluid

MOST_COLUMNS = 8
"""The most scenarios that have a column each. Of more there are groups only."""
KINDS = ("lower_queue", "same_queue", "min_share")
"""The places where a more urgent packet waited (`bench.ladder.fabric.Counts`)."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What `bench.ladder.measure.measure` returned, and of what."""

    scenario: str
    draw: int
    policy: str
    result: Mapping[str, Any]

    @property
    def is_one_link(self) -> bool:
        return bool(self.result["one_link"])

    def has(self, rung: Rung) -> bool:
        """Return whether a rung was run: one whose limits concern no flow was not."""
        return rung.name in self.result["rungs"]

    def on_rung(self, rung: Rung) -> Mapping[str, Any]:
        """Return the figures of a rung."""
        rows = self.result["rungs"]
        row: Mapping[str, Any] = rows[rung.name]
        return row


Draws = Sequence[Measurement]
"""The measurements of a scenario."""


@dataclass(frozen=True, slots=True)
class Text:
    """A table of words."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return it as a page has it, without its title."""
        rule = ["---"] * len(self.head)
        text = ""
        for cells in (self.head, rule, *self.rows):
            joined = " | ".join(cells)
            text += f"| {joined} |\n"
        return text


def tables(measurements: Sequence[Measurement], rungs: Sequence[Rung]) -> list[Text]:
    """Return two tables for each policy: of slowdowns, and of the order in which ports serve.

    Of rungs with limits it returns one instead, which also needs the rung without any.
    """
    ladder = beside_fluid(rungs)
    limited = [rung for rung in rungs if rung.limits]
    by_policy: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        by_policy.setdefault(measurement.policy, []).append(measurement)
    texts = []
    for policy, group in by_policy.items():
        if limited:
            texts.append(_costs(policy, group, limited))
        if ladder:
            slowdowns = _slowdowns(policy, group, ladder)
            order = _order(policy, group, ladder)
            texts += [slowdowns, order]
    return texts


def _by_scenario(measurements: Sequence[Measurement]) -> Mapping[str, Draws]:
    by_scenario: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        by_scenario.setdefault(measurement.scenario, []).append(measurement)
    return by_scenario


def _costs(
    policy: str,
    measurements: Sequence[Measurement],
    rungs: Sequence[Rung],
) -> Text:
    rows = []
    for rung in rungs:
        concerned = []
        for measurement in measurements:
            if measurement.has(rung):
                concerned.append(measurement)
        scenarios = list(_by_scenario(concerned).values())
        cells = _cost_cells(scenarios, rung)
        size = str(len(scenarios))
        rows.append([rung.title, size, *cells])
    title = f"{policy}: mean slowdown from packets with a limit of Tofino's program"
    head = ("limit", "scenarios", "without", "with", "cost, %", "largest, %")
    return Text(title, head, rows)


def _cost_cells(scenarios: Sequence[Draws], rung: Rung) -> list[str]:
    if not scenarios:
        return ["", "", "", ""]
    without = []
    limited = []
    costs = []
    # Each scenario counts once, however many draws it has.
    for draws in scenarios:
        without.append(_slowdown(draws, AS_IT_IS))
        limited.append(_slowdown(draws, rung))
        cost = fmean(_cost(measurement, rung) for measurement in draws)
        costs.append(cost)
    cells = []
    for slowdowns in (without, limited):
        mean = fmean(slowdowns)
        cells.append(f"{mean:.3f}")
    for part in (fmean(costs), max(costs)):
        cells.append(_signed(part))
    return cells


def _cost(measurement: Measurement, rung: Rung) -> float:
    """Return by which part the slowdown is larger than without limits."""
    limited = measurement.on_rung(rung)
    product = measurement.on_rung(AS_IT_IS)
    part: float = limited["mean"] / product["mean"]
    return part - 1


def _slowdown(draws: Draws, rung: Rung) -> float:
    figures = [measurement.on_rung(rung) for measurement in draws]
    return fmean(figure["mean"] for figure in figures)


def _slowdowns(
    policy: str,
    measurements: Sequence[Measurement],
    rungs: Sequence[Rung],
) -> Text:
    by_scenario = _by_scenario(measurements)
    scenarios = list(by_scenario.values())
    # Of many scenarios a terminal has no room for a column each.
    columns: Mapping[str, Draws] = {}
    if len(scenarios) <= MOST_COLUMNS:
        columns = by_scenario
    groups = _groups(scenarios)

    sizes = [f"{name} ({len(group)})" for name, group in groups.items()]
    head = ["rung", *columns, *sizes, "largest"]
    rows = []
    for rung in rungs:
        parts = []
        for draws in columns.values():
            parts.append(_above(draws, rung))
        # Each scenario counts once, however many draws it has.
        for group in groups.values():
            figures = [_above(draws, rung) for draws in group]
            parts.append(fmean(figures))
        largest = max(_above(draws, rung) for draws in scenarios)
        cells = map(_signed, (*parts, largest))
        rows.append([rung.title, *cells])
    title = f"{policy}: mean slowdown from packets above that on the fluid model, in %"
    return Text(title, head, rows)


def _groups(scenarios: Sequence[Draws]) -> dict[str, Sequence[Draws]]:
    """Return the scenarios with one link, those with fabrics, and all, unless there are none."""
    links = []
    fabrics = []
    for draws in scenarios:
        if draws[0].is_one_link:
            links.append(draws)
        else:
            fabrics.append(draws)
    groups = {}
    if links:
        groups["one link"] = links
    if fabrics:
        groups["fabrics"] = fabrics
    groups["all"] = list(scenarios)
    return dict(groups)


def _above(draws: Draws, rung: Rung) -> float:
    """Return how far a scenario is above the fluid model, in the mean over its draws."""
    figures = [measurement.on_rung(rung) for measurement in draws]
    return fmean(figure["above"] for figure in figures)


def _signed(part: float) -> str:
    return f"{100 * part:+.1f}"


def _order(
    policy: str,
    measurements: Sequence[Measurement],
    rungs: Sequence[Rung],
) -> Text:
    rows = []
    for rung in rungs:
        counted = [measurement.on_rung(rung) for measurement in measurements]
        total = sum(row["bytes"]["total"] for row in counted)
        parts = []
        for kind in KINDS:
            kind_bytes = sum(row["bytes"][kind] for row in counted)
            parts.append(kind_bytes / max(1, total))
        reordered = sum(row["reordered"] for row in counted)
        parts.insert(0, sum(parts))
        shares = [f"{100 * part:.2f}" for part in parts]
        rows.append([rung.title, *shares, str(reordered)])
    title = f"{policy}: bytes served while a more urgent flow waits at the port, in %"
    head = ("rung", "all", "in a lower queue", "in the same", "for a minimum share", "reordered")
    return Text(title, head, rows)
