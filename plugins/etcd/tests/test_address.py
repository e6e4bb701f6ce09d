"""URLs of etcd."""

from __future__ import annotations

import io
import os
from errno import ENOENT
from pathlib import Path

import pytest
from pydantic import SecretStr

from echelon.controller.service import logs
from echelon.controller.service.store import StoreError
from echelon_etcd.address import Address, Tls, parse
from tests.echelon.service.test_logs import SECRET, assert_hidden
from tests.faults import coded, mentions

PEM = b"-----BEGIN CERTIFICATE-----\n"
FORM = "etcd://HOST:2379/PREFIX"


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
    ("url", "facts"),
    [
        ("etcd://", ("host", FORM)),
        ("etcd:///x", ("host", FORM)),
        ("etcd://a,,b/x", ("host", FORM)),
        ("etcd://u:secret@a:port/x", ("'port'", FORM)),
        ("etcd://u:secret@a:70000/x", ("0-65535", FORM)),
        ("etcd://u:secret@[::1/x", ("IPv6", FORM)),
        (
            "etcd://u:secret@h/x?timeout=3",
            ("etcd://h", "'timeout'", "ca, certificate, key, password_file"),
        ),
        ("etcd://u:secret@h/x?ca=", ("etcd://h", "option ca", "file")),
        ("etcd://u:secret@h/x?ca=/nowhere", ("etcd://h: ca", "/nowhere", os.strerror(ENOENT))),
        ("etcd://u:secret@h/x?password_file=/dev/null", ("etcd://h", "password", "password_file")),
        ("etcd://secret@h/x", ("etcd://h", "password", "password_file=FILE")),
        ("etcd://:secret@h/x", ("etcd://h", "user", "USER@")),
        ("etcd://u:secret@h/x?ca=/dev/null", ("etcd://h: ca", "/dev/null", "PEM")),
        ("etcd://u:secret@h/x?certificate=PEM", ("etcd://h: key",)),
        ("etcd://u:secret@h/x?key=PEM", ("etcd://h: certificate",)),
        ("etcd://u:secret@h/x#y", ("etcd://h", FORM)),
    ],
)
def test_bad_urls(url: str, facts: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "pem").write_bytes(PEM)
    with pytest.raises(StoreError, check=coded("store-failed")) as raised:
        parse(url.replace("PEM", str(tmp_path / "pem")))
    text = str(raised.value)
    assert text.startswith("store etcd://")
    assert mentions(text, *facts), text
    assert "\n" not in text
    assert "secret" not in text


@pytest.mark.parametrize("style", ["json", "text"])
@pytest.mark.usefixtures("logging_as_before")
def test_a_record_does_not_show_the_password(style: logs.Format) -> None:
    address = parse(f"etcd://user:{SECRET}@host:2379/lab")
    assert_hidden([address], style, io.StringIO())
