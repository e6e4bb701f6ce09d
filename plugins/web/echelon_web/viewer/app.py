"""The application and its listener."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI, Query

from echelon.controller.resources.flows import FlowTable, WaitsResource
from echelon.controller.service import logs
from echelon.controller.service.api.answers import HANDLERS, RequestError
from echelon.controller.service.api.gate import Gate
from echelon.controller.service.api.server import ApiServer, ServerSettings
from echelon.controller.service.api.settings import ApiSettings
from echelon.controller.service.config_file import ListenAddress
from echelon_web import routes
from echelon_web.viewer.results import Run

PolicyName = Annotated[str, Query(description="The policy, as /results names it.")]


def build(run: Run) -> FastAPI:
    """Return the application, which answers nothing but GET."""
    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        exception_handlers=dict(HANDLERS),
    )
    app.state.stopping = asyncio.Event()

    def checked_policy(policy: str) -> str:
        if policy not in run.measured.results:
            raise RequestError(404, f"policy '{policy}' was not run", "policy")
        return policy

    @app.get("/results")
    async def show_results() -> dict[str, Any]:
        return run.summary

    @app.get("/results/flows")
    def show_flows(policy: PolicyName) -> FlowTable:
        return run.flows(checked_policy(policy))

    @app.get("/results/waits")
    def show_waits(policy: PolicyName) -> WaitsResource:
        return run.waits(checked_policy(policy))

    def read_methods(path: str) -> frozenset[str]:
        return frozenset({"GET", "HEAD"})

    app.include_router(routes.router("results"))
    app.state.methods_of = read_methods
    app.add_middleware(Gate, settings=ApiSettings())
    return app


async def serve(
    run: Run,
    port: int,
    on_listening: Callable[[str], None],
) -> None:
    """Serve the page on a port of this machine (0: any free one) until SIGINT or SIGTERM. Raises
    `ListenError`.
    """
    logs.configure("text", "error")
    address = ListenAddress("127.0.0.1", port, None)
    server = ApiServer(build(run), ServerSettings(address))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop)
    on_listening(server.url)
    await server.serve()
