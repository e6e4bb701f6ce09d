"""Register a policy for the duration of one test, as an installed distribution would."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from echelon.planning.policies import registry


class Registered(EntryPoint):
    """An entry point that gives a class which no module holds."""

    policy: Any

    def load(self) -> Any:
        return self.policy


def register(monkeypatch: pytest.MonkeyPatch, name: str, policy: Any) -> None:
    entry = Registered(name, "tests:policy", registry.GROUP)
    vars(entry)["policy"] = policy
    everything = {**registry.registered(), name: entry}
    monkeypatch.setattr(registry, "registered", lambda: everything)
