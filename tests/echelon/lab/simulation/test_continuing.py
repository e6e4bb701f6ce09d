"""An interrupted comparison keeps the policies that have finished, and goes on from there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import echelon

ROOT = Path(__file__).parents[4]
FIG2 = ROOT / "topologies/scenarios/fig2.yaml"
TRAFFIC: Mapping[str, object] = {
    "fabric": "../dumbbell_4.yaml",
    "jobs": [
        {
            "job": "a",
            "parallelism": "data",
            "workers": ["a1", "b1"],
            "data": {"compute": "50 ms", "gradient": "50 kB"},
        }
    ],
    "traffic": [
        {"name": "web", "model": "consistent", "src": "a3", "dst": "b3", "load": "1 Mbit/s"}
    ],
    "iterations": 2,
}


class Interrupter:
    """A progress that interrupts when the second policy has begun, and remembers who was run."""

    def __init__(self, interrupts: bool) -> None:
        self.ran: dict[str, None] = {}
        self._interrupts = interrupts

    def __call__(self, policy: str, _job: str, _iteration: int) -> None:
        self.ran[policy] = None
        if self._interrupts and len(self.ran) == 2:
            raise KeyboardInterrupt


def test_finished_policies_are_not_run_again(tmp_path: Path) -> None:
    policies = ["fair", "fifo", "echelon"]
    expected = echelon.simulate(FIG2, policies)
    with pytest.raises(KeyboardInterrupt):
        echelon.simulate(FIG2, policies, keep=tmp_path, progress=Interrupter(True))
    again = Interrupter(False)
    compared = echelon.simulate(FIG2, policies, keep=tmp_path, progress=again)
    # The searching policy runs first, and was kept.
    assert list(again.ran) == ["fair", "fifo"]
    assert compared.results == expected.results
    assert compared.runs == expected.runs
    assert not list(tmp_path.iterdir()), "a finished comparison leaves nothing behind"


def test_another_scenario_is_run_anew(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        echelon.simulate(FIG2, ["fair", "fifo"], keep=tmp_path, progress=Interrupter(True))
    again = Interrupter(False)
    echelon.simulate(FIG2, ["fair", "fifo"], keep=tmp_path, progress=again, scale="1/2")
    assert list(again.ran) == ["fair", "fifo"]


def test_packets_and_cross_traffic_are_kept_whole(tmp_path: Path) -> None:
    from echelon_lab.scenarios.scenario import scenario_of

    scenario = scenario_of({"scenario": "kept", "policies": ["fair", "fifo"], **TRAFFIC}, FIG2)
    expected = echelon.simulate(scenario, target="softswitch")
    with pytest.raises(KeyboardInterrupt):
        echelon.simulate(scenario, target="softswitch", keep=tmp_path, progress=Interrupter(True))
    again = Interrupter(False)
    compared = echelon.simulate(scenario, target="softswitch", keep=tmp_path, progress=again)
    assert list(again.ran) == ["fifo"]
    assert compared.runs == expected.runs
