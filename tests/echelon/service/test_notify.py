"""The messages to systemd, received on a real datagram socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from echelon.controller.service import systemd


@pytest.fixture(params=["path", "abstract"])
def supervisor(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    name = str(tmp_path / "notify") if request.param == "path" else f"@echelon-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(name.replace("@", "\0", 1))
        listener.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield listener


def test_what_is_said_arrives(supervisor: socket.socket) -> None:
    assert systemd.notify_ready("leads, 4 switches")
    assert supervisor.recv(4096) == b"READY=1\nSTATUS=leads, 4 switches"
    assert systemd.notify_stopping("plan 7\nREADY=0")
    assert supervisor.recv(4096) == b"STOPPING=1\nSTATUS=plan 7 READY=0"
    assert systemd.notify_alive()
    assert supervisor.recv(4096) == b"WATCHDOG=1"
    assert systemd.notify_stopping()
    assert supervisor.recv(4096) == b"STOPPING=1"
    assert systemd.notify_reloading()
    first, second = supervisor.recv(4096).decode().split("\n")
    assert first == "RELOADING=1"
    assert int(second.removeprefix("MONOTONIC_USEC=")) > 0


def test_a_supervisor_that_does_not_read_holds_nobody_up(supervisor: socket.socket) -> None:
    said = [systemd.notify_alive() for _ in range(10_000)]
    assert said[0]
    assert not said[-1]


@pytest.mark.parametrize(
    "address", [None, "", "relative", "/no/such/socket", "@nobody-listens-here"]
)
def test_without_a_supervisor_nothing_happens(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not systemd.notify_ready()
    assert not systemd.notify_alive()


@pytest.mark.parametrize(
    ("usec", "pid", "expected"),
    [
        ("30000000", None, 15.0),
        pytest.param("30000000", os.getpid(), 15.0, id="ours"),
        ("30000000", 1, None),
        (None, None, None),
        ("x", None, None),
    ],
)
def test_how_often_to_say_that_one_is_alive(
    usec: str | None, pid: int | None, expected: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WATCHDOG_USEC", usec), ("WATCHDOG_PID", pid)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, str(value))
    assert systemd.watchdog_s() == expected
