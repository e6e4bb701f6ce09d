"""TCP of emulated hosts through one switch: senders, links, pipeline and receivers of cross traffic in jumbo frames."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from echelon.documents import parse_document
from echelon.lab.scenarios.scenario import ScenarioSpec, build_scenario
from echelon.lab.scenarios.traffic_spec import TrafficSource
from echelon.lab.traffic.models import Consistent
from echelon.lab.traffic.sizes import load_sizes
from echelon.lab.virtual import run as virtual_run
from echelon.policies import make_policy

ROUNDS = 3
SCENARIO = {
    "scenario": "tcp",
    "fabric": {
        "fabric": "one",
        "hosts": ["a1", "a2", "b1", "b2"],
        "switches": ["s"],
        "links": [{"between": [host, "s"], "rate": "250 Mbit/s", "delay": "1 us"} for host in ("a1", "a2", "b1", "b2")],
    },
    "jobs": [
        {
            "job": "clock",
            "parallelism": "data",
            "workers": ["a1", "b1"],
            "data": {"compute": "10 s", "gradient": "100 kB"},
        }
    ],
    "policies": ["fifo"],
    "transport": {"packet": "9000 B"},
}


def bench() -> list[tuple[str, float, str]]:
    made = build_scenario(parse_document(ScenarioSpec, SCENARIO, "bench"), Path("bench"))
    rows = []
    for name, scale in (("web-search flows", Fraction(1)), ("the same at 1/100, a connection each", Fraction(1, 100))):
        flows = Consistent((("a1", "b2"), ("a2", "b2")), 150_000_000, load_sizes("web_search").scaled(scale))
        scenario = replace(made, traffic=(TrafficSource("web", flows),))
        costs = []
        for _ in range(ROUNDS):
            begin = time.process_time()
            run = virtual_run.run(scenario, "fifo", lambda: make_policy("fifo"), lambda _job, _n: None)
            packets = sum(switch.packets_in for switch in run.switches.values())
            costs.append((time.process_time() - begin) / packets * 1e6)
        rows.append((f"TCP, {name}: processor time for a packet through one switch", statistics.median(costs), "us"))
    return rows
