"""A browser, and a service with tokens of both roles that it looks at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from echelon.controller.client import Client
from echelon.controller.service.api.tokens import new_token
from plugins.web.tests.browser import Page, browsing
from tests.echelon.service.conftest import building
from tests.echelon.service.lab import PATIENCE_S, Daemon, Lab, reset, settle
from tests.shared import Shared

FABRIC: dict[str, Any] = {
    "fabric": "leaf-spine",
    "hosts": [f"h{number}" for number in range(1, 9)],
    "switches": ["leaf1", "leaf2", "spine1", "spine2"],
    "links": [
        *({"between": [f"h{n}", "leaf1" if n < 5 else "leaf2"], "rate": "12 Mbit/s"} for n in range(1, 9)),
        *({"between": [leaf, spine], "rate": "6 Mbit/s"} for leaf in ("leaf1", "leaf2")
          for spine in ("spine1", "spine2")),
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Watched:
    """A running service, and tokens for it."""

    lab: Lab
    daemon: Daemon
    operator: str
    reader: str
    url: str

    def client(self) -> Client:
        return Client(self.url, token=self.operator, timeout_s=PATIENCE_S)


@contextmanager
def watching() -> Iterator[Watched]:
    operator, reader = new_token("ops", "operator"), new_token("eyes", "read-only")
    with building() as build:
        lab = build(FABRIC, with_rates=True)
        (lab.directory / "tokens.yaml").write_text(f"tokens:\n{operator.entry}{reader.entry}")
        daemon = lab.daemon(api={"listen": "127.0.0.1:0", "tokens": "tokens.yaml"})
        daemon.wait_event("leading")
        yield Watched(lab, daemon, operator.token, reader.token, daemon.wait_listening())


_browser, _watched = Shared(browsing), Shared(watching)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    for one in (_browser, _watched):
        one.end_unless(nextitem, Path(__file__).parent)


@pytest.fixture
def page() -> Iterator[Page]:
    """Return a browser in its usual size."""
    page = _browser()
    page.look()
    yield page
    page.leave()


@pytest.fixture
def watched(page: Page) -> Watched:
    """Return a service without jobs, under the default policy, with all links up."""
    found = _watched()
    with found.client() as client:
        reset(client)
        settle(client)
    return found
