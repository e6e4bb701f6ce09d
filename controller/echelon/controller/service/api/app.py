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

from echelon.controller.resources.jobs import ConnectionReport, DistanceReport, IterationReport
from echelon.controller.resources.links import LinkSetting
from echelon.controller.resources.policy import PolicySetting
from echelon.controller.service.api import (
    flows,
    history,
    jobs,
    links,
    plan,
    policy,
    status,
    story,
    switches,
)
from echelon.controller.service.api.answers import HANDLERS
from echelon.controller.service.api.gate import Gate
from echelon.controller.service.api.live import Live, stream
from echelon.controller.service.api.pages import other_pages, pages
from echelon.controller.service.api.settings import ApiSettings
from echelon.controller.service.controller import ControllerService
from echelon.model.fabric.load import FabricSpec
from echelon.model.jobs.spec import JobSpec

DESCRIPTION = """\
Schedules the network flows of distributed training jobs by their arrangement functions. Times are seconds since the
epoch (UTC), durations seconds, sizes bytes, rates bits per second; requests write units out, as files do
(`"2.5 MB"`, `"10 ms"`). Every error has the same shape."""
ROUTES = (
    jobs.routes,
    plan.routes,
    switches.routes,
    policy.routes,
    links.routes,
    status.routes,
    stream,
    flows.routes,
    history.routes,
    story.routes,
    pages,
)
"""The endpoints, in the order of the document."""
BODIES = (
    JobSpec,
    DistanceReport,
    ConnectionReport,
    IterationReport,
    PolicySetting,
    LinkSetting,
    FabricSpec,
)


def create_app(
    service: ControllerService,
    settings: ApiSettings | None = None,
    metrics: Callable[[], tuple[bytes, str]] | None = None,
) -> FastAPI:
    """Return the application, to be served on the event loop that `service` lives on.

    `metrics` returns what GET /metrics answers, as bytes and content type; None: there are no
    metrics.
    """
    settings = settings or ApiSettings()
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
    for routes in ROUTES:
        app.include_router(routes)
    for plug_in in other_pages():
        app.include_router(plug_in.router())
    if metrics is not None:
        app.include_router(status.metrics_routes(metrics, is_open=settings.open_metrics))
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
    methods: set[str] = set()
    for template, operations in app.openapi()["paths"].items():
        pattern, _, _ = compile_path(template)
        if pattern.fullmatch(path):
            methods.update(method.upper() for method in operations)
    if "GET" in methods:
        methods.add("HEAD")
    return frozenset(methods)


def _complete(document: dict[str, Any], *, with_tokens: bool) -> None:
    """Add what FastAPI cannot know.

    Our own reader reads bodies, and the gate requires tokens.
    """
    _, definitions = models_json_schema(
        [(model, "validation") for model in BODIES], ref_template="#/components/schemas/{model}"
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas.update(definitions["$defs"])
    if with_tokens:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
