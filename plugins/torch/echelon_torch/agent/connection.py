"""A TCP connection as one of its ends sees it."""

from __future__ import annotations

from typing import NamedTuple


class TcpConnection(NamedTuple):
    """A TCP connection over IPv4."""

    local: str
    local_port: int
    remote: str
    remote_port: int


class AgentError(Exception):
    """The agent cannot do what it was asked to; the text is one line."""
