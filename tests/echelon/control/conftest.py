"""A scenario on a virtual testbed with its controller, as `echelon.virtual.run` puts them together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from echelon.endhosts.emulator import TrainingEmulator
from echelon.lowering.identity import number_shims
from echelon.policies import make_policy
from echelon.scenarios.scenario import Scenario, load_scenario
from echelon.targets.softswitch.capabilities import softswitch
from echelon.targets.softswitch.queues import GnmiQueues
from echelon.targets.softswitch.virtual import VirtualTestbed
from echelon.virtual.controller_thread import ControllerThread

SCENARIOS = Path(__file__).parents[3] / "topologies" / "scenarios"


@dataclass
class Stage:
    testbed: VirtualTestbed
    controller: ControllerThread
    emulator: TrainingEmulator

    def run(self) -> None:
        self.emulator.start()
        self.testbed.run(lambda: self.emulator.done)
        self.controller.raise_failure()


@contextmanager
def _staged(scenario: Scenario, policy: str) -> Iterator[Stage]:
    identities = number_shims(scenario.jobs)
    queues = {name: GnmiQueues(name) for name in scenario.fabric.switches}
    with (
        VirtualTestbed(scenario.fabric, scenario.control_latency_s) as testbed,
        ControllerThread(
            scenario.fabric, scenario.jobs, make_policy(policy), identities, testbed.addresses, queues, softswitch()
        ) as controller,
    ):
        emulator = TrainingEmulator(
            testbed.clock,
            testbed.nics,
            scenario.fabric,
            scenario.jobs,
            identities,
            transport=scenario.transport,
            iterations=scenario.iterations,
            until=scenario.until,
            background=scenario.background,
        )
        for name, host in emulator.hosts.items():
            testbed.receive_with(name, host.deliver)
        yield Stage(testbed, controller, emulator)


@pytest.fixture(scope="session")
def fig2() -> Scenario:
    return load_scenario(SCENARIOS / "fig2.yaml")


@pytest.fixture(scope="session")
def staged() -> Callable[[Scenario, str], AbstractContextManager[Stage]]:
    return _staged
