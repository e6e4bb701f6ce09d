"""What the API is told at its start, and what it tells about every request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from echelon.service.api.tokens import Authenticator


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer, for access log and metrics. Holds no token and no body."""

    method: str
    """``OTHER`` for one that is none of HTTP's."""
    route: str
    """The path's pattern, like ``/jobs/{name}``: few values, fit for a metric's label. Empty: no such path."""
    path: str
    """As asked for, without the query."""
    status: int
    """499: the client left, or the server stopped, before there was an answer."""
    duration_s: float
    token: str | None
    """Name of the token; None: none was needed, or none known was given."""
    role: str | None
    client: str | None
    """Address of the other end; None: a Unix socket."""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    body_bytes: int = 10**6
    """A request's body may have so many, after which it is refused (413)."""
    body_timeout_s: float = 30.0
    """So long may a body take to arrive."""
    requests: int = 1000
    """At most so many at a time; more are told to come back (429). Liveness and readiness are always answered."""
    tokens: Authenticator | None = None
    """None: every caller is an operator. For listeners that only this machine reaches: see `exposure`."""
    open_metrics: bool = False
    """/metrics answers without a token."""
    observe: Callable[[Exchange], None] | None = None
    """Called after every request, on the event loop."""
