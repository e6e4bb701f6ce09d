"""The URLs of controllers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import httpx

from echelon.controller.addresses import is_loopback
from echelon.controller.client.errors import ClientError
from echelon.model.quantities import excerpt

UNIX = "unix:"
DEFAULT_URL = "http://127.0.0.1:8080"
URL_VARIABLE = "ECHELON_URL"


@dataclass(frozen=True, slots=True)
class ServiceEndpoint:
    """The address of a controller."""

    base: str
    """``http://host:port``, without a path."""
    socket: str | None = None
    """Path of a Unix socket; `base` is then only a name."""

    @property
    def is_private(self) -> bool:
        """Whether no third party can listen on the connection."""
        if self.socket is not None or self.base.startswith("https:"):
            return True
        return is_loopback(urlsplit(self.base).hostname or "")

    def __str__(self) -> str:
        if self.socket is not None:
            return f"{UNIX}{self.socket}"
        return self.base


def parse_endpoint(url: str) -> ServiceEndpoint:
    """Parse a controller's URL. Raise `ClientError`."""
    text = url.strip()
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX).removeprefix("//")
        if path:
            return ServiceEndpoint("http://localhost", path)
    try:
        parts = urlsplit(text)
        is_controller = _has_host(parts) and not _has_more(parts)
    except ValueError:
        is_controller = False
    if not is_controller:
        # The part before an @, or after it, may be a password.
        name = "the URL" if "@" in text else excerpt(text)
        raise ClientError(
            None,
            f"{name} is not the URL of a controller (write it as https://ctl1:8080 or unix:/path)",
        )
    return ServiceEndpoint(f"{parts.scheme}://{parts.netloc}")


def _has_host(parts: SplitResult) -> bool:
    """Return whether the URL has a scheme and host. Raise `ValueError` for a port that is none."""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return False
    return parts.port is None or parts.port > 0


def _has_more(parts: SplitResult) -> bool:
    """Return whether the URL has a part that the URL of a controller never has."""
    path = parts.path.strip("/")
    return bool(parts.username is not None or path or parts.query or parts.fragment)


def parse_endpoints(urls: str) -> Sequence[ServiceEndpoint]:
    """Parse one URL, or several controllers' URLs separated by commas."""
    endpoints = [parse_endpoint(url) for url in urls.split(",")]
    return tuple(dict.fromkeys(endpoints))


def check_socket(endpoint: ServiceEndpoint) -> None:
    """Raise `httpx.ConnectError` if there is no socket at the endpoint's path."""
    if endpoint.socket is not None and not Path(endpoint.socket).is_socket():
        raise httpx.ConnectError("there is no such socket")
