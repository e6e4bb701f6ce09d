"""Metrics with one of everything, and what a scrape of them says by Prometheus' own parser."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from echelon.service.metrics import Metrics

TEXT = Path(__file__).with_name("metrics.txt")


def families(metrics: Metrics) -> dict[str, Metric]:
    """Return the families of metrics by name (that of a counter is without _total)."""
    body, content_type = metrics.render()
    assert content_type.startswith("text/plain; version=0.0.4")
    found = list(text_string_to_metric_families(body.decode()))
    assert len({one.name for one in found}) == len(found)
    return {one.name: one for one in found}


def exercised() -> Metrics:
    """Return metrics every method of which was called once."""
    metrics = Metrics("1.2")
    metrics.switch_added("s1")
    metrics.planned(3, 20, 0.5, 0.25)
    metrics.plan_failed()
    metrics.searched("changed", 2.5, 0.125)
    metrics.searched("outdated")
    metrics.prediction("a", -0.5)
    metrics.changed(0.75)
    metrics.jobs({"installed": 4})
    metrics.job_seen("a", 1e9)
    metrics.job_iteration("a", 1.5)
    metrics.job_tardiness("a", -0.25)
    metrics.distances_corrected()
    metrics.sizes_corrected()
    metrics.connections_reported(3, 2)
    metrics.session_opened("s1")
    metrics.contested("s1")
    metrics.written("s1", 3, 2, 1, 0.01)
    metrics.entries("s1", 5, 6, 7, 1)
    metrics.audited("s1", 2)
    metrics.digests("s1", 10, 4)
    metrics.request("GET", "/jobs/{name}", 200, "operator", 0.002)
    metrics.committed(0.003)
    metrics.commit_failed()
    metrics.leadership(77)
    return metrics


def text() -> str:
    """Return the text of a scrape of those, without what differs between processes."""
    lines = exercised().render()[0].decode().splitlines(keepends=True)
    return "".join(line for line in lines if line.split()[2 if line.startswith("#") else 0].startswith("echelon_"))


if __name__ == "__main__":
    TEXT.write_text(text())
