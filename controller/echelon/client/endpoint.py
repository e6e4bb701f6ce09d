"""The address of a controller: an HTTP(S) URL or a Unix socket."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from echelon.client.errors import ClientError
from echelon.quantities import shown
from echelon.service.api.exposure import is_loopback

UNIX = "unix:"


@dataclass(frozen=True, slots=True)
class ServiceEndpoint:
    base: str
    """``http://host:port``, without a path."""
    socket: str | None = None
    """Path of a Unix socket; `base` is then only a name."""

    @property
    def is_private(self) -> bool:
        """Whether no third party can listen on the connection."""
        return (
            self.socket is not None or self.base.startswith("https:") or is_loopback(urlsplit(self.base).hostname or "")
        )

    def __str__(self) -> str:
        return f"{UNIX}{self.socket}" if self.socket is not None else self.base


def parse_endpoint(url: str) -> ServiceEndpoint:
    """Parse a controller's URL. Raise `ClientError`."""
    text = url.strip()
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX).removeprefix("//")
        if path:
            return ServiceEndpoint("http://localhost", path)
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid or parts.username is not None or parts.path.strip("/") or parts.query or parts.fragment:
        # The part before an @, or after it, may be a password.
        text = "the URL" if "@" in text else shown(text)
        raise ClientError(None, f"{text} is not the URL of a controller (write it as https://ctl1:8080 or unix:/path)")
    return ServiceEndpoint(f"{parts.scheme}://{parts.netloc}")


def parse_endpoints(urls: str) -> Sequence[ServiceEndpoint]:
    """Parse one URL, or several controllers' URLs separated by commas."""
    return tuple(dict.fromkeys(parse_endpoint(url) for url in urls.split(",")))


def client_context(
    ca: str | Path | None, certificate: str | Path | tuple[str | Path, str | Path] | None
) -> ssl.SSLContext:
    """Return a context for TLS 1.2 or later. Raise `ClientError`.

    `ca` must have signed the server's certificate (None: the system's authorities); `certificate` is the client's own,
    with its key, in one file or as a pair of files.
    """
    pair = (certificate, None) if isinstance(certificate, str | Path) else certificate
    for path in (ca, *(pair or ())):
        if path is not None:
            _check_readable(path)
    try:
        context = ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        raise ClientError(None, f"{ca} does not hold certificates in PEM form (correct the file)") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if pair is not None:
        try:
            context.load_cert_chain(pair[0], pair[1], password=_no_password)
        except (ssl.SSLError, PermissionError):
            names = " and ".join(str(path) for path in pair if path is not None)
            reason = f"{names} do not hold a certificate and its unencrypted key in PEM form (correct the files)"
            raise ClientError(None, reason) from None
    return context


def _no_password() -> str:
    raise PermissionError


def _check_readable(path: str | Path) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise ClientError(None, f"{path}: {error.strerror or error} (check the path)") from None
