"""TLS everywhere: switch, controller and operator show certificates, and check each other's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from typer.testing import CliRunner, Result

from echelon.cli import app
from echelon.switches.processes import free_port
from tests.echelon.cli.test_shell import SESSION
from tests.echelon.service.lab import LINE, Daemon
from tests.echelon.southbound.switch_process import PATIENCE_S, switch_process
from tests.echelon.southbound.test_tls import issued
from tests.interop.environments import CACHE, shell_python
from tests.softswitch.p4runtime.test_tls import make_authority

pytestmark = pytest.mark.xdist_group("cli-tls")


@dataclass(frozen=True)
class Secured:
    config: Path
    url: str
    ca: Path
    ours: Path
    """Our certificate with its key."""

    def run(self, *arguments: str | Path, url: str | None = None) -> Result:
        environment = dict.fromkeys(
            ("ECHELON_URL", "ECHELON_TOKEN_FILE", "ECHELON_CA", "ECHELON_CERTIFICATE")
        )
        where = ["--url", url or self.url]
        return CliRunner().invoke(app, [*map(str, arguments), *where], env=environment)


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with TemporaryDirectory(prefix="tls-") as name:
        here = Path(name)
        authority = make_authority(here / "authority")
        switch, server, ours = (issued(authority, who) for who in ("switch", "server", "ours"))
        pem = here / "ours.pem"
        pem.write_bytes(ours[0].read_bytes() + ours[1].read_bytes())
        ports = [text for port in (1, 2) for text in ("-i", f"{port}@unix:{here}/s1-{port}")]
        ssl = ["--grpc-server-ssl", "--grpc-server-with-client-auth"]
        files = [
            "--grpc-server-cacert",
            authority.home / "ca.crt",
            "--grpc-server-cert",
            switch[0],
            "--grpc-server-key",
            switch[1],
        ]
        with switch_process(
            free_port(), *ports, *ssl, *map(str, files), "--priority-queues", "8"
        ) as running:
            config = here / "echelon.yaml"
            (here / "fabric.yaml").write_text(yaml.safe_dump(LINE))
            settings = {
                "service": "secured",
                "fabric": "fabric.yaml",
                "switches": {"s1": {"address": running.address}},
                "tls": {"ca": "authority/ca.crt", "certificate": str(ours[0]), "key": str(ours[1])},
                "api": {
                    "listen": "127.0.0.1:0",
                    "tls": {
                        "certificate": str(server[0]),
                        "key": str(server[1]),
                        "client_ca": "authority/ca.crt",
                    },
                },
                "log": {"format": "json", "level": "debug"},
            }
            config.write_text(yaml.safe_dump(settings))
            daemon = Daemon(config)
            try:
                daemon.wait_event("leading")
                daemon.wait_event("switch", switch="s1", state="ready")
                yield Secured(config, daemon.wait_listening(), authority.home / "ca.crt", pem)
            finally:
                daemon.kill()


def test_operators_with_a_certificate_come_in(secured: Secured) -> None:
    result = secured.run("switch", "list", "--ca", secured.ca, "--certificate", secured.ours)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[1].split()[:2] == ["s1", "ready"]


def test_others_get_one_line(secured: Secured, tmp_path: Path) -> None:
    for options, status in (
        ([], 1),
        (["--ca", secured.ca], 1),
        (["--ca", tmp_path / "none"], 2),
        (["--ca", secured.ca, "--certificate", secured.ca], 2),
    ):
        result = secured.run("switch", "list", *options)
        assert (result.exit_code, result.stdout) == (status, ""), result.output
        assert result.stderr.count("\n") == 1
    result = secured.run("switch", "list", url=secured.url.replace("https:", "http:"))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


def test_the_configuration_is_good_until_a_file_is_missing(secured: Secured) -> None:
    def check() -> Result:
        return CliRunner().invoke(app, ["serve", "--check", "--config", str(secured.config)])

    assert (check().exit_code, check().stderr) == (0, "")
    key = secured.ca.with_name("server.key")
    key.rename(key.with_suffix(".away"))
    try:
        assert (
            check().stderr
            == f"{secured.config}: api.tls.key: {key}: No such file or directory (check the path)\n"
        )
    finally:
        key.with_suffix(".away").rename(key)


@pytest.mark.wide
def test_the_shell_takes_the_files_of_the_configuration(secured: Secured, tmp_path: Path) -> None:
    shell_python()
    done = subprocess.run(
        [Path(sys.executable).with_name("echelon"), "shell", "s1", "--config", secured.config],
        input=SESSION,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "XDG_CACHE_HOME": str(CACHE), "IPYTHONDIR": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "entries 2" in done.stdout
    assert "PERMISSION_DENIED" in done.stdout
