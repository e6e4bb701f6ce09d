"""Metrics with one of everything, and what a scrape of them says by Prometheus' own parser."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from unittest.mock import patch

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from echelon.controller.changes.report_connections import ConnectionsReported
from echelon.controller.machine import facts
from echelon.controller.service.metrics import Metrics
from echelon.switches.telemetry.sizes import HostIteration

TEXT = Path(__file__).with_name("metrics.txt")


def families(metrics: Metrics) -> dict[str, Metric]:
    """Return the families of metrics by name (that of a counter is without _total)."""
    body, content_type = metrics.render()
    assert content_type.startswith("text/plain; version=0.0.4")
    found = list(text_string_to_metric_families(body.decode()))
    assert len({one.name for one in found}) == len(found)
    return {one.name: one for one in found}


def exercised() -> Metrics:
    """Return metrics that have every fact once which counts."""
    metrics = Metrics("1.2")
    for fact in (
        facts.SwitchAdded("s1"),
        adopted(3, flows=20, policy_s=0.5, lowering_s=0.25),
        facts.PlanRefused("fair", "no"),
        facts.PlanChosen(("a",), "fair", "echelon", 4, 1.5, 2.0, 0.125, 2.5),
        facts.SearchEnded(("a",)),
        facts.PredictionJudged("a", 2.0, 1.0, search_again=False),
        facts.JobInstalled("a", 3, 0.75),
        facts.JobsCounted({"installed": 4}),
        facts.IterationTimed("a", 1.5),
        facts.TardinessSeen("a", -0.25),
        facts.SizesCorrected("a", {}),
        facts.IterationsMeasured(
            "a",
            {
                "h1": HostIteration(Fraction(1), {"h2": 9}, 3, Fraction(1, 4)),
                "h2": HostIteration(Fraction(1), {"h1": 9}, 4, Fraction(1, 8)),
            },
        ),
        ConnectionsReported("a", "h1", 3, 2),
        facts.SwitchSessionOpened("s1"),
        facts.TermContested("s1", 9, 1, 0.5),
        facts.IntentWritten("s1", 3, 2, 1, 0.01),
        facts.EntriesCounted("s1", 5, 6, 7, 1),
        facts.SwitchRepaired("s1", 2, "missing in flow: 2", 1),
        facts.DigestsReceived("s1", 10, 4),
        facts.RequestAnswered("GET", "/jobs/{name}", 200, "operator", 0.002),
        facts.ChangeCommitted(0.003),
        facts.CommitFailed(),
        facts.LoopLagged(0.03),
    ):
        metrics.count(fact)
    with patch("time.time", return_value=1e9):
        metrics.count(facts.JobSeen("a"))
    metrics.leadership(77)
    return metrics


def adopted(
    version: int = 1,
    *,
    flows: int = 1,
    policy_s: float = 1.0,
    lowering_s: float = 1.0,
    problems: Mapping[str, str] | None = None,
) -> facts.PlanAdopted:
    return facts.PlanAdopted(version, "fair", 1, flows, policy_s, lowering_s, problems)


def text() -> str:
    """Return the text of a scrape of those, without what differs between processes."""
    lines = exercised().render()[0].decode().splitlines(keepends=True)
    return "".join(
        line
        for line in lines
        if line.split()[2 if line.startswith("#") else 0].startswith("echelon_")
    )


if __name__ == "__main__":
    TEXT.write_text(text())
