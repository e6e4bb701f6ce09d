"""The complete application and its OpenAPI document."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema
from starlette.routing import compile_path

from echelon.jobs.spec import JobSpec
from echelon.service.api.answers import HANDLERS
from echelon.service.api.gate import Gate
from echelon.service.api.health import metrics_router, status
from echelon.service.api.jobs import jobs
from echelon.service.api.network import links, plan, policy, switches
from echelon_web.pages import pages
from echelon.service.api.settings import ApiSettings
from echelon_web.stream import stream
from echelon.service.interface import Service
from echelon_web.live import Live
from echelon.service.resources import ConnectionReport, DistanceReport, IterationReport, LinkSetting, PolicySetting
from echelon_web import routes as web

DESCRIPTION = """\
Schedules the network flows of distributed training jobs by their arrangement functions. Times are seconds since the
epoch (UTC), durations seconds, sizes bytes, rates bits per second; requests write units out, as files do
(`"2.5 MB"`, `"10 ms"`). Every error has the same shape."""
BODIES = (JobSpec, DistanceReport, ConnectionReport, IterationReport, PolicySetting, LinkSetting)


def build(service: Service, settings: ApiSettings, metrics: Callable[[], tuple[bytes, str]] | None) -> FastAPI:
    app = FastAPI(
        title="Echelon",
        description=DESCRIPTION,
        version=version("echelon-p4"),
        # FastAPI's pages load scripts from other hosts; `pages` has one that loads nothing.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=dict(HANDLERS),
    )
    app.state.service = service
    app.state.settings = settings
    app.state.stopping = asyncio.Event()
    app.state.live = Live(lambda: app.state.service)
    for part in (jobs, plan, switches, policy, links, status, stream, pages, web.router("service")):
        app.include_router(part)
    if metrics is not None:
        app.include_router(metrics_router(metrics, is_open=settings.open_metrics))
    app.add_middleware(Gate, settings=settings)
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            _complete(generate(), with_tokens=settings.tokens is not None)
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    app.state.methods_of = partial(_methods_of, app)
    return app


def _methods_of(app: FastAPI, path: str) -> frozenset[str]:
    """Return the methods of `path`, over all routes that have it."""
    found = {
        method.upper()
        for template, operations in app.openapi()["paths"].items()
        if compile_path(template)[0].fullmatch(path)
        for method in operations
    }
    return frozenset(found | {"HEAD"} if "GET" in found else found)


def _complete(document: dict[str, Any], *, with_tokens: bool) -> None:
    """Add what FastAPI cannot know: bodies that our own reader reads, and the tokens that the gate requires."""
    _, definitions = models_json_schema(
        [(model, "validation") for model in BODIES], ref_template="#/components/schemas/{model}"
    )
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(definitions["$defs"])
    if with_tokens:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
