"""The API's settings, and its record of every request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from echelon.controller.service.api.tokens import Authenticator


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer, for access log and metrics. It holds no token and no body."""

    method: str
    """The method; ``OTHER`` for one that HTTP does not have."""
    route: str
    """The path's pattern, like ``/jobs/{name}``: few values, fit for a metric's label.

    Empty: no such path.
    """
    path: str
    """The requested path without the query."""
    status: int
    """The status; 499: the client left, or the server stopped, before there was an answer."""
    duration_s: float
    token: str | None
    """Name of the token; None: none was needed, or no known one was given."""
    role: str | None
    client: str | None
    """Address of the client; None: a Unix socket."""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    body_bytes: int = 10**6
    """Maximum size of a request's body in bytes; a larger one is refused (413)."""
    body_timeout_s: float = 30.0
    """Longest time for a body to arrive."""
    requests: int = 1000
    """Maximum number of concurrent requests; others are told to come back (429).

    Liveness and readiness are always answered.
    """
    tokens: Authenticator | None = None
    """The tokens. None: every caller is an operator.

    Then only this machine may reach the listener: `hazards.check_exposure` refuses any other.
    """
    open_metrics: bool = False
    """Whether /metrics answers without a token."""
    observe: Callable[[Exchange], None] | None = None
    """Called after every request, on the event loop."""
