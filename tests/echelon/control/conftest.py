"""A scenario on a virtual testbed with its controller, as `echelon_lab.virtual.run` puts them
together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from echelon.planning.policies import make_policy
from echelon.switches.targets import TARGETS
from echelon.switches.targets.softswitch.capabilities import softswitch
from echelon_lab.endhosts.emulator import TrainingEmulator
from echelon_lab.scenarios.scenario import Scenario, load_scenario
from echelon_lab.virtual.controller import VirtualController
from echelon_lab.virtual.embedded import VirtualTestbed
from echelon_lab.virtual.run import believed, sessions

SCENARIOS = Path(__file__).parents[3] / "topologies" / "scenarios"


@dataclass
class Stage:
    testbed: VirtualTestbed
    controller: VirtualController
    emulator: TrainingEmulator

    def run(self) -> None:
        self.emulator.start()
        self.testbed.run(lambda: self.emulator.done)
        self.controller.raise_failure()

    def hear_all(self, events: Mapping[str, int]) -> None:
        """Return when the controller has heard of that many flow events of each switch, the last
        lists included.

        Telemetry waits 100 ms of virtual time for a full list; then the list has to cross the
        socket.
        """
        self.testbed.clock.call_at(self.testbed.clock.now_ns + 10**9, lambda: None)
        self.testbed.run(lambda: False)
        heard = threading.Event()
        for _ in range(1000):
            if self.controller.digests == events:
                return
            heard.wait(0.01)
        raise AssertionError(self.controller.digests)


@contextmanager
def _staged(scenario: Scenario, policy: str) -> Iterator[Stage]:
    identities = scenario.identities
    with (
        VirtualTestbed(scenario.fabric, scenario.control_latency_s) as testbed,
        VirtualController(
            scenario.fabric,
            believed(scenario, identities),
            make_policy(policy),
            sessions(TARGETS["softswitch"], scenario.fabric, testbed.addresses),
            softswitch(),
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
def staged() -> Callable[..., AbstractContextManager[Stage]]:
    return _staged
