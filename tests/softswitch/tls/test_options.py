"""The options of the switch's TLS, and the warnings of a switch that does without."""

from __future__ import annotations

from pathlib import Path

import pytest

from softswitch.cli.tls_options import exposures, is_loopback
from softswitch.rpc.tls import TlsFiles
from tests.softswitch.tls.folders import make
from tests.softswitch_process import running

ANYWHERE = "0.0.0.0:0"
NAMES = ("P4Runtime and gNMI", "BF Runtime")
MUTUAL = TlsFiles(Path("a"), Path("c"), Path("k"), with_client_auth=True)
SERVER_ONLY = TlsFiles(None, Path("c"), Path("k"), with_client_auth=False)


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:9559", True),
        ("127.1.2.3:0", True),
        ("[::1]:9559", True),
        ("[::ffff:127.0.0.1]:1", True),
        ("localhost:9559", True),
        ("unix:/run/switch", True),
        ("0.0.0.0:9559", False),
        ("[::]:9559", False),
        (":9559", False),
        ("switch1:9559", False),
        ("10.0.0.1:9559", False),
    ],
)
def test_who_reaches_an_address(address: str, local: bool) -> None:
    assert is_loopback(address) is local


@pytest.mark.parametrize(
    ("addresses", "tls", "words"),
    [
        (["10.0.0.1:1"], None, ["--tls"]),
        (["10.0.0.1:1"], SERVER_ONLY, ["--grpc-server-with-client-auth"]),
        (["10.0.0.1:1"], MUTUAL, []),
        (["127.0.0.1:1"], None, []),
        (["127.0.0.1:1", "10.0.0.1:2"], None, ["BF Runtime at 10.0.0.1:2"]),
        (["10.0.0.1:1", "10.0.0.1:2"], MUTUAL, ["BF Runtime at 10.0.0.1:2"]),
    ],
)
def test_a_line_for_each_open_door(
    addresses: list[str], tls: TlsFiles | None, words: list[str]
) -> None:
    lines = list(exposures(dict(zip(NAMES, addresses, strict=False)), tls))
    assert len(lines) == len(words)
    for line, word in zip(lines, words, strict=True):
        assert line.startswith("warning: ")
        assert word in line


def test_a_switch_on_the_network_warns_unless_it_asks_for_certificates(tmp_path: Path) -> None:
    with running("--no-p4", address=ANYWHERE) as switch:
        status, errors = switch.stop()
        assert status == 0
        warning = errors.splitlines()[0]
        assert warning.startswith(f"softswitch: warning: P4Runtime and gNMI at {switch.address} ")
        assert "--tls" in warning
    folder = make(tmp_path / "c") / "s1"
    with running("--no-p4", "--tls", folder, address=ANYWHERE) as switch:
        status, errors = switch.stop()
        assert (status, "warning" in errors) == (0, False)
        assert ", TLS, " in switch.ready


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--tls", "none"], "TLS file none/certificate.pem: No such file or directory; check"),
        (["--tls", "c/s1", "--grpc-server-ssl"], "--tls and --grpc-server-ssl exclude each other"),
        (["--allow-client", "controller"], "--allow-client needs certificates of clients"),
        (["--tls", "mixed"], "TLS key mixed/key.pem: does not belong to the certificate mixed"),
        (["--tls", "c/s1", "--allow-client", "@none"], "TLS file none: No such file"),
        (["--tls", "nobody"], "--allow-client nobody/clients.txt: there is no name in it"),
        (["--tls", "text"], "not a certificate and its key in PEM form"),
    ],
)
def test_files_that_cannot_be_used_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("c"))
    for name in ("mixed", "nobody", "text"):
        Path(name).mkdir()
        for file in Path("c/s1").iterdir():
            Path(name, file.name).write_bytes(file.read_bytes())
    Path("mixed/key.pem").write_bytes(Path("c/controller/key.pem").read_bytes())
    Path("nobody/clients.txt").write_text("# nobody\n")
    Path("text/certificate.pem").write_text("hello\n")
    from softswitch.cli import main

    assert main(["--no-p4", "--grpc-server-addr", "127.0.0.1:0", *options]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("softswitch: ")
    assert captured.err.count("\n") == 1
    assert reason in captured.err
