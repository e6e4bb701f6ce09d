from __future__ import annotations

from pathlib import Path

import pytest

from echelon.controller.addresses import is_loopback
from echelon.controller.service.hazards import ExposureError, check_exposure
from tests.echelon.service.lab import LINE, Lab
from tests.faults import coded


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "LOCALHOST", "::ffff:127.0.0.1"]
)
def test_only_this_machine(host: str) -> None:
    assert is_loopback(host)
    assert check_exposure(host, tokens=False, tls=False) is None


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        "::",
        "10.0.0.7",
        "ctl1",
        "localhost.example",
        "::ffff:10.0.0.1",
        "",
        "fe80::1%eth0",
    ],
)
def test_the_network(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(
        ExposureError, check=coded("refused", f" {host} ", "api.tokens", "127.0.0.1")
    ):
        check_exposure(host, tokens=False, tls=True)
    assert check_exposure(host, tokens=True, tls=True) is None
    warning = check_exposure(host, tokens=True, tls=False)
    assert warning is not None
    assert f" {host} " in warning
    assert "api.tls" in warning


def test_a_unix_socket_is_this_machine() -> None:
    assert check_exposure(None, tokens=False, tls=False) is None


def test_the_daemon_does_not_start_where_everybody_could_give_orders(tmp_path: Path) -> None:
    lab = Lab(tmp_path, LINE, api={"listen": "0.0.0.0:0"})
    try:
        daemon = lab.daemon()
        assert daemon.join() == 2
    finally:
        lab.stop()
    (line,) = (line for line in daemon.lines if "api.tokens" in line)
    assert "api.listen" in line
