"""Two daemons with one store, over mutual TLS and with tokens: a client of either gets to the one
that leads, and through a takeover."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from echelon.controller.client import Client, ClientError
from echelon.controller.service.api.tokens import NewToken, new_token
from echelon.switches.processes import free_port
from tests.echelon.service.lab import LINE, PATIENCE_S, RULE, Daemon, Lab, ring
from tests.faults import coded
from tests.softswitch.p4runtime.test_tls import Authority, make_authority


class Pair:
    """The first leads."""

    def __init__(
        self, lab: Lab, authority: Authority, operator: NewToken, reader: NewToken
    ) -> None:
        self._lab = lab
        self.authority = authority
        self.operator, self.reader = operator.token, reader.token
        (lab.directory / "tokens.yaml").write_text(f"tokens:\n{operator.entry}{reader.entry}")
        self.urls: list[str] = []
        self.daemons: list[Daemon] = []
        for name, event in (("first", "leading"), ("second", "listening")):
            self._start(name).wait_event(event)

    def _start(self, name: str) -> Daemon:
        port = free_port()
        home = self.authority.home
        tls = {
            "certificate": str(home / "api.crt"),
            "key": str(home / "api.key"),
            "client_ca": str(home / "ca.crt"),
        }
        url = f"https://localhost:{port}"
        api = {"listen": f"localhost:{port}", "advertise": url, "tokens": "tokens.yaml", "tls": tls}
        daemon = self._lab.daemon(name, api=api, store="sqlite:state.db")
        self.urls.append(url)
        self.daemons.append(daemon)
        return daemon

    def client(
        self, url: str, token: str | None = None, *, certificate: bool = True, retry_s: float = 0.0
    ) -> Client:
        home = self.authority.home
        own = (home / "client.crt", home / "client.key") if certificate else None
        return Client(
            url, token or self.operator, home / "ca.crt", own, timeout_s=PATIENCE_S, retry_s=retry_s
        )


@pytest.fixture
def pair() -> Iterator[Pair]:
    with TemporaryDirectory(prefix="lab-") as directory:
        authority = make_authority(Path(directory) / "ca")
        authority.issue("api")
        authority.issue("client")
        lab = Lab(Path(directory), LINE, policy={"name": "echelon", "parameters": RULE})
        lab.start()
        try:
            yield Pair(lab, authority, new_token("ops", "operator"), new_token("eyes", "read-only"))
        finally:
            lab.stop()


def test_to_the_leader_and_through_a_takeover(pair: Pair) -> None:
    first, second = pair.urls
    with pair.client(second, retry_s=PATIENCE_S) as client:
        client.register_job(ring("a", ["h1", "h2"]))  # by way of the first, which leads
        assert client.job("a", wait_s=PATIENCE_S).state == "installed"
        assert client.status().leader == first
        pair.daemons[0].kill()
        client.register_job(ring("b", ["h2", "h1"]))
        assert [client.job(name, wait_s=PATIENCE_S).state for name in ("a", "b")] == [
            "installed",
            "installed",
        ]
        assert client.status().leader == second
    with pair.client(second, pair.reader) as client:
        assert [job.name for job in client.jobs()] == ["a", "b"]
        with pytest.raises(ClientError) as caught:
            client.remove_job("a")
        assert caught.value.status == 403
    with (
        pair.client(second, certificate=False) as client,
        pytest.raises(ClientError, check=coded("no-answer", second, status=None)),
    ):
        client.jobs()
    with (
        pair.client(second, "echelon_x") as client,
        pytest.raises(ClientError, check=coded("unauthenticated", status=401)),
    ):
        client.jobs()
    for daemon in pair.daemons:
        assert not [line for line in daemon.lines if pair.operator in line or pair.reader in line]
        assert not daemon.events("fault")
