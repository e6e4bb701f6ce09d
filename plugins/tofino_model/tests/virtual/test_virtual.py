"""Scenarios in virtual time on a fabric of Tofinos: lowering, BF Runtime, traffic manager and
digests together.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

from echelon.model.documents import Section
from echelon.model.p4program import P4Program
from echelon.planning.execution import duration_s
from echelon.planning.policies import make_policy
from echelon.switches.targets.virtual import VirtualFabricFactory
from echelon_lab.scenarios.results import PolicyRun
from echelon_lab.scenarios.scale import scaled
from echelon_lab.scenarios.scenario import Scenario, load_scenario
from echelon_lab.virtual.run import run
from echelon_tofino.target import Tofino
from echelon_tofino_model.virtual import TofinoTestbed
from plugins.tofino_model.tests.virtual.source_device import SourceDevice
from tests.needs import needs
from tests.reference.bf_rt_info import bf_rt_info
from tests.reference.tna_on_v1model import compiled

FIG2 = Path(__file__).parents[4] / "topologies" / "scenarios" / "fig2.yaml"


class FromSources(Tofino):
    """A Tofino whose switches execute the TNA program's sources."""

    def __init__(self, built: P4Program) -> None:
        self._built = built

    def program(self, options: Section | None = None) -> P4Program:
        return self._built

    def virtual_fabric(self) -> VirtualFabricFactory:
        return partial(TofinoTestbed, make=SourceDevice)


def from_sources(directory: Path) -> FromSources:
    binary = directory / "echelon.bfa"
    p4info = directory / "echelon.p4info.txtpb"
    binary.write_bytes(compiled(directory, p4info))
    (directory / "bf-rt.json").write_bytes(bf_rt_info(p4info.read_text()))
    return FromSources(P4Program("echelon", p4info, binary))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("sources", marks=[pytest.mark.p4c, needs("p4c", "cpp")]),
        "compiled, a tenth",
        pytest.param("compiled", marks=pytest.mark.long),
    ],
)
def scenario(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scenario]:
    """Run the target `tofino` on the program's sources, or on what p4c's Tofino back end made of
    them.

    The compiled program takes a millisecond a packet: a tenth of the rates and sizes gives a tenth
    of the packets.
    """
    target = (
        from_sources(tmp_path_factory.mktemp("tna")) if request.param == "sources" else Tofino()
    )
    fig2 = load_scenario(FIG2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("echelon_lab.virtual.run.TARGETS", {"tofino": target})
        yield scaled(fig2, Fraction(1, 10)).scenario if request.param.endswith("tenth") else fig2


def outcome(scenario: Scenario, policy: str) -> PolicyRun:
    return run(
        scenario,
        policy,
        lambda: make_policy(policy),
        lambda _job, _iteration: None,
        target="tofino",
    )


@pytest.mark.parametrize(("policy", "expected_s"), [("fair", 8.5), ("echelon", 8.0)])
def test_fig2_takes_as_long_as_published(
    scenario: Scenario, policy: str, expected_s: float
) -> None:
    """Fig. 2 of EchelonFlow (HotNets '22)."""
    found = outcome(scenario, policy)
    (job,) = found.records.values()
    # To a packet of a flow: 0.1 % of the whole scenario's.
    packets = next(iter(scenario.jobs[0].flows)).size_bytes / scenario.transport.packet_bytes
    assert float(duration_s(job.finished[0])) == pytest.approx(expected_s, rel=1 / packets)
    assert not any(found.reordered.values())
    # Each of three flows starts and finishes, at each switch.
    assert {name: switch.digests for name, switch in found.switches.items()} == {"s1": 6, "s2": 6}


def test_a_run_repeats(scenario: Scenario) -> None:
    first, second = outcome(scenario, "fair"), outcome(scenario, "fair")
    assert first.records == second.records
    assert first.switches == second.switches
