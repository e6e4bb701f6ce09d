"""Attacks on the service's API: handshakes of TLS that go no further, and strangers that hold
connections: silent, with a header or a body that never ends, or with an answer that they do not
read.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.soak.attacks.target import Target, Telling
from tests.soak.handshakes import begin_handshakes

HANDSHAKES = 2000
STRANGERS = 1000
ADDRESSES = 50
_AGAIN_S = 0.1
_DRIP_S = 1.0

_HEADER = b"GET /status HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
_BODY = (
    b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Authorization: Bearer none\r\nContent-Length: 100000\r\n\r\n{"
)
_UNREAD = 4 * b"GET /web/vendor/echarts.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
KINDS = ((b"", b""), (_HEADER, b"x"), (_BODY, b" "), (_UNREAD, b""))
"""The bytes that a stranger sends at first, and then each second."""


def shake_hands(target: Target, tell: Telling) -> None:
    """Begin handshakes as `tests.soak.handshakes` does."""
    tell("hold", f"{HANDSHAKES} connections that begin a handshake")
    begin_handshakes(target.api_port, HANDSHAKES)


def hold_connections(target: Target, tell: Telling) -> None:
    """Hold connections of all kinds from many addresses, and come again when they are closed."""
    asyncio.run(_hold_all(target.api_port, tell))


async def _hold_all(port: int, tell: Telling) -> None:
    tell("hold", f"{STRANGERS} connections of {len(KINDS)} kinds")
    await asyncio.gather(*(_hold(port, number, tell) for number in range(STRANGERS)))


async def _hold(port: int, number: int, tell: Telling) -> None:
    source = f"127.0.2.{1 + number % ADDRESSES}"
    # The number of an address does not tell the kind.
    begins, drips = KINDS[number // ADDRESSES % len(KINDS)]
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(source, 0), limit=1024
            )
            writer.write(begins)
            answer = await _answer(reader, writer, drips)
            if answer and number < ADDRESSES * len(KINDS):
                tell(begins.partition(b" ")[0].decode() or "silent", answer)
            writer.transport.abort()
        await asyncio.sleep(_AGAIN_S)


async def _answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    drips: bytes,
) -> str:
    """Send drop by drop until the other side closes; return the first line that it said."""
    if not drips:
        # Nothing is read: answers stay in the buffers of both sides.
        while not (writer.transport.is_closing() or reader.at_eof() or reader.exception()):
            await asyncio.sleep(_DRIP_S)
        return ""
    while True:
        with suppress(TimeoutError):
            line = await asyncio.wait_for(reader.readline(), _DRIP_S)
            return line.decode(errors="replace") or "closed"
        writer.write(drips)
        await writer.drain()
