"""A service that is killed at any moment while an operator changes jobs, and is started again.

What was acknowledged is there after every restart; what was not may be or not, but wholly; switches
hold exactly what is there. The suite kills few times, beside switches that are processes of their
own (tests/echelon/service/test_kill.py); ``python -m tests.soak kills`` kills often.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from echelon.controller.client import Client, ClientError
from echelon.model.fabric.model import Fabric
from tests.echelon.service.holdings import Holder, assert_exactly, assert_no_difference
from tests.echelon.service.lab import Daemon, ring, settle, specs

KILLED_EARLY = 0.25
"""Part of the kills that come at any moment of the start."""
START_S = 1.0
"""A service takes half of it to start on an idle machine."""
LONGEST_LIFE_S = 1.0
"""Longest life of a controller after its first acknowledgement."""
HOSTS = ["h1", "h2", "h3", "h4"]
UNKNOWN = object()
"""The state of a job whose change was not answered."""


class Place(Protocol):
    """Switches of a fabric, and clients of the services that control them."""

    @property
    def fabric(self) -> Fabric: ...

    @property
    def switches(self) -> Mapping[str, Holder]: ...

    @property
    def client(self) -> Callable[[Daemon], Any]: ...


class Accidents:
    """What befalls the switches beside a kill: nothing."""

    def strike(self, rng: random.Random) -> None:
        """Let something break soon, or not."""

    def mend_perhaps(self, rng: random.Random) -> None:
        """Mend what is broken before the service starts again, or not yet."""

    def mend(self, client: Client) -> None:
        """Mend what is broken, and wait until the service knows."""


class Operator:
    """An operator who registers, changes and removes jobs, and remembers the answers."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.expected: dict[str, Any] = {}
        """The spec of each job, None (removed), or `UNKNOWN` with its possible states in
        `_candidates`.
        """
        self._candidates: dict[str, list[Any]] = {}
        self.acknowledged = 0
        self.unanswered = 0

    def work_until_it_dies(self, daemon: Daemon, killer: threading.Timer) -> None:
        """Change jobs until the controller is gone.

        The killer's time runs from the first acknowledgement.
        """
        before = self.acknowledged
        with Client(daemon.wait_listening(), timeout_s=10) as client:
            while daemon.alive:
                name = f"j{self._rng.randrange(8)}"
                former = self.expected.get(name)
                wanted: Any = None
                if former is None or self._rng.random() < 0.5:
                    workers = self._rng.sample(HOSTS, self._rng.randint(2, 4))
                    wanted = ring(name, workers, gradient=f"{self._rng.randint(1, 9)} MB")
                try:
                    if wanted is None:
                        client.remove_job(name)
                    else:
                        client.register_job(wanted, replace=True)
                except ClientError as error:
                    if error.status is not None:
                        raise
                    self.expected[name] = UNKNOWN
                    self._candidates[name] = [former, wanted]
                    self.unanswered += 1
                    break
                self.expected[name] = wanted
                self.acknowledged += 1
                if self.acknowledged == before + 1:
                    killer.start()
        killer.join()

    def check(self, client: Client, kill: int) -> None:
        """Check that every acknowledged change is there, and that an unanswered one was made or was
        not.
        """
        actual = specs(client)
        for name, spec in self.expected.items():
            if spec is UNKNOWN:
                assert actual.get(name) in self._candidates[name], (kill, name)
                self.expected[name] = actual.get(name)
        expected = {name: spec for name, spec in self.expected.items() if spec is not None}
        assert actual == expected, kill


def kill_often(
    place: Place,
    daemon: Daemon,
    start: Callable[[], Daemon],
    operator: Operator,
    kills: int,
    rng: random.Random,
    accidents: Accidents | None = None,
) -> int:
    """Kill `daemon` and the daemons that `start` starts after it so often, and check each time.

    Return how often it was killed while it worked. Raises AssertionError.
    """
    accidents = accidents or Accidents()
    lives = 0
    try:
        daemon.wait_event("leading")
        for number in range(kills):
            accidents.strike(rng)
            if rng.random() < KILLED_EARLY:
                daemon.kill()
                daemon = start()
                time.sleep(rng.uniform(0, START_S))
            else:
                # Changes go on in this thread while another kills the controller.
                killer = threading.Timer(rng.uniform(0, LONGEST_LIFE_S), daemon.kill)
                operator.work_until_it_dies(daemon, killer)
                lives += 1
            daemon.kill()
            accidents.mend_perhaps(rng)
            daemon = start()
            with place.client(daemon) as client:
                accidents.mend(client)
                settle(client)
                operator.check(client, number)
                assert_exactly(place, client)
                assert_no_difference(place, client)
    finally:
        daemon.kill()
    return lives
