"""Handshakes of strangers: what is left of them, and how many there may be."""

from __future__ import annotations

import gc
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from echelon.controller.client import Client
from echelon.controller.service.api import connections as module
from echelon.controller.service.api import handshake
from echelon.controller.service.api.app import create_app
from echelon.controller.service.api.client_connection import ClientConnection
from echelon.controller.service.api.connection_limits import ConnectionLimits
from echelon.controller.service.api.handshake import RECORD_BYTES, TlsProtocol
from echelon.controller.service.api.server import ServerSettings
from echelon.controller.service.api.settings import ApiSettings
from echelon.controller.service.api.tokens import Tokens, TokenSpec, digest
from echelon.controller.service.config import ServerTls
from tests.echelon.service.api.memory import standby
from tests.echelon.service.api.serving import LOCALHOST, TIMEOUT_S, Serving, serving
from tests.softswitch.p4runtime.test_tls import make_authority

STRANGERS = 20
PATIENT_S = 1000.0
SOON_S = 0.05
ASKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
TOKENS = Tokens([TokenSpec(name="ops", role="operator", sha256=digest("secret"))])
FOREIGN = ("asyncio", "uvicorn", "h11", "ssl", "socket", "echelon")
"""The modules of whose objects nothing may be left."""

CLIENT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
CLIENT.check_hostname = False
CLIENT.verify_mode = ssl.CERT_NONE


def client_hello() -> bytes:
    to_client, from_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        CLIENT.wrap_bio(to_client, from_client).do_handshake()
    return from_client.read()


HELLO = client_hello()
LONG_HELLO = b"\x16\x03\x01\x3f\xff\x01\x01\xff\x00\x03\x03" + bytes(0x3FFF - 6)
"""A whole record with the beginning of a ClientHello of 130,816 bytes."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    issuer = make_authority(directory / "ca")
    issuer.issue("server")
    return issuer.home


@contextmanager
def limited(home: Path, *, guarded: bool = False, **limits: Any) -> Iterator[Serving]:
    """Serve by TLS with these limits; with `guarded` clients need a token."""
    chosen = ConnectionLimits(**{"request_s": PATIENT_S, "stalled_s": PATIENT_S, **limits})
    tokens = TOKENS if guarded else None
    app = create_app(standby(), ApiSettings(tokens=tokens) if guarded else None)
    tls = ServerTls(home / "server.crt", home / "server.key", None)
    with serving(app, ServerSettings(LOCALHOST, tls, chosen, tokens)) as running:
        yield running


def connect(running: Serving, source: str = "127.0.0.1") -> socket.socket:
    address = "127.0.0.1", running.server.port or 0
    return socket.create_connection(address, TIMEOUT_S, (source, 0))


def is_closed(connection: socket.socket) -> bool:
    """Read until the server closes the connection; false: it sends nothing more."""
    try:
        while connection.recv(10_000):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


# -- what is left ----------------------------------------------------------------------------------


def go(connection: socket.socket) -> None:
    connection.close()


def hello(connection: socket.socket) -> None:
    connection.sendall(HELLO)
    connection.close()


def answered_hello(connection: socket.socket) -> None:
    connection.sendall(HELLO)
    assert connection.recv(1)
    connection.close()


def silent_after_hello(connection: socket.socket) -> None:
    connection.sendall(HELLO)


def half(connection: socket.socket) -> None:
    connection.sendall(HELLO[:100])
    connection.close()


def silent_after_half(connection: socket.socket) -> None:
    connection.sendall(HELLO[:100])


def silent_after_record(connection: socket.socket) -> None:
    connection.sendall(LONG_HELLO)


def endless(connection: socket.socket) -> None:
    """Send a ClientHello that never ends, until the server has enough."""
    connection.sendall(LONG_HELLO)
    record = b"\x16\x03\x01\x3f\xff" + bytes(0x3FFF)
    with suppress(ConnectionError):
        for _ in range(6):
            connection.sendall(record)
    assert is_closed(connection)


def nonsense(connection: socket.socket) -> None:
    connection.sendall(ASKED)
    connection.close()


def finished(connection: socket.socket) -> None:
    CLIENT.wrap_socket(connection).close()


def finished_and_silent(connection: socket.socket) -> None:
    CLIENT.wrap_socket(connection).detach()


def request(connection: socket.socket) -> None:
    with CLIENT.wrap_socket(connection) as wrapped:
        wrapped.sendall(ASKED)
        assert wrapped.recv(1)


def request_and_go(connection: socket.socket) -> None:
    with CLIENT.wrap_socket(connection) as wrapped:
        wrapped.sendall(3 * b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")


def request_and_reset(connection: socket.socket) -> None:
    with CLIENT.wrap_socket(connection) as wrapped:
        wrapped.sendall(ASKED)
        assert wrapped.recv(1)
        wrapped.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


KINDS = [
    go,
    hello,
    answered_hello,
    silent_after_hello,
    half,
    silent_after_half,
    silent_after_record,
    endless,
    nonsense,
    finished,
    finished_and_silent,
    request,
    request_and_go,
    request_and_reset,
]


@contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def left() -> list[str]:
    """Return the types of what is left of connections."""
    types = (ClientConnection, TlsProtocol)
    return [type(each).__name__ for each in gc.get_objects() if isinstance(each, types)]


def wait_for_nothing_left() -> None:
    until = time.monotonic() + TIMEOUT_S
    while left():
        assert time.monotonic() < until, left()
        time.sleep(SOON_S)


def garbage() -> list[str]:
    """Collect what is in cycles, and return the types of the libraries' objects among it."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        types = [type(each) for each in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    return [each.__name__ for each in types if each.__module__.startswith(FOREIGN)]


@pytest.mark.parametrize("stranger", KINDS)
def test_nothing_is_left_for_the_collector(
    stranger: Callable[[socket.socket], None], authority: Path
) -> None:
    """The service's collector comes rarely: what cycles hold would fill the memory till then."""
    with limited(authority, request_s=10 * SOON_S) as running, ExitStack() as held:
        # What is made once, at the first connection, is not theirs.
        stranger(held.enter_context(connect(running)))
        time.sleep(SOON_S)
        with no_collector():
            for _ in range(STRANGERS):
                stranger(held.enter_context(connect(running)))
            wait_for_nothing_left()
            assert len(garbage()) < STRANGERS / 2


def test_a_connection_without_tls_leaves_nothing() -> None:
    settings = ServerSettings(LOCALHOST, None, ConnectionLimits(request_s=10 * SOON_S), None)
    with serving(create_app(standby()), settings) as running, no_collector():
        for _ in range(STRANGERS):
            with connect(running) as stranger:
                stranger.sendall(ASKED)
                assert stranger.recv(1)
        wait_for_nothing_left()
        assert len(garbage()) < STRANGERS / 2


def test_those_who_make_room_leave_nothing(
    authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HANDSHAKES_AT_A_TIME", 1)
    with limited(authority) as running, ExitStack() as held, no_collector():
        for _ in range(STRANGERS):
            stranger = held.enter_context(connect(running))
            stranger.sendall(HELLO)
            assert stranger.recv(1)
        assert len(left()) == 2
        stranger.close()
        wait_for_nothing_left()
        assert len(garbage()) < STRANGERS / 2


def test_a_buffer_is_as_small_as_a_record(authority: Path) -> None:
    with limited(authority) as running, connect(running) as stranger:
        stranger.sendall(HELLO)
        assert stranger.recv(1)
        (protocol,) = [each for each in gc.get_objects() if isinstance(each, TlsProtocol)]
        size = running.call(lambda: len(protocol.get_buffer(-1)))
        assert size == RECORD_BYTES < 17_000


def test_who_sends_too_much_in_a_handshake_is_closed(authority: Path) -> None:
    with limited(authority) as running, connect(running) as stranger:
        endless(stranger)


# -- how many there may be -------------------------------------------------------------------------


def test_the_oldest_handshake_makes_room(authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HANDSHAKES_AT_A_TIME", 4)
    with limited(authority) as running, ExitStack() as held:
        other = held.enter_context(connect(running, "127.0.0.2"))
        other.sendall(HELLO)
        assert other.recv(1)
        strangers = []
        for _ in range(10):
            strangers.append(held.enter_context(connect(running)))
            strangers[-1].sendall(HELLO)
            assert strangers[-1].recv(1)
        for stranger in strangers[:7]:
            assert is_closed(stranger)

        # Who has finished its handshake makes no room for those who begin one.
        for stranger in (*strangers[7:], other):
            stranger.settimeout(SOON_S)
            assert not is_closed(stranger)
        url = running.url.replace("127.0.0.1", "localhost")
        with Client(url, ca=authority / "ca.crt") as client:
            assert client.is_alive()
            for _ in range(10):
                held.enter_context(connect(running)).sendall(HELLO)
            assert client.is_alive()


def test_an_operator_is_answered_beside_strangers(authority: Path) -> None:
    with limited(authority, guarded=True) as running, ExitStack() as held:
        for number in range(100):
            stranger = held.enter_context(connect(running, f"127.0.0.{2 + number % 5}"))
            stranger.sendall((HELLO, HELLO[:100], LONG_HELLO, b"")[number % 4])
        url = running.url.replace("127.0.0.1", "localhost")
        with Client(url, ca=authority / "ca.crt", token="secret") as client:
            assert client.status()


def test_who_has_gone_takes_no_turn(authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    async def begin(*arguments: Any) -> None:
        begun.append(arguments)
        await handshake.open_connection(*arguments)

    monkeypatch.setattr(module, "HANDSHAKES_PER_S", 1)
    monkeypatch.setattr(module, "open_connection", begin)
    with limited(authority, guarded=True) as running, ExitStack() as held:
        first, patient = (held.enter_context(connect(running)) for _ in range(2))
        for _ in range(STRANGERS):
            hello(connect(running))
        patient.sendall(HELLO)
        # The newest come first, so the patient client would have its turn after all others.
        assert patient.recv(1)
        first.close()
    assert len(begun) <= 3
