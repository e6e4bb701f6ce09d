"""`echelon watch` on a terminal, while the service comes, works, dies and comes back."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from typer.testing import CliRunner

from echelon.cli import app
from echelon.controller.resources.switches import uses
from echelon.switches.processes import free_port
from tests.echelon.cli.conftest import Operated
from tests.echelon.cli.test_service_commands import columns, submit
from tests.echelon.service.conftest import Build
from tests.echelon.service.conftest import build as build  # a fixture
from tests.echelon.service.lab import LINE, PATIENCE_S, ring, settle, until
from tests.reference.frames import ipv4, udp

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A process on a pseudo-terminal of 80 columns and 24 lines."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(theirs)
        environment = {**os.environ, "TERM": "xterm"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [Path(sys.executable).with_name("echelon"), *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        self._theirs = theirs

    def wait_for(self, pattern: str) -> str:
        """Return the terminal's output up to the pattern and a little more, and forget what was
        drawn before.
        """
        drawn = ""
        give_up_at = time.monotonic() + PATIENCE_S
        while not re.search(pattern, drawn):
            assert time.monotonic() < give_up_at, drawn[-2000:]
            if select.select([self._ours], [], [], 1)[0]:
                drawn += _ESCAPES.sub("", os.read(self._ours, 1 << 16).decode(errors="replace"))
        return drawn

    def end(self) -> int:
        """Return the exit status, and keep reading, since a terminal that is not read stops its
        writer.
        """
        give_up_at = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < give_up_at
            if select.select([self._ours], [], [], 0.1)[0]:
                os.read(self._ours, 1 << 16)
        assert termios.tcgetattr(self._theirs)[3] == self.before[3], (
            "the terminal's modes were not restored"
        )
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        os.close(self._ours)
        os.close(self._theirs)


@contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    running = Terminal(*arguments)
    try:
        yield running
    finally:
        running.close()


def test_it_outlives_the_service(build: Build) -> None:
    lab = build(LINE)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with terminal("watch", "--interval", "0.2", "--url", url) as screen:
        screen.wait_for(r"no answer: \S+ does not answer")
        daemon = lab.daemon(api={"listen": f"127.0.0.1:{port}"})
        screen.wait_for(r"leader +\S+, term \d+")
        screen.wait_for(r"s1 +ready")
        with lab.client(daemon) as client:
            client.register_job(ring("resnet", ["h1", "h2"]))
        screen.wait_for(r"jobs +1 installed")
        screen.wait_for(r"resnet +installed")
        daemon.kill()
        screen.wait_for(r"no answer for \d+ s: ")
        # What was heard last stays on the screen.
        screen.wait_for(r"resnet +installed")
        daemon = lab.daemon(api={"listen": f"127.0.0.1:{port}"})
        screen.wait_for(r"jobs +1 installed\s+switch +state")
        lab.switches["s1"].kill()
        screen.wait_for(r"s1 +away")
        screen.process.send_signal(signal.SIGINT)
        assert screen.end() == 0


@pytest.mark.xdist_group("cli-service")
def test_ctrl_c_ends_it_quietly(service: Operated) -> None:
    where = ("--url", service.url, "--token-file", str(service.tokens["read-only"]))
    with terminal("watch", *where) as screen:
        screen.wait_for(r"leader +\S+, term \d+")
        screen.process.send_signal(signal.SIGINT)
        assert screen.end() == 0


@pytest.mark.xdist_group("cli-service")
def test_what_waiting_does_not_cure_ends_it(service: Operated) -> None:
    with terminal("watch", "--url", service.url) as screen:
        screen.wait_for("token")
        assert screen.end() == 2


@pytest.mark.xdist_group("cli-service")
def test_one_frame_for_a_pipe(service: Operated) -> None:
    service.good("job", "submit", service.file(), "--wait")
    for width in ("80", "120"):
        lines = service.good("watch", "--once", COLUMNS=width).splitlines()
        assert max(map(len, lines)) <= int(width)
        assert lines[0].startswith("service   echelon ")
        assert [line.split()[:2] for line in lines if line.startswith(("leaf", "spine"))] == [
            [name, "ready"] for name in service.lab.switches
        ]
        assert any(re.match(r"bert +installed", line) for line in lines)


@pytest.mark.xdist_group("cli-service")
def test_ports_and_jobs_of_a_service(service: Operated) -> None:
    """A frame that nobody claims leaves leaf1 towards h2 by the queue of best effort."""
    submit(service)
    with service.client() as client:
        settle(client)
        until(lambda: client.job("bert").alone_iteration_s is not None, "it was not computed")
        before = {"leaf1": client.queues("leaf1")}
        assert {(use.port, use.to) for use in before["leaf1"].queues} == {
            (port, other)
            for (node, other), port in service.lab.fabric.port_to.items()
            if node == "leaf1"
        }
        assert {use.queue for use in before["leaf1"].queues} == set(range(8))
        src, dst = (int(IPv4Address(service.lab.fabric.hosts[name].ipv4)) for name in ("h1", "h2"))
        with service.lab.host("h1") as sender, service.lab.host("h2") as receiver:
            sender.send(ipv4(src, dst, 17, udp(5000, 5001, bytes(100))))
            receiver.receive()
        sent = [one for one in uses(before, {"leaf1": client.queues("leaf1")}) if one.use]
        assert [one.to for one in sent] == ["h2"]
    shown = service.good("watch", "--ports", "--once", "--interval", "0.1", COLUMNS="160")
    cells = columns(shown)
    assert ["switch", "port", "to", "rate", "use"] in [row[:5] for row in cells]
    links = [name for node, name in service.lab.fabric.port_to if node in service.lab.switches]
    assert len([row for row in cells if len(row) > 12 and row[0] in service.lab.switches]) == len(
        links
    )
    assert ["bert", "installed"] in [row[:2] for row in cells]
    found = json.loads(service.good("watch", "--ports", "--once", "--interval", "0.1", "--json"))
    assert set(found) == {"status", "switches", "jobs", "ports", "problems"}
    assert len(found["ports"]) == len(links)


def test_without_a_terminal_it_says_how() -> None:
    result = CliRunner().invoke(app, ["watch"])
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert line.startswith("watch: ")
    assert "--once" in line
