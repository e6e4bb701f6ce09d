"""A whole run: senders, links, queues, the compiled pipeline and receivers, after a controller
wrote the plan.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path

from bench.laboratory import load_scenario, run_on_packets
from echelon.planning.policies import make_policy

SCENARIOS = Path(__file__).parents[1] / "topologies" / "scenarios"
ROUNDS = 3


def bench() -> list[tuple[str, float, str]]:
    scenario = load_scenario(SCENARIOS / "dp_pair.yaml")
    rows = []
    for policy in ("fair", "echelon"):
        speeds = []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            make = partial(make_policy, policy)
            run = run_on_packets(scenario, policy, make, unseen)
            hops = sum(switch.packets_in for switch in run.switches.values())
            run_s = time.perf_counter() - begin
            speeds.append(hops / run_s)
        median = statistics.median(speeds)
        rows.append((f"dp_pair under {policy}, all included", median, "packet-hops/s"))
    return rows


def unseen(_job: str, _iteration: int) -> None:
    """Show no progress."""
