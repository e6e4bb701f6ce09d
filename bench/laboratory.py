"""What the benches use of the laboratory."""

from __future__ import annotations

from typing import Any

from echelon_lab.endhosts.shim import (
    HEADER_BYTES,
    SHIM_AT,
    UNSTAMPED,
    DataSegment,
    FlowAddress,
    ShimFrames,
    headers,
    internet_checksum,
)
from echelon_lab.models.options import new_job_file
from echelon_lab.scenarios.scenario import PolicyChoice, Scenario, load_scenario
from echelon_lab.virtual.run import run as run_on_packets

__all__ = [
    "HEADER_BYTES",
    "SHIM_AT",
    "UNSTAMPED",
    "DataSegment",
    "FlowAddress",
    "PolicyChoice",
    "Scenario",
    "ShimFrames",
    "headers",
    "internet_checksum",
    "load_scenario",
    "new_job_file",
    "run_on_packets",
    "slowdowns_under_plan",
]


def slowdowns_under_plan(
    seed: int,
    choice: PolicyChoice,
    iterations: int,
) -> dict[str, Any]:
    """Return `echelon_lab.evaluation.measure.slowdowns` of a drawn scenario under a plan."""
    # No other bench needs it, and it loads most of an evaluation.
    from echelon_lab.evaluation.measure import slowdowns

    return slowdowns(seed, choice, "plan", iterations)
