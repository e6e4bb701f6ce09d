"""A target of another distribution: a switch that records what is written to it, as small as a
target can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import pytest

from echelon.model.documents import Section
from echelon.model.errors import RunError
from echelon.model.fabric.model import Fabric
from echelon.planning.execution import duration_s
from echelon.planning.policies import make_policy
from echelon.switches.lowering.capabilities import Capabilities
from echelon.switches.southbound.queues import QueueDriver
from echelon.switches.targets import Site, Target
from echelon.switches.targets.softswitch.capabilities import softswitch
from echelon.switches.targets.softswitch.queues import GnmiQueues
from echelon.switches.targets.virtual import VirtualFabricFactory, VirtualSwitches
from echelon_lab.scenarios.scenario import load_scenario
from echelon_lab.virtual.embedded import VirtualTestbed
from echelon_lab.virtual.run import run
from tests.faults import coded

FIG2 = Path(__file__).parents[3] / "topologies" / "scenarios" / "fig2.yaml"


class Recorder(Target[Section]):
    """A target that runs in virtual time only, and keeps the kinds of all messages."""

    name = "recorder"
    options = Section

    def __init__(self) -> None:
        self.written: dict[str, Sequence[str]] = {}

    def capabilities(self, options: Section) -> Capabilities:
        return softswitch()

    def queue_driver(self, options: Section, site: Site) -> QueueDriver:
        return GnmiQueues(site.switch)

    def virtual_fabric(self) -> VirtualFabricFactory:
        return self._build

    @contextmanager
    def _build(
        self, fabric: Fabric, latency_s: Fraction, queue_bytes: int | None
    ) -> Iterator[VirtualSwitches]:
        with VirtualTestbed(fabric, latency_s, queue_bytes) as testbed:
            yield testbed
            self.written = {
                name: [kind for _, kind in testbed.rpc_log(name)] for name in testbed.switches
            }


class Bare(Recorder):
    """A target that runs nowhere."""

    name = "bare"

    def virtual_fabric(self) -> None:  # type: ignore[override]
        return None


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr("echelon_lab.virtual.run.TARGETS", {"recorder": made, "bare": Bare()})
    return made


def test_a_scenario_runs_on_it(recorder: Recorder) -> None:
    """Fair sharing needs 8.5 s for Fig. 2 of EchelonFlow, and packets within 0.1 % of it."""
    scenario = load_scenario(FIG2)
    outcome = run(
        scenario,
        "fair",
        lambda: make_policy("fair"),
        lambda _job, _iteration: None,
        target="recorder",
    )
    (job,) = outcome.records.values()
    assert float(duration_s(job.finished[0])) == pytest.approx(8.5, rel=1e-3)
    assert set(recorder.written) == set(scenario.fabric.switches)
    for kinds in recorder.written.values():
        assert {"set_pipeline", "write", "gnmi_set"} <= set(kinds)


def test_a_target_that_cannot_run_so_is_refused(recorder: Recorder) -> None:
    with pytest.raises(RunError, check=coded("run-failed", "target bare")):
        run(
            load_scenario(FIG2),
            "fair",
            lambda: make_policy("fair"),
            lambda _job, _iteration: None,
            target="bare",
        )
