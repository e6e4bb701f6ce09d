"""Varys from packets: senders keep to the rates of the central scheduler, so that it is what its
name says.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from echelon.planning.fluid import simulate
from echelon.planning.policies import make_policy
from echelon_lab.scenarios.scenario import load_scenario
from echelon_lab.virtual.run import run

HOSTS = [f"h{k}" for k in range(1, 10)]
FABRIC = "\n".join(f"    - {{between: [{host}, tor], rate: 10 Mbit/s}}" for host in HOSTS)
INCAST = f"""\
scenario: incast
fabric:
  fabric: star
  hosts: [{", ".join(HOSTS)}]
  switches: [tor]
  links:
{FABRIC}
jobs:
  - job: wide
    parallelism: parameter_server
    workers: [{", ".join(HOSTS[1:])}]
    parameter_server: {{server: h1, compute: 1 s, gradient: 300 kB}}
  - job: narrow
    parallelism: parameter_server
    workers: [{", ".join(HOSTS[1:7])}]
    parameter_server: {{server: h1, compute: 1200 ms, gradient: 500 kB}}
policies: [varys]
"""


def test_fourteen_flows_at_a_port_have_the_rates_of_varys(tmp_path: Path) -> None:
    """Iterations of two coflows with more flows than a port has queues are within 2 % of exact
    arithmetic.

    While flows shared queues and senders did not know their rates, they took 6 and 13 % longer.
    """
    file = tmp_path / "incast.yaml"
    file.write_text(INCAST)
    scenario = load_scenario(file)
    exact = simulate(scenario.jobs, scenario.fabric, make_policy("varys"), 1)
    measured = run(scenario, "varys", lambda: make_policy("varys"), lambda job, iteration: None)
    for job in ("wide", "narrow"):
        first = measured.records[job].iterations[0]
        assert first.finish is not None
        took_s = Fraction(first.finish) - Fraction(first.start)
        assert float(took_s) == pytest.approx(float(exact.iteration_times_s(job)[0]), rel=0.02)
    assert sum(measured.reordered.values()) == 0
    assert sum(switch.packets_in - switch.packets_out for switch in measured.switches.values()) == 0
