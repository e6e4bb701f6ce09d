"""The API on a real socket, its event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from fastapi import FastAPI

from echelon.controller.service.api.server import ApiServer, ServerSettings
from echelon.controller.service.config_file import ListenAddress
from tests.echelon.service.api.memory import MemoryService

LOCALHOST = ListenAddress("127.0.0.1", 0, None)
TIMEOUT_S = 30

T = TypeVar("T")


class Serving:
    def __init__(self, server: ApiServer, service: object) -> None:
        self.server = server
        self._service = service
        self.url = server.url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        if isinstance(self._service, MemoryService):
            await self._service.open()
        await self.server.serve()
        if isinstance(self._service, MemoryService):
            await self._service.close()

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the server's loop."""

        async def run() -> T:
            return function()

        return self.wait(run())

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT_S)

    def stop(self) -> None:
        with suppress(RuntimeError):  # it has stopped already
            self._loop.call_soon_threadsafe(self.server.stop)
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()


@contextmanager
def serving(app: FastAPI, settings: ServerSettings | None = None) -> Iterator[Serving]:
    running = Serving(ApiServer(app, settings or ServerSettings(LOCALHOST)), app.state.service)
    try:
        yield running
    finally:
        running.stop()
