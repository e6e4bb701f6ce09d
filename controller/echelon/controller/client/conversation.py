"""The way of a call to the controller that leads, without I/O.

A conversation is a generator. It yields its steps: a `RequestAttempt` to be sent, or a `Pause`. A
client carries each out and sends back the response, or throws in the `httpx.HTTPError` or
`ClientError` that came instead; what the generator returns is the result of the call.

An attempt ends in one of these ways:

- success: the call ends;
- a standby names its leader: the next attempt goes there, `MAX_HOPS` times at most;
- no answer, or one that says to come later: the next attempt goes to the next controller, and
  after all controllers there is a pause, until the time for retries is up;
- any other refusal: the call ends with it, because it would be refused again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import httpx

from echelon.controller.client.answers import read_leader, read_refusal
from echelon.controller.client.endpoints import ServiceEndpoint
from echelon.controller.client.errors import ClientError
from echelon.model.quantities import one_line

CONNECT_S = 5.0
"""Timeout for connecting.

A machine that is gone never answers, and there may be other controllers to ask.
"""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
MAX_HOPS = 4
"""Maximum number of redirections from controller to controller in search of the leader."""
LONGEST_ANSWERS = 4
"""The longest time for a whole answer, as a multiple of the timeout for its beginning."""
TRY_LATER = frozenset({429, 503})

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Request:
    """The request of a call."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    more_s: float = 0.0
    """Extra time for the answer: the controller was asked to wait."""
    removes: bool = False
    """Whether 404 means that it has worked, if an earlier answer was lost."""


@dataclass(frozen=True, slots=True)
class RequestAttempt:
    """A request to one controller."""

    endpoint: ServiceEndpoint
    request: Request
    timeout: httpx.Timeout
    longest_s: float
    """The longest time for the whole answer."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A time to wait."""

    seconds: float


Conversation: TypeAlias = Generator[RequestAttempt | Pause, httpx.Response | None, R]


class Controllers:
    """The controllers of a service, and the one that answered last."""

    def __init__(
        self,
        endpoints: Sequence[ServiceEndpoint],
        timeout_s: float,
        retry_s: float,
        *,
        has_token: bool,
    ) -> None:
        self._endpoints = endpoints
        self._current = endpoints[0]
        self._timeout_s = timeout_s
        self._retry_s = retry_s
        self._has_token = has_token
        # Pauses differ between clients, so that they do not all come back at once; nothing else
        # depends on it.
        self._random = random.Random()

    def converse(self, request: Request) -> Conversation[httpx.Response]:
        """Return the answer to a request. Raise `ClientError`."""
        give_up_at = time.monotonic() + self._retry_s
        longest_pause_s = FIRST_PAUSE_S
        answer_was_lost = False
        while True:
            fault: ClientError | None = None
            for endpoint in self._in_turn():
                try:
                    response = yield from self._follow(endpoint, request)
                except NoAnswerError as silence:
                    # An answer of one controller tells more than the silence of another.
                    fault = fault or silence
                    answer_was_lost = answer_was_lost or silence.may_have_arrived
                    self._turn_from_leader(endpoint)
                    continue
                has_worked = request.removes and response.status_code == 404 and answer_was_lost
                if response.is_success or has_worked:
                    return response
                fault = read_refusal(response)
                if response.status_code not in TRY_LATER:
                    raise fault

            assert fault is not None
            left_s = give_up_at - time.monotonic()
            if left_s <= 0:
                raise fault
            pause_s = longest_pause_s * self._random.uniform(0.5, 1.0)
            yield Pause(min(left_s, pause_s))
            longest_pause_s = min(2 * longest_pause_s, LONGEST_PAUSE_S)

    def probe(self, path: str) -> Conversation[str | None]:
        """Return why the controller that answered last refuses a GET; None: it does not.

        Raise nothing, and do not try again.
        """
        try:
            response = yield from self._attempt(self._current, Request("GET", path))
        except ClientError as error:
            return error.reason
        if response.is_success:
            return None
        return read_refusal(response).reason

    def _in_turn(self) -> Sequence[ServiceEndpoint]:
        """Return the controllers to try, the one that answered last first."""
        return tuple(dict.fromkeys((self._current, *self._endpoints)))

    def _turn_from_leader(self, endpoint: ServiceEndpoint) -> None:
        """Begin the next time with a controller that the user named.

        A leader that is gone is not asked first again.
        """
        self._current = endpoint if endpoint in self._endpoints else self._endpoints[0]

    def _follow(self, endpoint: ServiceEndpoint, request: Request) -> Conversation[httpx.Response]:
        """Return the answer of the leader, if `endpoint` knows of it; else its own."""
        for _ in range(MAX_HOPS):
            self._current = endpoint
            response = yield from self._attempt(endpoint, request)
            leader = read_leader(response)
            if leader is None or leader == endpoint:
                break
            if self._has_token and endpoint.is_private and not leader.is_private:
                break  # others could read the token on the way
            endpoint = leader
        return response

    def _attempt(self, endpoint: ServiceEndpoint, request: Request) -> Conversation[httpx.Response]:
        """Return the answer of one controller. Raise `NoAnswerError`."""
        connect_s = min(self._timeout_s, CONNECT_S)
        attempt = RequestAttempt(
            endpoint,
            request,
            timeout=httpx.Timeout(self._timeout_s + request.more_s, connect=connect_s),
            longest_s=request.more_s + LONGEST_ANSWERS * self._timeout_s,
        )
        try:
            response = yield attempt
        except httpx.ConnectTimeout as error:
            raise NoAnswerError(endpoint, error, f"no connection in {connect_s:g} s") from None
        except httpx.TimeoutException as error:
            raise NoAnswerError(endpoint, error, f"no answer in {self._timeout_s:g} s") from None
        except httpx.HTTPError as error:
            text = one_line(str(error)) or type(error).__name__
            raise NoAnswerError(endpoint, error, text) from None
        assert response is not None
        return response


class NoAnswerError(ClientError):
    """A controller did not answer."""

    def __init__(
        self,
        endpoint: ServiceEndpoint,
        error: httpx.HTTPError,
        text: str,
    ) -> None:
        if "SSL" in text:
            hint = "check ca, certificate and address"
        else:
            hint = "check that the service runs at that address"
        super().__init__(None, f"{endpoint} does not answer: {text} ({hint})", code="no-answer")
        self.may_have_arrived = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
        """Whether the request may have been carried out, and only its answer was lost."""
