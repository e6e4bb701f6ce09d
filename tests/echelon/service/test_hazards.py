"""The hazards of a configuration: keys that others can read, sessions and tokens without TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from echelon.cli import app
from echelon.controller.service.config import load_service_config
from echelon.controller.service.hazards import hazards
from tests.echelon.service.lab import PAIR


def configured(
    directory: Path, addresses: tuple[str, str] = ("127.0.0.1:1", "[::1]:1"), **keys: Any
) -> Path:
    (directory / "fabric.yaml").write_text(yaml.safe_dump(PAIR))
    switches = {
        name: {"address": address}
        for name, address in zip(("leaf1", "leaf2"), addresses, strict=True)
    }
    file = directory / "echelon.yaml"
    file.write_text(
        yaml.safe_dump({"service": "lab", "fabric": "fabric.yaml", "switches": switches, **keys})
    )
    return file


def found(file: Path) -> list[str]:
    return hazards(load_service_config(file))


def test_a_service_on_one_machine_is_safe(tmp_path: Path) -> None:
    assert found(configured(tmp_path)) == []


@pytest.mark.parametrize(
    ("mode", "safe"), [(0o600, True), (0o640, True), (0o644, False), (0o604, False)]
)
def test_a_key_that_others_can_read(tmp_path: Path, mode: int, safe: bool) -> None:
    (tmp_path / "k.pem").touch(mode)
    (tmp_path / "k.pem").chmod(mode)
    tls = {"certificate": "c.pem", "key": "k.pem"}
    for keys in ({"tls": tls}, {"api": {"tls": tls}}):
        lines = found(configured(tmp_path, **keys))
        assert len(lines) == (0 if safe else 1), "one line, however many switches share the key"
        assert all("k.pem" in line and "chmod o-rwx" in line for line in lines)


@pytest.mark.parametrize(("mode", "safe"), [(0o600, True), (0o644, False)])
def test_a_password_that_others_can_read(tmp_path: Path, mode: int, safe: bool) -> None:
    (tmp_path / "password").touch()
    (tmp_path / "password").chmod(mode)
    store = f"etcd://echelon@127.0.0.1:2379/lab?password_file={tmp_path / 'password'}"
    lines = found(configured(tmp_path, store=store))
    assert len(lines) == (0 if safe else 1)
    assert all(line.startswith("store: ") and "chmod o-rwx" in line for line in lines)


def test_plain_sessions_over_a_network(tmp_path: Path) -> None:
    [line] = found(configured(tmp_path, ("127.0.0.1:1", "10.0.0.7:9559")))
    assert "leaf2" in line
    assert "leaf1" not in line
    assert "TLS" in line
    assert found(configured(tmp_path, ("127.0.0.1:1", "10.0.0.7:9559"), tls={"ca": "ca.pem"})) == []


def test_the_check_of_a_configuration_tells(tmp_path: Path) -> None:
    file = configured(tmp_path, ("127.0.0.1:1", "switch7:9559"))
    done = CliRunner().invoke(app, ["serve", "--check", "--config", str(file)])
    assert done.exit_code == 0
    assert done.stderr.startswith(f"{file}: ")
    assert "leaf2" in done.stderr
    done = CliRunner().invoke(app, ["check", str(file)])
    assert done.exit_code == 0
    (note,) = done.stdout.splitlines()[1:]
    assert note.startswith(f"{file}: note: ")
    assert "leaf2" in note
    assert "softswitch certificates" in note
