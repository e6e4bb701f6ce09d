"""The beginning of a connection: its TLS handshake, if it has one, with little memory.

asyncio reads TLS into a buffer of 256 KiB for each connection, and what it makes for one refers to
itself: at the end of a handshake that failed, the buffer stays until Python's collector looks for
cycles. The service lets it look rarely (`garbage`), and strangers can begin very many handshakes.
So buffers are as small as TLS allows, and nothing that refers to itself is left.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from asyncio.sslproto import SSLProtocol

from echelon.controller.service.api.client_connection import unlink

RECORD_BYTES = (1 << 14) + 256 + 5
"""The longest record of TLS 1.3: content, expansion, header (RFC 8446, 5.2). In bytes."""

HANDSHAKE_BYTES = 32 << 10
"""The most that a client may send in its handshake, in bytes.

A ClientHello has 2 kB at most in practice, and certificates of a client some more. OpenSSL takes
128 kB, and keeps them more than twice.
"""


class TlsProtocol(SSLProtocol):
    """asyncio's TLS with a small buffer, and without a cycle through what it leaves."""

    max_size = RECORD_BYTES
    """The size of its buffer, and the most that it decrypts at a time."""

    def __init__(
        self,
        protocol: asyncio.Protocol,
        tls: ssl.SSLContext,
        is_over: asyncio.Future[None],
        handshake_s: float,
    ) -> None:
        """`is_over` gets the result, or the fault, of the handshake."""
        super().__init__(
            is_over.get_loop(),
            protocol,
            tls,
            is_over,
            server_side=True,
            ssl_handshake_timeout=handshake_s,  # type: ignore[arg-type]  # a part of a second, too
        )
        self._is_over = is_over
        self._received_bytes = 0

    def buffer_updated(self, nbytes: int) -> None:
        if not self._is_over.done():
            self._received_bytes += nbytes
            if self._received_bytes > HANDSHAKE_BYTES:
                self._is_over.cancel()
                return
        super().buffer_updated(nbytes)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket_transport = transport
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        unlink(self._socket_transport)


def has_gone(accepted: socket.socket) -> bool:
    """Return whether a client has closed its end: then it cannot finish a TLS handshake."""
    poll = select.poll()
    poll.register(accepted, select.POLLRDHUP)
    return bool(poll.poll(0))


async def open_connection(
    accepted: socket.socket,
    protocol: asyncio.Protocol,
    tls: ssl.SSLContext | None,
    handshake_s: float,
) -> None:
    """Return when `protocol` has its transport, after a TLS handshake of at most `handshake_s`.

    A handshake that fails or is cancelled ends the connection at once.
    """
    loop = asyncio.get_running_loop()
    if tls is None:
        await loop.connect_accepted_socket(lambda: protocol, accepted)
        return

    is_over = loop.create_future()
    wrapped = TlsProtocol(protocol, tls, is_over, handshake_s)
    transport, _ = await loop.connect_accepted_socket(lambda: wrapped, accepted)
    try:
        await is_over
    except BaseException:
        transport.abort()
        raise


def has_opened(opening: asyncio.Task[None]) -> bool:
    """Return whether a connection is open: its handshake, if any, is over without a fault."""
    if not opening.done() or opening.cancelled():
        return False
    fault = opening.exception()
    if fault is None:
        return True
    # A frame of asyncio's in the traceback refers to the fault and to the TLS buffer: without this,
    # they would keep each other alive.
    fault.__traceback__ = None
    return False
