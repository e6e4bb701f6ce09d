"""Connections: how many there may be, which one makes room, and how long a client may hesitate."""

from __future__ import annotations

import asyncio
import errno
import resource
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from starlette.responses import Response
from starlette.types import Message

from echelon.controller.client import Client
from echelon.controller.service.api import connections as module
from echelon.controller.service.api import server
from echelon.controller.service.api.app import create_app
from echelon.controller.service.api.connection_limits import FEWEST, ConnectionLimits, affordable
from echelon.controller.service.api.gate import PIECE, Gate, RequestRates
from echelon.controller.service.api.server import ServerSettings
from echelon.controller.service.api.settings import ApiSettings
from echelon.controller.service.api.tokens import Tokens, TokenSpec, digest
from echelon.controller.service.config import ServerTls
from echelon.controller.service.config_file import ListenAddress
from tests.echelon.service.api.memory import JOB, MemoryService, standby
from tests.echelon.service.api.serving import LOCALHOST, TIMEOUT_S, Serving, serving
from tests.softswitch.p4runtime.test_tls import make_authority

APP = create_app(standby())
ASKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
ANSWER = b'{"alive":true}'
PATIENT = 1000.0
SOON = 0.05


@contextmanager
def limited(service: MemoryService | None = None, **limits: Any) -> Iterator[Serving]:
    """Serve with these limits; times that are not given are too long to end."""
    chosen = ConnectionLimits(**{"request_s": PATIENT, "stalled_s": PATIENT, **limits})
    app = APP if service is None else create_app(service)
    with serving(app, ServerSettings(LOCALHOST, connections=chosen)) as running:
        yield running


def connect(running: Serving, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", running.server.port or 0), TIMEOUT_S, (source, 0))


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server closes the connection or answers."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def ask(connection: socket.socket) -> None:
    """Send a request and read its answer."""
    connection.sendall(ASKED)
    received = b""
    while not received.endswith(ANSWER):
        piece = connection.recv(1000)
        assert piece, received
        received += piece


# -- numbers ---------------------------------------------------------------------------------------


def test_the_longest_idle_connection_makes_room() -> None:
    with limited(per_address=3) as running, ExitStack() as held:
        first, second, third = (held.enter_context(connect(running)) for _ in range(3))
        for connection in (first, second, third, first):
            ask(connection)
        fourth = held.enter_context(connect(running))
        assert is_closed(second), "the first was in use later"
        for connection in (first, third, fourth):
            ask(connection)


def test_an_address_leaves_others_their_connections() -> None:
    with limited(per_address=2) as running, ExitStack() as held:
        other = held.enter_context(connect(running, "127.0.0.2"))
        ask(other)
        mine = [held.enter_context(connect(running)) for _ in range(5)]
        for connection in mine[:3]:
            assert is_closed(connection)
        for connection in (*mine[3:], other):
            ask(connection)


def test_all_addresses_together_are_limited() -> None:
    with limited(total=3) as running, ExitStack() as held:
        several = [
            held.enter_context(connect(running, f"127.0.0.{number}")) for number in range(1, 6)
        ]
        for connection in several[:2]:
            assert is_closed(connection)
        for connection in several[2:]:
            ask(connection)


class _Hurried(module.Listener):
    """A listener that accepts a client in the turn of the event loop in which another opened."""

    arrivals: ClassVar[list[socket.socket]] = []

    def start(self) -> None:
        super().start()
        self._hurry = asyncio.get_running_loop().create_task(self._accept_in_time())

    async def _accept_in_time(self) -> None:
        while not any(opening.done() for opening in self._opening.values()):
            await asyncio.sleep(0)
        address = self._socket.getsockname()
        self.arrivals.append(socket.create_connection(address, TIMEOUT_S))
        self._accept()


def test_a_connection_that_has_just_opened_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "Listener", _Hurried)
    with limited(total=1) as running, connect(running) as first:
        assert is_closed(first)
        with _Hurried.arrivals.pop() as second:
            ask(second)


def test_a_unix_socket_has_no_address(tmp_path: Path) -> None:
    listen = ListenAddress(None, 0, tmp_path / "s")
    settings = ServerSettings(
        listen, connections=ConnectionLimits(total=3, per_address=1, request_s=PATIENT)
    )
    with serving(APP, settings), ExitStack() as held:
        several = [held.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(4)]
        for connection in several:
            connection.settimeout(TIMEOUT_S)
            connection.connect(str(listen.path))
        assert is_closed(several[0])
        for connection in several[1:]:
            ask(connection)


def test_a_request_under_way_is_never_closed() -> None:
    service = MemoryService()
    with limited(service, per_address=2) as running, ExitStack() as held:
        with Client(running.url) as client:
            client.register_job(JOB)
        busy = [held.enter_context(connect(running)) for _ in range(2)]
        for number, connection in enumerate(busy, 1):
            connection.sendall(
                b"GET /jobs/d?wait_s=60 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            while running.call(lambda: service.waiting) < number:
                pass
        assert is_closed(held.enter_context(connect(running)))
        running.wait(service.installed())
        for connection in busy:
            assert connection.makefile("rb").read().startswith(b"HTTP/1.1 200 OK\r\n")
        ask(held.enter_context(connect(running)))


# -- strangers -------------------------------------------------------------------------------------

TOKENS = Tokens([TokenSpec(name="ops", role="operator", sha256=digest("secret"))])
KNOWN = b"GET /status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n"
UNREAD = 100 * b"GET /docs HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def guarded(**limits: Any) -> Iterator[Serving]:
    """Serve with these limits and a token."""
    app = create_app(standby(), ApiSettings(tokens=TOKENS))
    chosen = ConnectionLimits(**{"request_s": PATIENT, "stalled_s": PATIENT, **limits})
    with serving(app, ServerSettings(LOCALHOST, connections=chosen, tokens=TOKENS)) as running:
        yield running


def answered(connection: socket.socket) -> bytes:
    """Ask with a token, and return the first line of the answer, which is read to its end."""
    connection.sendall(KNOWN)
    received = b""
    while not received.endswith(b"}"):
        piece = connection.recv(10_000)
        assert piece, received
        received += piece
    return received.partition(b"\r\n")[0]


@pytest.mark.parametrize("limits", [{"per_address": 4}, {"total": 4}])
def test_strangers_who_do_not_read_keep_nobody_out(limits: dict[str, int]) -> None:
    with guarded(**limits) as running, ExitStack() as held:
        known = held.enter_context(connect(running))
        assert answered(known) == b"HTTP/1.1 200 OK"
        for _ in range(8):
            stranger = held.enter_context(connect(running))
            stranger.sendall(UNREAD)
        for _ in range(3):
            assert answered(held.enter_context(connect(running))) == b"HTTP/1.1 200 OK"
        assert answered(known) == b"HTTP/1.1 200 OK", "strangers do not close it"


@pytest.mark.parametrize("limits", [{"per_address": 4}, {"total": 4}])
def test_a_stranger_does_not_take_the_place_of_an_idle_client_with_a_token(
    limits: dict[str, int],
) -> None:
    with guarded(**limits) as running, ExitStack() as held:
        known = [held.enter_context(connect(running)) for _ in range(4)]
        for connection in known:
            assert answered(connection) == b"HTTP/1.1 200 OK"
        stranger = held.enter_context(connect(running))
        stranger.sendall(ASKED)
        assert is_closed(stranger)
        for connection in known:
            assert answered(connection) == b"HTTP/1.1 200 OK"


def test_who_shows_a_token_does_not_stand_in_line_behind_strangers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "STRANGERS_PER_S", 1)
    with guarded() as running, ExitStack() as held:
        strangers = [held.enter_context(connect(running)) for _ in range(150)]
        for stranger in strangers:
            stranger.sendall(ASKED)
        assert answered(held.enter_context(connect(running))) == b"HTTP/1.1 200 OK"
        served, _, _ = select.select(strangers, [], [], TIMEOUT_S)
        assert served[0].recv(15) == b"HTTP/1.1 200 OK"
        # The turn of the others comes: closed, they would connect again at once.
        assert len(select.select(strangers, [], [], 0)[0]) < len(strangers) / 2


def test_strangers_of_an_address_do_not_stand_in_line_behind_those_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "STRANGERS_PER_S", 4)
    with guarded() as running, ExitStack() as held:
        crowd = [held.enter_context(connect(running)) for _ in range(200)]
        for stranger in crowd:
            stranger.sendall(ASKED)
        other = held.enter_context(connect(running, "127.0.0.2"))
        other.sendall(ASKED)
        assert other.recv(15) == b"HTTP/1.1 200 OK"
        newest = held.enter_context(connect(running))
        newest.sendall(ASKED)
        assert newest.recv(15) == b"HTTP/1.1 200 OK"
        assert len(select.select(crowd, [], [], 0)[0]) < len(crowd) / 2


def test_strangers_have_a_part_of_the_connections() -> None:
    with guarded(total=4) as running, ExitStack() as held:
        strangers = []
        for _ in range(4):
            strangers.append(held.enter_context(connect(running)))
            ask(strangers[-1])
        assert is_closed(strangers[0])
        for connection in strangers[1:]:
            ask(connection)


def test_strangers_who_come_too_fast_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestRates, "admit", lambda self, name, per_s: 1.0)
    with guarded(waiting=0) as running, ExitStack() as held:
        stranger = held.enter_context(connect(running))
        stranger.sendall(ASKED)
        assert is_closed(stranger)
        assert answered(held.enter_context(connect(running))) == b"HTTP/1.1 200 OK"
        false = held.enter_context(connect(running))
        false.sendall(KNOWN.replace(b"secret", b"guess"))
        assert is_closed(false)


def test_a_large_answer_is_sent_in_pieces() -> None:
    sizes, content = [], b"x" * (3 * PIECE + 1)

    async def send(message: Message) -> None:
        sizes.append((len(message.get("body", b"")), message.get("more_body", False)))

    async def receive() -> Message:
        return {"type": "http.request"}

    gate = Gate(Response(content), ApiSettings())
    asyncio.run(
        gate({"type": "http", "method": "GET", "path": "/docs", "headers": []}, receive, send)
    )
    assert sizes[1:] == [(PIECE, True)] * 3 + [(1, False)]


# -- times -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"GET", ASKED[:-2]])
def test_a_client_that_does_not_finish_its_request_is_closed(sent: bytes) -> None:
    with limited(request_s=SOON) as running, connect(running) as connection:
        connection.sendall(sent)
        assert is_closed(connection)


def test_a_later_request_has_the_same_time() -> None:
    with limited(request_s=SOON) as running, ExitStack() as held:
        connection = held.enter_context(connect(running))
        ask(connection)
        connection.sendall(ASKED[:-2])
        assert is_closed(connection)


def test_a_client_that_does_not_read_its_answers_is_closed() -> None:
    with limited(stalled_s=SOON) as running, connect(running) as connection:
        request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with pytest.raises(ConnectionError):
            connection.sendall(100_000 * request)


def test_a_client_that_begins_no_handshake_is_closed(tmp_path: Path) -> None:
    authority = make_authority(tmp_path / "ca")
    authority.issue("server")
    tls = ServerTls(authority.home / "server.crt", authority.home / "server.key", None)
    limits = ConnectionLimits(per_address=2, request_s=SOON)
    with (
        serving(APP, ServerSettings(LOCALHOST, tls, limits)) as running,
        connect(running) as connection,
    ):
        assert is_closed(connection)
    limits = ConnectionLimits(per_address=2, request_s=PATIENT)
    with serving(APP, ServerSettings(LOCALHOST, tls, limits)) as running, ExitStack() as held:
        several = [held.enter_context(connect(running)) for _ in range(5)]
        for connection in several[:3]:
            assert is_closed(connection)
        url = running.url.replace("127.0.0.1", "localhost")
        with Client(url, ca=authority.home / "ca.crt") as client:
            assert client.is_alive()
        assert is_closed(several[3])


# -- descriptors -----------------------------------------------------------------------------------


class _Exhausted(socket.socket):
    """A listening socket that finds no descriptor at first."""

    failures = 0

    def accept(self) -> Any:
        if self.failures < 1:
            self.failures += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_no_descriptor_is_one_line_and_a_later_try(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    monkeypatch.setattr(socket, "socket", _Exhausted)
    with limited() as running, connect(running) as connection:
        ask(connection)
    (record,) = [one for one in caplog.records if "ulimit -n" in str(one.msg)]
    assert record.exc_info is None


@pytest.fixture
def few_files() -> Iterator[int]:
    """Let this process open 512 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    yield 512
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_leave_descriptors_for_switches(few_files: int) -> None:
    wanted = ConnectionLimits(total=1000, request_s=7.0)
    lowered, warning = affordable(wanted, switches=10)
    assert lowered.total < few_files - 10
    assert lowered.request_s == wanted.request_s
    assert warning is not None
    assert str(lowered.total) in warning
    assert lowered.waiting > 0, "clients without a token would all be refused"
    fewer, _ = affordable(wanted, switches=20)
    assert fewer.total < lowered.total - 10
    assert affordable(wanted, switches=10_000)[0].total == FEWEST
    small, warning = affordable(ConnectionLimits(total=50, request_s=7.0), switches=10)
    assert (small.total, small.request_s, warning) == (50, 7.0, None)
    assert 0 < small.waiting < few_files - 50
