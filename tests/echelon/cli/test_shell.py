"""`echelon shell`: the real p4runtime-shell beside the controller that manages the switch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from echelon.cli.service import HIGHEST_BACKUP_ID, arguments, shell_python
from echelon.controller.service.config import SwitchConfig
from echelon.model.documents import Section
from echelon.switches.southbound.tls import TlsFiles
from tests.echelon.cli.conftest import Operated
from tests.echelon.service.lab import PATIENCE_S, settle
from tests.interop.environments import CACHE
from tests.interop.environments import shell_python as made

ECHELON = Path(sys.executable).with_name("echelon")
SESSION = """\
print("entries", sum(1 for _ in table_entry["ipv4_lpm"].read()))
entry = table_entry["ipv4_lpm"](action="route")
entry.match["dst"] = "10.9.9.9/32"
entry.action["port"] = "1"
entry.action["dst_mac"] = "02:00:00:00:00:09"
entry.insert()
"""


@pytest.mark.xdist_group("cli-service")
@pytest.mark.wide
def test_it_reads_and_cannot_write(service: Operated, tmp_path: Path) -> None:
    """Find the switch by the service; test_tls.py finds it by the configuration."""
    made()
    with service.client() as client:
        settle(client)
    before = service.lab.switches["leaf1"].entries()
    done = subprocess.run(
        [
            ECHELON,
            "shell",
            "leaf1",
            "--url",
            service.url,
            "--token-file",
            str(service.tokens["read-only"]),
        ],
        input=SESSION,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={
            **os.environ,
            "XDG_CACHE_HOME": str(CACHE),
            "IPYTHONDIR": str(tmp_path),
            "NO_COLOR": "1",
        },
        check=False,
    )
    switch = service.lab.switches["leaf1"]
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"leaf1 at {switch.address}, device id {switch.device_id}, election id " in done.stderr
    assert "You are not the primary client, you only have read access to the server" in done.stdout
    # One route for each host.
    assert "entries 4" in done.stdout
    assert "PERMISSION_DENIED" in done.stdout
    assert switch.entries() == before
    # The controller is still the primary of its switches.
    assert re.search(r"^leaf1 +ready +", service.good("switch", "list"), re.MULTILINE)
    assert '"sessions": 1' in service.good("switch", "show", "leaf1", "--json")


@pytest.mark.xdist_group("cli-service")
def test_a_switch_that_is_not_there(service: Operated) -> None:
    assert "'leaf9'" in service.bad("shell", "leaf9")
    line = service.bad("shell", "leaf9", "--config", service.lab.directory / "echelon.yaml")
    assert "echelon.yaml: switches: " in line
    assert "'leaf9'" in line
    assert "'leaf2'" in line


def test_arguments_with_and_without_tls(tmp_path: Path) -> None:
    plain = ["--grpc-addr", "h:1", "--device-id", "7", "--election-id", "0,5"]
    files = [tmp_path / name for name in ("ca", "certificate", "key")]

    def given(tls: TlsFiles | None) -> list[str]:
        return arguments(SwitchConfig("s", 7, "h:1", "softswitch", Section(), tls), 5)

    assert given(None) == plain
    assert given(TlsFiles(None, None, None)) == [*plain, "--ssl"]
    assert given(TlsFiles(*files)) == [
        *plain, "--ssl", "--cacert", str(files[0]), "--cert", str(files[1]), "--private-key", str(files[2])
    ]  # fmt: skip


def test_its_election_id_is_below_every_controllers() -> None:
    # Microseconds since 1970, of a day long past.
    assert HIGHEST_BACKUP_ID < 10**15


@pytest.mark.long  # an environment with pip is made for it
def test_without_a_package_index_it_says_so_and_leaves_nothing_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    with pytest.raises(typer.Exit):
        shell_python(tmp_path)
    said = capsys.readouterr().err
    assert "a package index" in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_cache_that_cannot_be_made_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(typer.Exit):
        shell_python(tmp_path / "file" / "below")
    assert re.search(r"XDG_CACHE_HOME.*Not a directory.*/file", capsys.readouterr().err)
