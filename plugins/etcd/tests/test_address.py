"""URLs of etcd."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from echelon.controller.service.store import StoreError
from echelon_etcd.address import Address, Tls, parse

PEM = b"-----BEGIN CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("etcd://h", Address(("h:2379",), "echelon")),
        ("etcd://h/", Address(("h:2379",), "echelon")),
        ("etcd://etcd/lab", Address(("etcd:2379",), "lab")),
        ("etcd://h:1/lab", Address(("h:1",), "lab")),
        (
            "etcd://a,b:2,[::1],[fe80::2]:3/lab/one/",
            Address(("a:2379", "b:2", "[::1]:2379", "[fe80::2]:3"), "lab/one"),
        ),
        (
            "etcd://u:p%40ss@h/a%20b",
            Address(("h:2379",), "a b", user="u", password=SecretStr("p@ss")),
        ),
        ("etcd://u:a@b@h/x", Address(("h:2379",), "x", user="u", password=SecretStr("a@b"))),
    ],
)
def test_urls(url: str, address: Address) -> None:
    assert parse(url) == address


def test_files(tmp_path: Path) -> None:
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_bytes(PEM + name.encode())
    (tmp_path / "password").write_text("secret\n")
    url = f"etcd://u@h/x?ca={tmp_path}/ca&certificate={tmp_path}/certificate&key={tmp_path}/key&password_file={tmp_path}/password"
    address = parse(url)
    assert address.tls == Tls(PEM + b"ca", PEM + b"certificate", PEM + b"key")
    assert (address.user, address.password) == ("u", SecretStr("secret"))
    assert str(address) == "etcd://h:2379/x"
    for text in ("secret", "user='u'", "BEGIN CERTIFICATE-----\\nkey"):
        assert text not in repr(address)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("etcd://", "a host is missing"),
        ("etcd:///x", "a host is missing"),
        ("etcd://a,,b/x", "a host is missing"),
        ("etcd://u:secret@a:port/x", "port"),
        ("etcd://u:secret@a:70000/x", "Port out of range"),
        ("etcd://u:secret@[::1/x", "Invalid IPv6"),
        (
            "etcd://u:secret@h/x?timeout=3",
            "unknown option 'timeout' (known: ca, certificate, key, password_file)",
        ),
        ("etcd://u:secret@h/x?ca=", "option ca does not name a file"),
        ("etcd://u:secret@h/x?ca=/nowhere", "ca: /nowhere cannot be read: No such file"),
        ("etcd://u:secret@h/x?password_file=/dev/null", "a password and a password_file"),
        ("etcd://secret@h/x", "the password (a password_file=FILE) is missing"),
        ("etcd://:secret@h/x", "the user (USER@ before the host) is missing"),
        ("etcd://u:secret@h/x?ca=/dev/null", "is not a PEM file"),
        ("etcd://u:secret@h/x?certificate=PEM", "key is missing"),
        ("etcd://u:secret@h/x?key=PEM", "certificate is missing"),
        ("etcd://u:secret@h/x#y", "is not a URL of etcd"),
    ],
)
def test_bad_urls(url: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "pem").write_bytes(PEM)
    with pytest.raises(StoreError) as raised:
        parse(url.replace("PEM", str(tmp_path / "pem")))
    text = str(raised.value)
    assert text.startswith("store etcd://")
    assert reason in text
    assert "\n" not in text
    assert "secret" not in text
