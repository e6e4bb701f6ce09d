"""`softswitch certificates`: files and their modes, what is kept, and what is made again."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from softswitch.certificates.folders import keep
from softswitch.cli import main
from tests.softswitch.tls.folders import LOOPBACK, expire, make


def files(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.*")}


def test_one_command_makes_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "certificates"
    assert main(["certificates", "--out", str(out), "s1=10.0.0.1:9559", "s2=[::1]:9559,sw2"]) == 0
    text = capsys.readouterr().out
    keys = (
        f"tls: {{ca: {out}/controller/authority.pem, "
        f"certificate: {out}/controller/certificate.pem, key: {out}/controller/key.pem}}"
    )
    assert keys in text
    assert f"softswitch --tls {out}/s2 ..." in text
    assert "for 10.0.0.1" in text
    assert "for ::1, sw2" in text
    assert sorted(files(out)) == [
        "authority/certificate.pem",
        "authority/key.pem",
        *(
            f"{name}/{file}"
            for name, more in (("controller", []), ("s1", ["clients.txt"]), ("s2", ["clients.txt"]))
            for file in sorted(["authority.pem", "certificate.pem", "key.pem", *more])
        ),
    ]
    for path in out.rglob("*.*"):
        secret = path.name == "key.pem"
        assert stat.S_IMODE(path.stat().st_mode) == (0o600 if secret else 0o644), path
    assert b"controller\n" in (out / "s1" / "clients.txt").read_bytes()
    # The libraries that use them take each pair.
    for name in ("controller", "s1", "s2"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(out / name / "certificate.pem", out / name / "key.pem")


def test_again_changes_nothing_and_more_are_added(tmp_path: Path) -> None:
    out = make(tmp_path / "c", s1=LOOPBACK)
    before = files(out)
    assert make(out, s1=LOOPBACK) == out
    assert files(out) == before

    _, outcomes = keep(out, {"s2": ("10.0.0.2",)}, (), 398)
    after = files(out)
    assert {path: after[path] for path in before} == before
    actions = {outcome.name: outcome.action for outcome in outcomes}
    assert actions == {"controller": "kept", "s1": "kept", "s2": "made"}

    _, outcomes = keep(out, {}, ("operator",), 398)
    actions = {outcome.name: outcome.action for outcome in outcomes}
    assert actions["s1"] == "kept, with other clients"
    clients = (out / "s1" / "clients.txt").read_text().splitlines()[1:]
    assert clients == ["controller", "operator"]


def test_what_ends_soon_or_is_for_another_host_is_renewed(tmp_path: Path) -> None:
    out = make(tmp_path / "c", s1=LOOPBACK, s2=LOOPBACK)
    expire(out / "s2")
    _, outcomes = keep(out, {"s1": ("10.0.0.9",)}, (), 398)
    controller, s1, s2 = (outcome.action for outcome in outcomes)
    assert controller == "kept"
    assert s1 == "renewed, since it was for 127.0.0.1"
    assert s2.startswith("renewed, since it ended on ")

    later = datetime.now(UTC) + timedelta(days=398 - 59)
    _, outcomes = keep(out, {}, (), 398, later)
    assert all("would have ended on" in outcome.action for outcome in outcomes)
    assert all(outcome.end > later + timedelta(days=390) for outcome in outcomes)

    # Another authority's certificates are of no use.
    stranger = make(tmp_path / "other", s1=("10.0.0.9",))
    for file in ("key.pem", "certificate.pem"):
        (out / "s1" / file).write_bytes((stranger / "s1" / file).read_bytes())
    _, outcomes = keep(out, {}, (), 398, later)
    assert outcomes[1].action == "renewed, since another authority had signed it"


def test_a_switch_is_no_client(tmp_path: Path) -> None:
    out = make(tmp_path / "c")
    purposes = {}
    for name in ("s1", "controller"):
        pem = (out / name / "certificate.pem").read_bytes()
        extensions = x509.load_pem_x509_certificate(pem).extensions
        purposes[name] = list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
        assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert purposes["s1"] == [x509.ExtendedKeyUsageOID.SERVER_AUTH]
    assert purposes["controller"] == [x509.ExtendedKeyUsageOID.CLIENT_AUTH]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["s1="], "'s1=' NAME=HOST"),
        (["../x=10.0.0.1"], "'../x' folder"),
        (["authority=10.0.0.1"], "'authority' folder"),
        (["s1=a", "s1=b"], "twice"),
        (["controller=a", "--client", "controller"], "twice"),
        (["--days", "0"], "--days '0'"),
    ],
)
def test_what_is_refused_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    try:
        status = main(["certificates", "--out", str(tmp_path / "c"), *arguments])
    except SystemExit as error:
        status = error.code  # type: ignore[assignment]
    captured = capsys.readouterr()
    assert (status, captured.out, captured.err.count("\n")) == (2, "", 1)
    assert all(word in captured.err for word in words.split())
    assert not (tmp_path / "c").exists()


def test_files_that_are_not_ours_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = make(tmp_path / "c")
    broken = out / "s1" / "certificate.pem"
    broken.write_text("something else")
    assert main(["certificates", "--out", str(out)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"{out / 's1'}: ")
    assert captured.err.count("\n") == 1
    assert broken.read_text() == "something else"
    assert main(["certificates", "--out", str(out), "controller=10.0.0.1"]) == 2
