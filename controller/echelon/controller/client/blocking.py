"""The client that blocks."""

from __future__ import annotations

import time
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


class Client(Calls):
    """A client of one service; use it as a context manager.

    It is not safe for use by several threads at a time. `AsyncClient` has the same calls as
    coroutines.
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
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Make a client. Nothing is sent yet.

        Args:
            url: ``https://host:port``, ``http://host:port`` or ``unix:/path``; several controllers
                of one service are separated by commas. Default: the variable ECHELON_URL, else
                http://127.0.0.1:8080.
            token: default: the first line of the file that the variable ECHELON_TOKEN_FILE names;
                else none is sent.
            ca: file of the authorities that may have signed the server's certificate; default:
                those of the system.
            certificate: the client's certificate, if the server asks for one: a file with its key,
                or a pair of files.
            timeout_s: timeout of one answer.
            retry_s: how long to repeat a failed call; 0: not at all.
            transport: what carries requests to every controller, instead of the network: for
                tests, as httpx's `MockTransport`. It is closed with the client.

        Proxies that the environment names are not used: a controller is near.
        """
        super().__init__(url, token, ca, certificate, timeout_s, retry_s)
        self._transport = transport
        self._clients: dict[ServiceEndpoint, httpx.Client] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. The next call opens others."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def carry_out(self, conversation: Conversation[R]) -> R:
        """Carry out the steps of a conversation and return its result."""
        try:
            step = next(conversation)
            while True:
                try:
                    response = self._do(step)
                except (httpx.HTTPError, ClientError) as error:
                    step = conversation.throw(error)
                else:
                    step = conversation.send(response)
        except StopIteration as end:
            result: R = end.value
            return result

    def _do(self, step: RequestAttempt | Pause) -> httpx.Response | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        request = step.request
        with self._client(step.endpoint).stream(
            request.method,
            request.path,
            params=request.query,
            json=request.body,
            timeout=step.timeout,
        ) as answer:
            content = AnswerContent(step.longest_s)
            for chunk in answer.iter_bytes():
                content.add(chunk)
        return content.response(answer)

    def _client(self, endpoint: ServiceEndpoint) -> httpx.Client:
        if self._transport is None:
            check_socket(endpoint)
        if endpoint not in self._clients:
            self._clients[endpoint] = httpx.Client(
                base_url=endpoint.base,
                headers=self._headers(),
                transport=self._transport or self._network(endpoint),
                trust_env=False,
                follow_redirects=False,
            )
        return self._clients[endpoint]

    def _network(self, endpoint: ServiceEndpoint) -> httpx.HTTPTransport:
        return httpx.HTTPTransport(
            uds=endpoint.socket,
            verify=self._verify(endpoint),
        )
