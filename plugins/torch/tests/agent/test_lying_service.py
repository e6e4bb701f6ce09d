"""An agent whose service lies, breaks off or answers nonsense: it says so in printable lines, and
goes on.
"""

from __future__ import annotations

import gzip
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from echelon.controller.client import Client
from echelon_torch.agent.connection import TcpConnection
from echelon_torch.agent.connections import Totals
from echelon_torch.agent.iterations import MeasuredIteration, SentIteration
from echelon_torch.agent.reporting import Reporter
from tests.faults import mentions

PATIENCE_S = 60.0
KNOWN = {
    "job": "a",
    "by": "agent",
    "idle_gap_s": 0.05,
    "addresses": {"h1": "10.0.0.1", "h2": "10.0.0.2"},
}
MANY = {f"h{number}": f"10.1.{number}.1" for number in range(20_000)}
TRUE = {**KNOWN, "connections": {}}
NASTY = (
    "\x1b[2J\x1b]0;owned\x07",
    "a\r\nSet-Cookie: b",
    "\u202e",
    "\x00",
    "x" * 100_000,
    "'; DROP TABLE jobs",
    "../..",
)
VALUES = (
    None,
    True,
    -1,
    1e308,
    [],
    {},
    [[]],
    {"h1": {}},
    {"h1": 7},
    {"h1": None},
    ["10.0.0.1"],
    *NASTY,
)


def answer(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n" + body


def damaged(rng: random.Random) -> bytes:
    """Return what a server answers that is not the service, or one that is out of its mind."""
    key = rng.choice(list(TRUE))
    error = {
        "status": 422,
        "code": rng.choice(NASTY),
        "reason": rng.choice(NASTY),
        "path": rng.choice(NASTY),
    }
    status = rng.choice((400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503))
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: answer(200, json.dumps({**TRUE, key: rng.choice(VALUES)}).encode()),
        lambda: answer(200, json.dumps({name: value for name, value in TRUE.items() if name != key}).encode()),
        lambda: answer(200, json.dumps(rng.choice(VALUES)).encode()),
        lambda: answer(200, b"[" * 100_000),
        lambda: answer(status, b'{"error":' * 50_000),
        lambda: answer(200, rng.randbytes(rng.randrange(2000))),
        lambda: answer(200, gzip.compress(bytes(1 << 24)), "Content-Encoding: gzip"),
        lambda: answer(200, b"not compressed", "Content-Encoding: gzip"),
        lambda: answer(200, json.dumps({**TRUE, "addresses": MANY}).encode()),
        lambda: answer(200, json.dumps({**TRUE, "addresses": {"h1": "10.0.0.1", "\x1b[2J": "10.0.0.2"}}).encode()),
        lambda: answer(200, json.dumps(TRUE).encode("utf-16")),
        lambda: answer(200, json.dumps(TRUE).encode()[:-3], "Content-Type: \x1b[2J"),
        lambda: answer(status, json.dumps({"error": error}).encode()),
        lambda: answer(status, json.dumps({"error": rng.choice(VALUES)}).encode()),
        lambda: answer(status, rng.choice(NASTY).encode()),
        lambda: answer(503, b"", f"Location: {rng.choice(('http://', 'http://[', '//', 'unix:/x', 'http://127.0.0.1:1/'))}"),
        lambda: answer(302, b"", "Location: http://127.0.0.1:1/"),
        lambda: b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        lambda: b"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\nshort",
        lambda: rng.randbytes(rng.randrange(300)),
        lambda: b"",
    )  # fmt: skip
    return rng.choice(ways)()


@contextmanager
def serving(make: Callable[[], bytes | None]) -> Iterator[tuple[str, list[int]]]:
    """Answer each request with what `make` returns; None: hold it.

    Yields the URL, and a count of the requests.
    """
    heard = [0]
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                heard[0] += 1
                try:
                    connection.settimeout(5)
                    connection.recv(1 << 20)
                    made = make()
                    if made is None:
                        held.append(connection)
                        continue
                    connection.sendall(made)
                    connection.close()
                except OSError:
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", heard
        listener.shutdown(socket.SHUT_RDWR)
    for connection in held:
        connection.close()


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the exceptions that ended threads."""
    found: list[object] = []
    monkeypatch.setattr(
        threading, "excepthook", lambda arguments: found.append(arguments.exc_value)
    )
    return found


def to_h2(port: int) -> TcpConnection:
    return TcpConnection("10.0.0.1", port, "10.0.0.2", 29500)


@pytest.mark.parametrize("seed", range(3))
def test_it_outlives_any_answer_and_reports_when_the_service_is_back(
    seed: int, faults: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("echelon_torch.agent.reporting.LONGEST_PAUSE_S", 0.001)
    rng = random.Random(seed)
    is_back = threading.Event()
    lines: list[str] = []

    def make() -> bytes:
        return answer(200, json.dumps(TRUE).encode()) if is_back.is_set() else damaged(rng)

    with serving(make) as (url, heard), Client(url, token="x", timeout_s=5) as client:
        reporter = Reporter(client, "a", "h1", lines.append)
        reporter.start()
        give_up_at = time.monotonic() + PATIENCE_S
        while heard[0] < 120 and not faults:
            assert time.monotonic() < give_up_at, heard
            reporter.update(frozenset({to_h2(heard[0] + 1)}))
            reporter.measured(
                MeasuredIteration(SentIteration(0.0, 1.0, 9), Totals(sent_to={"10.0.0.2": 9}))
            )
            time.sleep(0.002)
        is_back.set()
        reports = reporter.counts.reports
        while reporter.counts.reports <= reports and not faults:
            assert time.monotonic() < give_up_at, lines[-1]
            time.sleep(0.01)
        reporter.stop(PATIENCE_S)
    assert not faults
    assert all(line.isprintable() and len(line) < 3000 for line in lines)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_service_that_never_answers_holds_it_no_longer_than_the_timeout(
    scheme: str, faults: list[object]
) -> None:
    lines: list[str] = []
    with (
        serving(lambda: None) as (url, _),
        Client(url.replace("http", scheme), timeout_s=0.1) as client,
    ):
        reporter = Reporter(client, "a", "h1", lines.append)
        reporter.start()
        reporter.update(frozenset({to_h2(1)}))
        give_up_at = time.monotonic() + PATIENCE_S
        while not lines:
            assert time.monotonic() < give_up_at
            time.sleep(0.01)
        reporter.stop(PATIENCE_S)
    assert mentions(lines[0], url.removeprefix("http://")), lines[0]
    assert not faults


def test_an_answer_without_end_is_given_up(
    faults: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("echelon.controller.client.answers.MAX_ANSWER_BYTES", 1 << 16)
    lines: list[str] = []
    with serving(lambda: answer(200, bytes(1 << 20))) as (url, _), Client(url) as client:
        reporter = Reporter(client, "a", "h1", lines.append)
        reporter.start()
        give_up_at = time.monotonic() + PATIENCE_S
        while not lines:
            assert time.monotonic() < give_up_at
            time.sleep(0.01)
        reporter.stop(PATIENCE_S)
    assert mentions(lines[0], "0 MiB"), lines[0]
    assert not faults
