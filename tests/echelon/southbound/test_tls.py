"""TLS files checked before use, and sessions with a switch that wants TLS, and our certificate, or
another's.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from echelon.model.p4program import program
from echelon.switches.lowering.intent import Intent
from echelon.switches.southbound.connection import Endpoint, SwitchConnection
from echelon.switches.southbound.events import Acknowledged, SwitchChanged, SwitchEvent
from echelon.switches.southbound.lifecycle import Timing
from echelon.switches.southbound.tls import TlsError, TlsFiles
from tests.echelon.southbound.switch_process import PATIENCE_S, switch_process
from tests.shared import refused
from tests.softswitch.p4runtime.test_tls import Authority, make_authority, openssl


def issued(authority: Authority, name: str) -> tuple[Path, Path]:
    """Return the certificate and key for `name` on loopback."""
    authority.issue(name, "IP:127.0.0.1")
    return authority.home / f"{name}.crt", authority.home / f"{name}.key"


@dataclass(frozen=True)
class Certificates:
    authority: Authority
    ours: TlsFiles
    """The files that a switch which asks for certificates accepts."""
    switch: tuple[Path, Path]
    stranger: Authority


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    home = tmp_path_factory.mktemp("tls")
    authority = make_authority(home / "authority")
    return Certificates(
        authority,
        TlsFiles(authority.home / "ca.crt", *issued(authority, "controller")),
        issued(authority, "switch"),
        make_authority(home / "stranger"),
    )


# -- files -----------------------------------------------------------------------------------------


def one_line(files: TlsFiles) -> str:
    with refused("tls", error=TlsError) as caught:
        files.credentials()
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_good_files_are_handed_on_as_they_are(certificates: Certificates) -> None:
    ours = certificates.ours
    credentials = ours.credentials()
    assert ours.ca is not None
    assert ours.certificate is not None
    assert ours.key is not None
    assert credentials.cacert == ours.ca.read_bytes()
    assert credentials.cert == ours.certificate.read_bytes()
    assert credentials.private_key == ours.key.read_bytes()
    nothing = TlsFiles().credentials()
    assert (nothing.cacert, nothing.cert, nothing.private_key) == (None, None, None)
    only_ca = TlsFiles(ca=ours.ca).credentials()
    assert (only_ca.cert, only_ca.private_key) == (None, None)


@pytest.mark.parametrize(
    ("field", "word"), [("ca", "authority"), ("certificate", "certificate"), ("key", "key")]
)
def test_a_file_that_is_not_there_or_is_no_file(
    certificates: Certificates, tmp_path: Path, field: str, word: str
) -> None:
    missing = tmp_path / "nowhere.pem"
    text = one_line(replace(certificates.ours, **{field: missing}))
    assert text.startswith(f"TLS {word} {missing}: {os.strerror(errno.ENOENT)}")
    text = one_line(replace(certificates.ours, **{field: tmp_path}))
    assert text.startswith(f"TLS {word} {tmp_path}: {os.strerror(errno.EISDIR)}")


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\xff\x00" * 50, b"-----BEGIN CERTIFICATE-----\nAAAA\n"]
)
def test_files_that_hold_something_else(
    certificates: Certificates, tmp_path: Path, content: bytes
) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(content)
    text = one_line(replace(certificates.ours, ca=other))
    assert text.startswith(f"TLS authority {other}: ")
    assert "PEM" in text
    for field in ("certificate", "key"):
        text = one_line(replace(certificates.ours, **{field: other}))
        assert str(other) in text
        assert "PEM" in text


def test_pairs_that_do_not_match_and_locked_keys(
    certificates: Certificates, tmp_path: Path
) -> None:
    ours = certificates.ours
    other_key = certificates.switch[1]
    strange = one_line(replace(ours, key=other_key))
    assert strange.startswith(f"TLS key {other_key}: ")
    assert f" {ours.certificate};" in strange
    locked = tmp_path / "locked.key"
    assert ours.key is not None
    openssl("ec", "-in", ours.key, "-aes256", "-passout", "pass:secret", "-out", locked)
    text = one_line(replace(ours, key=locked))
    assert text.startswith(f"TLS key {locked}: ")
    assert "passphrase" in text


# -- a real switch ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict_switch(certificates: Certificates) -> Iterator[str]:
    """Yield the address of a switch that shows a certificate and asks for one."""
    certificate, key = map(str, certificates.switch)
    server = ("--grpc-server-ssl", "--grpc-server-cert", certificate, "--grpc-server-key", key)
    clients = (
        "--grpc-server-cacert",
        str(certificates.authority.home / "ca.crt"),
        "--grpc-server-with-client-auth",
    )
    with switch_process(None, *server, *clients) as process:
        yield process.address


def attempt(address: str, tls: TlsFiles | None, term: int = 1) -> SwitchEvent:
    """Return the first success or failure of a connection."""

    async def main() -> SwitchEvent:
        outcome: asyncio.Future[SwitchEvent] = asyncio.get_running_loop().create_future()

        def take(event: SwitchEvent) -> None:
            told = isinstance(event, Acknowledged) or (
                isinstance(event, SwitchChanged) and event.problem is not None
            )
            if told and not outcome.done():
                outcome.set_result(event)

        endpoint = Endpoint("s1", address, 1, program(), "softswitch", tls=tls)
        connection = SwitchConnection(
            endpoint, term=term, on_event=take, rng=random.Random(1), timing=Timing()
        )
        connection.set_intent(Intent("s1", ()), 1)
        running = asyncio.create_task(connection.run())
        try:
            return await asyncio.wait_for(outcome, PATIENCE_S)
        finally:
            running.cancel()
            await asyncio.wait([running])

    return asyncio.run(main())


def test_the_right_certificates_are_let_in(certificates: Certificates, strict_switch: str) -> None:
    assert isinstance(attempt(strict_switch, certificates.ours), Acknowledged)


def test_all_others_are_not(certificates: Certificates, strict_switch: str) -> None:
    ours = certificates.ours
    strangers = TlsFiles(ours.ca, *issued(certificates.stranger, "controller"))
    cases = {
        "plain text": None,
        "an authority that has not signed the switch's": replace(
            ours, ca=certificates.stranger.home / "ca.crt"
        ),
        "no certificate of ours": TlsFiles(ca=ours.ca),
        "a certificate of ours by another authority": strangers,
    }
    for name, tls in cases.items():
        event = attempt(strict_switch, tls, term=100)
        assert isinstance(event, SwitchChanged), name
        assert event.state == "connecting", name
        assert event.problem is not None, name
        assert event.problem.startswith("switch s1: "), name
        assert strict_switch in event.problem, name
        assert "\n" not in event.problem, name
        print(event.problem)
    # None of them has hurt it.
    assert isinstance(attempt(strict_switch, ours, term=101), Acknowledged)


async def test_a_bad_file_is_named_and_a_corrected_one_taken(
    certificates: Certificates, strict_switch: str, tmp_path: Path
) -> None:
    assert certificates.ours.ca is not None
    ca = tmp_path / "ca.pem"
    told: asyncio.Queue[SwitchEvent] = asyncio.Queue()
    endpoint = Endpoint(
        "s1", strict_switch, 1, program(), "softswitch", tls=replace(certificates.ours, ca=ca)
    )
    connection = SwitchConnection(
        endpoint, term=200, on_event=told.put_nowait, rng=random.Random(1)
    )
    connection.set_intent(Intent("s1", ()), 1)
    running = asyncio.create_task(connection.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            event = await told.get()
            assert isinstance(event, SwitchChanged)
            assert event.problem is not None
            assert event.problem.startswith(f"switch s1: TLS authority {ca}: ")
            ca.write_bytes(certificates.authority.certificate)
            while not isinstance(await told.get(), Acknowledged):
                pass
    finally:
        running.cancel()
        await asyncio.wait([running])
