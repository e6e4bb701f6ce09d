"""Certificates of `softswitch certificates` between a switch and a controller, and wrong ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from echelon.switches.southbound.events import Acknowledged, SwitchChanged
from echelon.switches.southbound.tls import TlsFiles, explained
from tests.echelon.southbound.test_tls import attempt
from tests.softswitch.tls.folders import LOOPBACK, expire, make
from tests.softswitch_process import running


def client(folder: Path) -> TlsFiles:
    """Return the files of a client's folder."""
    return TlsFiles(folder / "authority.pem", folder / "certificate.pem", folder / "key.pem")


@dataclass(frozen=True)
class Switches:
    out: Path
    addresses: dict[str, str]
    """The addresses by name: the switch `good`, and others by what is wrong with them."""


@pytest.fixture(scope="module")
def switches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Switches]:
    home = tmp_path_factory.mktemp("certificates")
    hosts = {"good": LOOPBACK, "expired": LOOPBACK, "elsewhere": ("10.0.0.9",)}
    out = make(home / "ours", "controller", "late", "intruder", **hosts)
    (out / "good" / "clients.txt").write_text("controller\nlate\n")
    expire(out / "expired")
    expire(out / "late")
    make(home / "strangers", "controller")
    with ExitStack() as stack:
        addresses = {}
        for name in hosts:
            switch = stack.enter_context(running("--no-p4", "--tls", out / name))
            addresses[name] = switch.address
        plain = stack.enter_context(running("--no-p4"))
        yield Switches(out, {**addresses, "plain": plain.address})


def test_the_controller_comes_in(switches: Switches) -> None:
    ours = client(switches.out / "controller")
    assert isinstance(attempt(switches.addresses["good"], ours), Acknowledged)


@pytest.mark.parametrize(
    ("switch", "folder", "reason"),
    [
        ("good", "intruder", "does not take calls with the certificate of 'intruder'"),
        ("good", "late", "the switch refuses the certificate {folder}/certificate.pem: it has"),
        ("good", "elsewhere", "the switch refuses the certificate {folder}/certificate.pem: it"),
        ("good", "../strangers/controller", "another authority than {folder}/authority.pem has"),
        ("good", None, "it may demand TLS (give tls)"),
        ("expired", "controller", "the switch's certificate has expired; renew it"),
        ("elsewhere", "controller", "the switch's certificate is not for this address; make one"),
        ("plain", "controller", "the switch speaks no TLS; start it with TLS, or leave out tls"),
    ],
)
def test_what_is_wrong_is_said(
    switches: Switches, switch: str, folder: str | None, reason: str
) -> None:
    place = switches.out / (folder or "")
    tls = None if folder is None else client(place)
    address = switches.addresses[switch]
    event = attempt(address, tls, term=100)
    assert isinstance(event, SwitchChanged)
    assert event.problem is not None
    assert event.problem.startswith(f"switch s1: no P4Runtime session at {address}: ")
    assert reason.format(folder=place) in event.problem
    assert "\n" not in event.problem


def test_no_certificate_where_one_is_demanded(switches: Switches) -> None:
    ca = switches.out / "controller" / "authority.pem"
    event = attempt(switches.addresses["good"], TlsFiles(ca), term=100)
    assert isinstance(event, SwitchChanged)
    assert event.problem is not None
    assert event.problem.endswith("(give tls.certificate and tls.key)")


def test_other_problems_stay_as_they_are() -> None:
    for problem in (
        "switch s1: it may be stuck",
        "switch s1: failed to connect to all addresses; last error: No such file or directory",
    ):
        assert explained(problem, None) == problem
