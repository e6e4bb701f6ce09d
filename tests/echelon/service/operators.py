"""An operator whose controller is killed at any moment, and who keeps books of what was
acknowledged.
"""

from __future__ import annotations

import random
import threading
from typing import Any, Protocol

from echelon.controller.client import Client, ClientError
from tests.echelon.service.lab import ring

LONGEST_LIFE_S = 1.0
"""Longest life of a controller after its first acknowledgement."""
HOSTS = ["h1", "h2", "h3", "h4"]
UNKNOWN = object()
"""The state of a job whose change was not answered."""


class Victim(Protocol):
    """A daemon that is killed while the operator works."""

    @property
    def alive(self) -> bool: ...

    def wait_listening(self) -> str: ...


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

    def work_until_it_dies(self, daemon: Victim, killer: threading.Timer) -> None:
        """Change jobs until the controller is gone.

        The killer's time runs from the first acknowledgement.
        """
        before = self.acknowledged
        with Client(daemon.wait_listening(), timeout_s=10) as client:
            while daemon.alive:
                name = f"j{self._rng.randrange(8)}"
                known = self.expected.get(name)
                wanted: Any = None
                if known is None or self._rng.random() < 0.5:
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
                    self._candidates[name] = [known, wanted]
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
        there = {job.name: client.job(job.name).spec for job in client.jobs()}
        for name, known in self.expected.items():
            if known is UNKNOWN:
                assert there.get(name) in self._candidates[name], (kill, name)
                self.expected[name] = there.get(name)
        assert there == {name: spec for name, spec in self.expected.items() if spec is not None}, (
            kill
        )
