"""What a service and its process tell of themselves: plans, the event loop's lag, memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Scrape:
    """The metrics of a service at a moment that a bench looks at."""

    plans: float
    """The number of plans so far."""
    planning_s: float
    """The seconds that policies and the lowering have taken so far, on the wall's clock."""
    lags: Mapping[float, float]
    """How often the event loop was at most so many seconds late, by the seconds."""

    @classmethod
    def of_text(cls, text: str) -> Scrape:
        """Return what a bench needs of a scrape in Prometheus' text format."""
        samples = {}
        for family in text_string_to_metric_families(text):
            samples[family.name] = family.samples
        plans = 0.0
        planning_s = 0.0
        for sample in samples["echelon_plan_seconds"]:
            if sample.name.endswith("_sum"):
                planning_s += sample.value
            if sample.name.endswith("_count"):
                # Each plan is counted once for each phase.
                plans = max(plans, sample.value)
        lags = {}
        for sample in samples["echelon_loop_lag_seconds"]:
            if sample.name.endswith("_bucket"):
                bound_s = float(sample.labels["le"])
                lags[bound_s] = sample.value
        return cls(plans, planning_s, lags)

    def plan_s(self, before: Scrape) -> float:
        """Return the seconds that a plan has taken since another scrape, on average; 0: no plan."""
        plans = self.plans - before.plans
        if not plans:
            return 0.0
        return (self.planning_s - before.planning_s) / plans

    def lag_s(self, before: Scrape, part: float) -> float:
        """Return the bound under which the lag was for that part of the time since then.

        `inf` stands for more than the largest bucket.
        """
        counts = {bound_s: self.lags[bound_s] - before.lags[bound_s] for bound_s in self.lags}
        total = counts[math.inf]
        for bound_s in sorted(counts):
            if counts[bound_s] >= part * total:
                return bound_s
        return math.inf


def peak_bytes(pid: int) -> int:
    """Return the most main memory that a process has had so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            kilobytes, _ = value.split()
            return 1024 * int(kilobytes)
    raise ValueError(f"process {pid}: the system does not tell its peak of memory")
