"""Clients without a token that hold connections to a daemon which may open few files."""

from __future__ import annotations

import resource
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from echelon.controller.client import Client
from echelon.controller.service.api.tokens import new_token
from tests.echelon.service.conftest import Build
from tests.echelon.service.lab import LINE, TWO_BY_TWO, ring, settle

BEGUN = b"GET /jobs HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process open as many files as the machine allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.long
@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize(
    ("fabric", "descriptors", "clients"),
    [
        (LINE, 128, 400),
        (TWO_BY_TWO, 64, 400),
        (TWO_BY_TWO, 1024, 10_000),
    ],
)
def test_idle_clients_lock_nobody_out(
    build: Build, fabric: dict[str, object], descriptors: int, clients: int
) -> None:
    lab, token = build(fabric), new_token("ops", "operator")
    (lab.directory / "tokens.yaml").write_text(f"tokens:\n{token.entry}")
    (lab.directory / "tokens.yaml").chmod(0o600)
    api = {"listen": "127.0.0.1:0", "tokens": "tokens.yaml"}
    daemon = lab.limited_daemon(descriptors, api=api)
    daemon.wait_event("leading")
    url = daemon.wait_listening()
    answered_s = []

    def states() -> set[str]:
        asked_s = time.monotonic()
        found = set(client.status().switches)
        answered_s.append(time.monotonic() - asked_s)
        return found

    with ExitStack() as held, Client(url, token=token.token, retry_s=10) as client:
        settle(client)
        for number in range(clients):
            idle = held.enter_context(
                socket.create_connection(("127.0.0.1", urlsplit(url).port or 0))
            )
            if number % 2:
                idle.sendall(BEGUN)
            if number % 20 == 0:
                assert states() == {"ready"}
        client.register_job(ring("a", ["h1", "h2"]))
        settle(client)
        assert not [line for line in daemon.lines if "Traceback" in line or '"exception"' in line]
        # A switch that comes back finds a descriptor, too.
        for switch in lab.switches.values():
            switch.kill()
            switch.start()
            daemon.wait_event("switch", switch=switch.name, state="away")
            daemon.wait_event("switch", switch=switch.name, state="ready")
        settle(client)
    log_bytes = sum(map(len, daemon.lines))
    assert log_bytes < 1e6
    middle_s, worst_s = statistics.median(answered_s), max(answered_s)
    print(
        f"{clients} idle clients, {descriptors} descriptors: {len(answered_s)} authenticated"
        f" requests answered in {middle_s * 1e3:.0f} ms (median), {worst_s * 1e3:.0f} ms (worst);"
        f" {log_bytes} bytes of log"
    )
