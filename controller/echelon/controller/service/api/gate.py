"""The gate that every request passes.

It authenticates and authorises, limits concurrent requests, and writes the access record.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import secrets
import time
from collections.abc import Callable
from math import ceil

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from echelon.controller.addresses import is_loopback
from echelon.controller.machine.jobs import Quota
from echelon.controller.service import logs
from echelon.controller.service.api import pages
from echelon.controller.service.api.answers import RETRY_AFTER_S, RequestError, refusal
from echelon.controller.service.api.settings import ApiSettings, Exchange
from echelon.controller.service.api.tokens import NO_LIMITS, Principal
from echelon.controller.service.trail import ORIGIN, Origin
from echelon.model.quantities import excerpt

Clock = Callable[[], float]


class RequestRates:
    """Token buckets, by the names of tokens.

    A bucket holds the requests of one second, and is full at first.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """The requests that were left in each bucket, and the time of that."""

    def admit(self, name: str, per_s: int) -> float:
        """Admit one request, and return 0; or return the seconds until one will be admitted."""
        now_s = self._clock()
        full = float(per_s)
        left, checked_at_s = self._buckets.get(name, (full, now_s))
        refill = (now_s - checked_at_s) * per_s
        left = min(full, left + refill)
        if left < 1:
            self._buckets[name] = left, now_s
            return (1 - left) / per_s
        self._buckets[name] = left - 1, now_s
        return 0.0


log = logs.get("echelon.api")

NOTE_TOKEN = "note_token"
"""The key, in `scope["state"]`, of the function to call when a request has a valid token."""
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
METRICS_PATH = "/metrics"
TOKENLESS_PATHS = OPEN_PATHS.union(
    {pages.PATH}, *(plug_in.paths() for plug_in in pages.other_pages())
)
"""Paths that say nothing which only clients may know."""
READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing.

Every other method requires an operator, or an agent at its paths.
"""
METHODS = READING_METHODS | {"POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT"}
OTHER_METHOD = "OTHER"
"""The method of a request whose own HTTP does not know.

Clients can invent methods, and counting requests by method must not grow with that.
"""
REFUSED = frozenset({401, 403, 429})
"""Statuses that ask for attention.

Warnings that repeat are limited, so clients without a token cannot fill the log.
"""
CLIENT_LEFT = 499
_AGENT_PATH = re.compile(r"/jobs/(?P<job>[^/]+)/(connections(/[^/]+)?|iterations/[^/]+|classes)")
"""The paths that agents use."""
_NAMED = 5
"""The most jobs that an error names."""
PIECE = 1 << 16
"""Answers are sent in pieces of this many bytes.

The next piece waits until the connection has taken the last one. So the send buffer of a client
that does not read holds about one piece.
"""
LOGGED_PATH = 200
"""Maximum length of a path in the access record, in characters."""


class Gate:
    """The ASGI middleware of all requests."""

    def __init__(self, app: ASGIApp, settings: ApiSettings) -> None:
        self._app = app
        self._settings = settings
        self._rates = RequestRates()
        self._running = 0

    async def __call__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = time.perf_counter()
        request = secrets.token_hex(8)
        answer = _Answer(send, scope["method"], request)
        self._running += 1
        try:
            response = self._response(scope, request)
            if scope["method"] == "HEAD":
                scope["method"] = "GET"
            await response(scope, receive, answer.send)
        except (ClientDisconnect, _UnsentError):
            # There is nobody to answer.
            answer.status = None
        except asyncio.CancelledError:
            # The server stops, and this took longer than it waits. Swallow the cancellation: the
            # task ends here, and the server would print a traceback.
            if answer.status is None:
                reason = "the controller is stopping (ask again)"
                headers = {"Retry-After": str(RETRY_AFTER_S), "Connection": "close"}
                response = refusal(RequestError(503, reason, headers=headers))
                await response(scope, receive, answer.send)
        except Exception:
            fault = secrets.token_hex(6)
            path = scope["path"][:LOGGED_PATH]
            log.exception(
                "fault",
                fault=fault,
                method=answer.method,
                path=path,
            )
            if answer.status is not None:
                raise
            reason = f"unexpected error in the controller (its log has the details under {fault})"
            response = refusal(RequestError(500, reason))
            await response(scope, receive, answer.send)
        finally:
            self._running -= 1
            self._record(scope, answer, time.perf_counter() - began_s)

    def _response(self, scope: Scope, request: str) -> ASGIApp:
        """Return what answers a request: the application, or the reason of a refusal."""
        try:
            self._check_load(scope)
            principal = self._identify(scope)
            # Also for a request that is refused below: the access record names its token.
            scope["principal"] = principal
            if principal is not None and principal.token is not None:
                state = scope.get("state", {})
                if NOTE_TOKEN in state:
                    state[NOTE_TOKEN]()
            self._check_rate(principal)
            _check_role(principal, scope["method"], scope["path"])
        except RequestError as error:
            return refusal(error)
        origin = _origin(request, principal, scope)
        ORIGIN.set(origin)
        return self._app

    def _check_load(self, scope: Scope) -> None:
        """Check the number of concurrent requests. Raise `RequestError`."""
        most = self._settings.requests
        if self._running > most and scope["path"] not in OPEN_PATHS:
            reason = f"{most} requests are being answered already (come back in a second)"
            raise RequestError(429, reason, headers={"Retry-After": str(RETRY_AFTER_S)})

    def _check_rate(self, principal: Principal | None) -> None:
        """Check the number of requests of a token in a second. Raise `RequestError`."""
        if principal is None or principal.token is None:
            return
        token = principal.token
        most = principal.limits.requests_per_s
        if most is None:
            return
        wait_s = self._rates.admit(token, most)
        if wait_s:
            reason = f"token '{token}' has made its {most} requests of this second"
            headers = {"Retry-After": str(ceil(wait_s))}
            raise RequestError(429, f"{reason} (come back later)", headers=headers)

    def _identify(self, scope: Scope) -> Principal | None:
        """Return who asks; None: this path does not require it. Raise `RequestError`."""
        path = scope["path"]
        if path in TOKENLESS_PATHS:
            return None
        if path == METRICS_PATH and self._settings.open_metrics:
            return None
        headers = Headers(scope=scope)
        if self._settings.tokens is None:
            _check_host(headers.get("host", ""))
            return Principal(None, "operator")

        token = _bearer_token(headers)
        if token is None:
            raise _unauthorised("no token (send it in one header 'Authorization: Bearer TOKEN')")
        principal = self._settings.tokens.authenticate(token)
        if principal is None:
            raise _unauthorised(
                "unknown token (make one with 'echelon token' and add its entry to the tokens file)"
            )
        return principal

    def _record(
        self,
        scope: Scope,
        answer: _Answer,
        duration_s: float,
    ) -> None:
        """Write the access record, and report the request to the observer."""
        principal: Principal | None = scope.get("principal")
        exchange = Exchange(
            method=answer.method if answer.method in METHODS else OTHER_METHOD,
            route=getattr(scope.get("route"), "path", ""),
            path=scope["path"],
            status=CLIENT_LEFT if answer.status is None else answer.status,
            duration_s=duration_s,
            token=principal.token if principal else None,
            role=principal.role if principal else None,
            client=_client_address(scope),
        )
        log.log(
            _level(exchange),
            "request",
            request=answer.request,
            method=exchange.method,
            path=exchange.path[:LOGGED_PATH],
            route=exchange.route,
            status=exchange.status,
            duration_s=round(duration_s, 6),
            client=exchange.token,
            role=exchange.role,
            address=exchange.client,
        )
        if self._settings.observe is not None:
            self._settings.observe(exchange)


class _Answer:
    """A view of an answer as it is sent. The answer to HEAD is that to GET without its body."""

    def __init__(
        self,
        send: Send,
        method: str,
        request: str,
    ) -> None:
        self._send = send
        self.method = method
        self.request = request
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message.setdefault("headers", [])
            headers.append((b"x-request-id", self.request.encode()))
            names = {name for name, _ in headers}
            if b"cache-control" not in names:
                headers.append((b"cache-control", b"no-store"))
            headers.append((b"x-content-type-options", b"nosniff"))
        elif message["type"] == "http.response.body" and self.method == "HEAD":
            message = {**message, "body": b""}
        try:
            await self._send_in_pieces(message)
        except Exception as error:
            raise _UnsentError from error

    async def _send_in_pieces(self, message: Message) -> None:
        body = message.get("body", b"")
        last = max(0, len(body) - 1) // PIECE * PIECE
        if last == 0:
            await self._send(message)
            return
        for start in range(0, last, PIECE):
            piece = body[start : start + PIECE]
            await self._send({**message, "body": piece, "more_body": True})
        await self._send({**message, "body": body[last:]})


class _UnsentError(Exception):
    """The connection accepts no answer.

    What came after the headers was not HTTP, for example, and has been answered.
    """


def _level(exchange: Exchange) -> int:
    if exchange.status in REFUSED:
        return logging.WARNING
    if exchange.method in READING_METHODS:
        return logging.DEBUG
    return logging.INFO


def _origin(
    request: str,
    principal: Principal | None,
    scope: Scope,
) -> Origin:
    token = None
    limits = NO_LIMITS
    if principal is not None:
        token = principal.token
        limits = principal.limits
    quota = Quota(token, limits.jobs, limits.flows)
    return Origin(request, token, _client_address(scope), quota)


def _client_address(scope: Scope) -> str | None:
    """Return the address of the client; None: a Unix socket."""
    client = scope.get("client")
    return client[0] if client else None


def _check_role(
    principal: Principal | None,
    method: str,
    path: str,
) -> None:
    if principal is None or principal.role == "operator":
        return
    if principal.role == "agent":
        _check_agent(principal, path)
    elif method not in READING_METHODS:
        reason = f"token '{principal.token}' is {principal.role} (use one with the role operator)"
        raise RequestError(403, reason)


def _check_agent(principal: Principal, path: str) -> None:
    """Refuse an agent all but what `echelon agent` asks for, of its own jobs."""
    token = principal.token
    match = _AGENT_PATH.fullmatch(path)
    if match is None:
        reason = f"token '{token}' is agent (use one with the role operator or read-only)"
        raise RequestError(403, reason)
    if principal.only_jobs is not None and match["job"] not in principal.only_jobs:
        jobs = ", ".join(sorted(principal.only_jobs)[:_NAMED])
        reason = f"token '{token}' is for other jobs: {jobs} (use one for this job)"
        raise RequestError(403, reason)


def _bearer_token(headers: Headers) -> str | None:
    """Return the token of a request; None: it has none, or several headers."""
    credentials = headers.getlist("authorization")
    if len(credentials) != 1:
        return None
    scheme, _, token = credentials[0].partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        return None
    return token


def _unauthorised(reason: str) -> RequestError:
    return RequestError(401, reason, headers={"WWW-Authenticate": 'Bearer realm="echelon"'})


def _check_host(host: str) -> None:
    """Refuse a foreign Host header when there are no tokens.

    The service then serves only this machine, but a web page in its browser may have a name that
    was made to resolve here (DNS rebinding). The page's requests carry that name.
    """
    if not host.endswith("]") and ":" in host:
        name = host.rpartition(":")[0]
    else:
        name = host
    name = name.strip("[]")
    if not name or is_loopback(name):
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        reason = (
            f"{excerpt(host)} is not a name of this machine (no tokens are configured: use"
            " localhost)"
        )
        raise RequestError(403, reason) from None
