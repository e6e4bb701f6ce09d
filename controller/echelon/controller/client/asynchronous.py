"""The client that is awaited."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Self, TypeVar

import httpx
from pydantic import SecretStr

from echelon.controller.client.answers import AnswerContent
from echelon.controller.client.calls import Calls
from echelon.controller.client.conversation import Conversation, Pause, RequestAttempt
from echelon.controller.client.credentials import Certificate
from echelon.controller.client.endpoints import ServiceEndpoint, check_socket
from echelon.controller.client.errors import ClientError

R = TypeVar("R")


class AsyncClient(Calls):
    """A client of one service for asyncio; use it as an asynchronous context manager.

    It has the calls of `Client` as coroutines. Several tasks of one event loop may use it at a
    time. Files that a call is given are read before it first waits.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | SecretStr | None = None,
        ca: str | Path | None = None,
        certificate: Certificate | None = None,
        timeout_s: float = 30.0,
        retry_s: float = 0.0,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Make a client. Nothing is sent yet.

        Args:
            url: as for `Client`, like the next five.
            token: the token.
            ca: file of the authorities.
            certificate: the client's certificate.
            timeout_s: timeout of one answer.
            retry_s: how long to repeat a failed call.
            transport: what carries requests to every controller, instead of the network: as
                httpx's `ASGITransport(app)` to an application in this process. It is closed with
                the client.
        """
        super().__init__(url, token, ca, certificate, timeout_s, retry_s)
        self._transport = transport
        self._clients: dict[ServiceEndpoint, httpx.AsyncClient] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. The next call opens others."""
        clients = list(self._clients.values())
        self._clients.clear()
        for client in clients:
            await client.aclose()

    async def carry_out(self, conversation: Conversation[R]) -> R:
        """Carry out the steps of a conversation and return its result."""
        try:
            step = next(conversation)
            while True:
                try:
                    response = await self._do(step)
                except (httpx.HTTPError, ClientError) as error:
                    step = conversation.throw(error)
                else:
                    step = conversation.send(response)
        except StopIteration as end:
            result: R = end.value
            return result

    async def _do(self, step: RequestAttempt | Pause) -> httpx.Response | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        request = step.request
        async with self._client(step.endpoint).stream(
            request.method,
            request.path,
            params=request.query,
            json=request.body,
            timeout=step.timeout,
        ) as answer:
            content = AnswerContent(step.longest_s)
            async for chunk in answer.aiter_bytes():
                content.add(chunk)
        return content.response(answer)

    def _client(self, endpoint: ServiceEndpoint) -> httpx.AsyncClient:
        if self._transport is None:
            check_socket(endpoint)
        if endpoint not in self._clients:
            self._clients[endpoint] = httpx.AsyncClient(
                base_url=endpoint.base,
                headers=self._headers(),
                transport=self._transport or self._network(endpoint),
                trust_env=False,
                follow_redirects=False,
            )
        return self._clients[endpoint]

    def _network(self, endpoint: ServiceEndpoint) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(
            uds=endpoint.socket,
            verify=self._verify(endpoint),
        )
