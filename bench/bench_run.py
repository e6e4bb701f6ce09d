"""A whole run: senders, links, queues, the compiled pipeline and receivers, after a controller
wrote the plan.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from echelon.planning.policies import make_policy
from echelon_lab.scenarios.scenario import load_scenario
from echelon_lab.virtual import run as virtual_run

SCENARIOS = Path(__file__).parents[1] / "topologies" / "scenarios"
ROUNDS = 3


def bench() -> list[tuple[str, float, str]]:
    scenario = load_scenario(SCENARIOS / "dp_pair.yaml")
    rows = []
    for policy in ("fair", "echelon"):
        speeds = []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            run = virtual_run.run(
                scenario, policy, lambda policy=policy: make_policy(policy), lambda _job, _n: None
            )
            hops = sum(switch.packets_in for switch in run.switches.values())
            speeds.append(hops / (time.perf_counter() - begin))
        rows.append(
            (f"dp_pair under {policy}, all included", statistics.median(speeds), "packet-hops/s")
        )
    return rows
