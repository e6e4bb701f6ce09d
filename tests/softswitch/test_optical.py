"""The emulated optical switch between sockets that stand for ports of switches."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from softswitch.cli import main
from tests.faults import mentions

PORTS = ("a-1", "b-1", "c-1", "d-1")


@pytest.fixture
def ports() -> Iterator[tuple[Path, dict[str, socket.socket]]]:
    """Return a directory and its ports: a is joined with b, and c with d."""
    with TemporaryDirectory(prefix="optical-") as name, ExitStack() as stack:
        directory, made = Path(name), {}
        for port in PORTS:
            made[port] = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            made[port].bind(str(directory / port))
            made[port].setblocking(False)
        for one, other in (("a-1", "b-1"), ("c-1", "d-1")):
            for here, there in ((one, other), (other, one)):
                (directory / f"{here}.peer").symlink_to(directory / there)
        yield directory, made


def link(a: str, b: str) -> dict[str, Any]:
    return {"between": [a, b], "ports": {a: 1, b: 1}}


TURNED = {"go": [link("a", "b"), link("c", "d")], "come": [link("a", "c")]}


def move(
    monkeypatch: pytest.MonkeyPatch, directory: Path, order: object, time_ms: str = "0"
) -> int:
    monkeypatch.setattr(
        "sys.stdin", io.StringIO(order if isinstance(order, str) else json.dumps(order))
    )
    return main(["optical", str(directory), "--time", time_ms])


def log(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "optical.jsonl").read_text().splitlines()]


def send(directory: Path, ports: dict[str, socket.socket], port: str) -> bool:
    """Send a packet out of a port, as a switch does.

    Return whether there is somebody who takes it.
    """
    try:
        ports[port].sendto(b"packet", str(directory / f"{port}.peer"))
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    return True


def test_links_lead_elsewhere(
    monkeypatch: pytest.MonkeyPatch, ports: tuple[Path, dict[str, socket.socket]]
) -> None:
    directory, sockets = ports
    assert move(monkeypatch, directory, TURNED) == 0
    assert send(directory, sockets, "a-1")
    assert sockets["c-1"].recv(100) == b"packet"
    assert send(directory, sockets, "c-1")
    assert sockets["a-1"].recv(100) == b"packet"
    assert not send(directory, sockets, "b-1"), "its link has gone"
    assert move(monkeypatch, directory, TURNED) == 0
    assert [line["ends"] for line in log(directory)] == [4, 0], "what has moved is left alone"
    # Back again, with a link that was dark.
    assert move(monkeypatch, directory, {"go": TURNED["come"], "come": TURNED["go"]}) == 0
    assert send(directory, sockets, "d-1")
    assert sockets["c-1"].recv(100) == b"packet"


def test_packets_are_lost_while_links_move_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch, ports: tuple[Path, dict[str, socket.socket]]
) -> None:
    directory, sockets = ports
    order = {"go": [link("a", "b")], "come": [link("a", "b")]}
    dark = {"go": [link("a", "b")], "come": []}
    assert move(monkeypatch, directory, dark) == 0
    mover = threading.Thread(target=move, args=(monkeypatch, directory, order, "500"))
    mover.start()
    while not all((directory / f"{port}.peer").is_symlink() for port in ("a-1", "b-1")):
        time.sleep(0.001)
    lost = sum(send(directory, sockets, port) for port in ("a-1", "b-1", "a-1", "b-1", "b-1"))
    assert send(directory, sockets, "c-1")
    mover.join()
    assert sockets["d-1"].recv(100) == b"packet"
    assert log(directory)[-1]["lost"] == lost == 5
    assert send(directory, sockets, "a-1")
    assert sockets["b-1"].recv(100) == b"packet"


@pytest.mark.parametrize(
    ("order", "time_ms", "facts"),
    [
        ("no JSON", "0", ("standard input", "JSONDecodeError")),
        ({"go": []}, "0", ("standard input", "KeyError: 'come'")),
        (
            {"go": [{"between": ["h1", "a"], "ports": {"a": 1}}], "come": []},
            "0",
            ("standard input", "h1", "a"),
        ),
        (TURNED, "-1", ("--time", -1)),
    ],
)
def test_what_cannot_be_moved_is_said(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    order: object,
    time_ms: str,
    facts: tuple[object, ...],
) -> None:
    assert move(monkeypatch, tmp_path, order, time_ms) == 2
    error = capsys.readouterr().err
    assert mentions(error, *facts), error
    assert error.count("\n") == 1
