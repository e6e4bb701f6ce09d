"""An API with tokens of both roles over a service in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from fastapi import FastAPI

from echelon.controller.service.api.app import create_app
from echelon.controller.service.api.settings import ApiSettings, Exchange
from echelon.controller.service.api.tokens import TokensFile, new_token
from tests.echelon.service.api.memory import MemoryService, standby
from tests.echelon.service.api.serving import Serving, serving

METRICS = b"echelon_jobs 1\n"
BODY_BYTES = 10_000


@dataclass(frozen=True)
class Api:
    """A running API."""

    app: FastAPI
    serving: Serving
    operator: str
    """A token."""
    reader: str
    agent: str
    """The token of an agent of job `d`."""
    exchanges: list[Exchange]

    @property
    def service(self) -> MemoryService:
        service = self.app.state.service
        assert isinstance(service, MemoryService)
        return service

    @property
    def url(self) -> str:
        return self.serving.url


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    operator, reader = new_token("ops", "operator"), new_token("eyes", "read-only")
    agent = new_token("h1-agent", "agent", ["d"])
    file = tmp_path_factory.mktemp("api") / "tokens.yaml"
    file.write_text(f"tokens:\n{operator.entry}{reader.entry}{agent.entry}")
    exchanges: list[Exchange] = []
    settings = ApiSettings(body_bytes=BODY_BYTES, tokens=TokensFile(file), observe=exchanges.append)
    app = create_app(standby(), settings, lambda: (METRICS, "text/plain; version=0.0.4"))
    with serving(app) as server:
        yield Api(app, server, operator.token, reader.token, agent.token, exchanges)


@pytest.fixture
def api(running: Api) -> Iterator[Api]:
    """Yield the API with an empty service."""
    running.app.state.service = service = MemoryService()
    running.serving.wait(service.open())
    running.exchanges.clear()
    yield running
    running.serving.wait(service.close())
