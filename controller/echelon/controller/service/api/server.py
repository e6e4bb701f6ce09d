"""The listener: uvicorn inside the daemon's event loop, on a TCP port or a Unix socket.

Making an `ApiServer` binds sockets and reads certificates, so that their faults are reported before
anything else of the daemon starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from echelon.controller.service.api.client_connection import HEADER_BYTES, ClientConnection
from echelon.controller.service.api.connection_limits import ConnectionLimits
from echelon.controller.service.api.connections import Listener
from echelon.model.documents import DocumentError
from echelon.model.errors import Code, CodedError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from echelon.controller.service.api.tokens import Authenticator
    from echelon.controller.service.config import ServerTls
    from echelon.controller.service.config_file import ListenAddress

BACKLOG = 4096
KEEP_ALIVE_S = 75
"""Keep-alive time.

It is longer than clients and proxies commonly keep an idle connection, so that they close it, and
this server never closes it under a request.
"""
DRAIN_S = 5
"""Time that requests under way may take to end when the server stops."""
LAST_WORD_S = 1
SOCKET_MODE = 0o600
"""Permissions of a Unix socket, unless the operator says otherwise: for the daemon's own user."""


class ListenError(CodedError):
    """The server cannot listen on the address. One line."""

    code: Code = "cannot-listen"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    listen: ListenAddress
    tls: ServerTls | None = None
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    tokens: Authenticator | None = None
    """The tokens by which clients are told from strangers; None: there are none."""
    socket_mode: int = SOCKET_MODE
    keep_alive_s: int = KEEP_ALIVE_S
    drain_s: int = DRAIN_S


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the daemon."""
        yield


class ApiServer:
    """A server that listens from its creation, and answers while `serve` runs."""

    def __init__(self, app: FastAPI, settings: ServerSettings) -> None:
        """Bind the socket and read the certificates. `app` is the result of `create_app`.

        Raise `ListenError` for the address, `DocumentError` for a certificate, key or authority.
        """
        self._settings = settings
        self._tls = None if settings.tls is None else server_context(settings.tls)
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=settings.keep_alive_s,
            timeout_graceful_shutdown=settings.drain_s,
            h11_max_incomplete_event_size=HEADER_BYTES,
        )
        config.load()
        self._stopping: asyncio.Event = app.state.stopping
        self._server = _Server(config)
        self._socket = _bind(settings.listen, settings.socket_mode)
        make = partial(ClientConnection, config, self._server.server_state)
        self._listener = Listener(
            self._socket, settings.connections, make, self._tls, settings.tokens
        )
        self.url = self._url()
        """URL for clients: ``http://127.0.0.1:8080``, ``https://...`` or ``unix:/path``.

        It has the chosen port if 0 was configured.
        """

    @property
    def port(self) -> int | None:
        """The TCP port; None: a Unix socket."""
        if self._settings.listen.path is not None:
            return None
        return int(self._socket.getsockname()[1])

    async def serve(self) -> None:
        """Answer requests until `stop`.

        Return when those under way are answered, `drain_s` seconds later at the latest.
        """
        try:
            self._listener.start()
            # The listener accepts connections, so uvicorn gets no sockets to listen on.
            await self._server.serve(sockets=[])
            # Requests that took longer were cancelled; each tells its client so.
            late = set(self._server.server_state.tasks)
            if late:
                await asyncio.wait(late, timeout=LAST_WORD_S)
        finally:
            self.close()

    def stop(self) -> None:
        """Let `serve` end.

        Safe to call more than once, and from a signal handler of the event loop.
        """
        self._stopping.set()
        self._listener.close()
        self._server.should_exit = True

    def close(self) -> None:
        """Release the address, also for a server that never served."""
        self._socket.close()
        path = self._settings.listen.path
        if path is not None:
            path.unlink(missing_ok=True)

    def reload_certificate(self) -> None:
        """Read certificate and key again; new connections get them.

        Raise `DocumentError`: then the old ones stay in force.
        """
        if self._tls is not None and self._settings.tls is not None:
            # Load them into a context of its own first: half of a pair must not get into the one in
            # use.
            server_context(self._settings.tls)
            _load_pair(self._tls, self._settings.tls)

    def _url(self) -> str:
        listen = self._settings.listen
        if listen.path is not None:
            return f"unix:{listen.path}"
        scheme = "http" if self._tls is None else "https"
        host, port = self._socket.getsockname()[:2]
        if ":" in host:
            host = f"[{host}]"
        return f"{scheme}://{host}:{port}"


def server_context(tls: ServerTls) -> ssl.SSLContext:
    """Return a context for TLS 1.2 or later. Raise `DocumentError`.

    With `client_ca` a client must show a certificate of that authority.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    _load_pair(context, tls)
    if tls.client_ca is not None:
        _check_readable(tls.client_ca)
        try:
            context.load_verify_locations(cafile=tls.client_ca)
        except ssl.SSLError as error:
            reason = _reason(error, "certificates in PEM form")
            raise DocumentError(str(tls.client_ca), "", reason) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load_pair(context: ssl.SSLContext, tls: ServerTls) -> None:
    _check_readable(tls.certificate)
    _check_readable(tls.key)

    def no_password() -> str:
        raise _EncryptedError

    try:
        context.load_cert_chain(tls.certificate, tls.key, password=no_password)
    except _EncryptedError:
        reason = "is encrypted (give a key without a passphrase)"
        raise DocumentError(str(tls.key), "", reason) from None
    except ssl.SSLError as error:
        file = tls.key
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = f"is not the key of {tls.certificate} (give the key that goes with it)"
        elif _holds_certificate(tls.certificate):
            reason = _reason(error, "a private key in PEM form")
        else:
            file = tls.certificate
            reason = _reason(error, "a certificate in PEM form")
        raise DocumentError(str(file), "", reason) from None


class _EncryptedError(Exception):
    pass


def _holds_certificate(path: Path) -> bool:
    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        return False
    return True


def _reason(error: ssl.SSLError, wanted: str) -> str:
    fault = error.reason or "no PEM lines"
    fault = fault.replace("_", " ").lower()
    return f"does not hold {wanted}: {fault} (correct the file)"


def _check_readable(path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise DocumentError(str(path), "", f"{error.strerror or error} (check the path)") from None


def _bind(listen: ListenAddress, mode: int) -> socket.socket:
    try:
        if listen.path is not None:
            return _bind_unix(listen.path, mode)
        return _bind_tcp(listen.host or "", listen.port)
    except OSError as error:
        hint = _BIND_HINTS.get(error.errno or 0, "check api.listen")
        reason = f"cannot listen on {listen}: {error.strerror or error} ({hint})"
        raise ListenError(reason) from None


_BIND_HINTS = {
    errno.EADDRINUSE: "stop what listens there, or choose another",
    errno.EACCES: "choose a port from 1024, or a directory that this user may write to",
    errno.EADDRNOTAVAIL: "give an address of this machine",
}


def _bind_tcp(host: str, port: int) -> socket.socket:
    infos = socket.getaddrinfo(
        host,
        port,
        type=socket.SOCK_STREAM,
        flags=socket.AI_PASSIVE,
    )
    # A name may resolve to several addresses; clients without a configured URL try 127.0.0.1.
    ipv4_infos = [info for info in infos if info[0] == socket.AF_INET]
    family, kind, protocol, _, address = (ipv4_infos or infos)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _bind_unix(path: Path, mode: int) -> socket.socket:
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Set before bind, so that the file never has wider permissions, not even for a moment.
        os.fchmod(listener.fileno(), mode)
        listener.bind(str(path))
        path.chmod(mode)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _remove_stale(path: Path) -> None:
    """Remove the socket of a server that is gone.

    Anything else at `path` is left, and binding will fail.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
