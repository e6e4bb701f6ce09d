from __future__ import annotations

import pytest

from echelon.service.api.exposure import ExposureError, check_exposure, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "LOCALHOST", "::ffff:127.0.0.1"])
def test_only_this_machine(host: str) -> None:
    assert is_loopback(host)
    assert check_exposure(host, tokens=False, tls=False) is None


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.7", "ctl1", "localhost.example", "::ffff:10.0.0.1", "", "fe80::1%eth0"]
)
def test_the_network(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(
        ExposureError, match=r"for everybody who can reach it \(give api.tokens, or listen on 127.0.0.1"
    ):
        check_exposure(host, tokens=False, tls=True)
    assert check_exposure(host, tokens=True, tls=True) is None
    warning = check_exposure(host, tokens=True, tls=False)
    assert warning is not None
    assert "can be overheard" in warning


def test_a_unix_socket_is_this_machine() -> None:
    assert check_exposure(None, tokens=False, tls=False) is None
