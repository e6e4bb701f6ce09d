"""`echelon shell`: the real p4runtime-shell beside the controller that manages the switch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from echelon.cli.shell import HIGHEST_BACKUP_ID, ShellSwitch, arguments
from echelon.cli.shell_environment import PINS, ShellEnvironment, ShellEnvironmentError, cache_directory
from tests.echelon.cli.conftest import Operated
from tests.echelon.service.lab import PATIENCE_S, settle
from tests.interop.environments import CACHE, shell_python

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
def test_it_reads_and_cannot_write(service: Operated, tmp_path: Path) -> None:
    """Find the switch by the service; test_tls.py has a session that finds it by the configuration."""
    shell_python()
    with service.client() as client:
        settle(client)
    before = service.lab.switches["leaf1"].entries()
    done = subprocess.run(
        [ECHELON, "shell", "leaf1", "--url", service.url, "--token-file", str(service.tokens["read-only"])],
        input=SESSION,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "XDG_CACHE_HOME": str(CACHE), "IPYTHONDIR": str(tmp_path), "NO_COLOR": "1"},
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
    assert line.endswith("echelon.yaml: switches: there is no 'leaf9' (did you mean 'leaf2'?)")


def test_arguments_with_and_without_tls(tmp_path: Path) -> None:
    plain = ["--grpc-addr", "h:1", "--device-id", "7", "--election-id", "0,5"]
    assert arguments(ShellSwitch("s", "h:1", 7), 5) == plain
    assert arguments(ShellSwitch("s", "h:1", 7, tls=True), 5) == [*plain, "--ssl"]
    files = [tmp_path / name for name in ("ca", "certificate", "key")]
    assert arguments(ShellSwitch("s", "h:1", 7, *files, tls=True), 5) == [
        *plain, "--ssl", "--cacert", str(files[0]), "--cert", str(files[1]), "--private-key", str(files[2])
    ]  # fmt: skip


def test_its_election_id_is_below_every_controllers() -> None:
    # Microseconds since 1970, of a day long past.
    assert HIGHEST_BACKUP_ID < 10**15


def test_the_cache_directory() -> None:
    assert cache_directory({"XDG_CACHE_HOME": "/x"}) == Path("/x/echelon")
    assert cache_directory({"XDG_CACHE_HOME": "x"}) == cache_directory({}) == Path.home() / ".cache" / "echelon"


@pytest.mark.long  # an environment with pip is made for it
def test_without_a_package_index_it_says_so_and_leaves_nothing_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    environment = ShellEnvironment(tmp_path)
    with pytest.raises(ShellEnvironmentError) as caught:
        environment.make()
    assert str(caught.value).startswith(f"pip cannot install {PINS[0]} (is a package index reachable?): ")
    assert "\n" not in str(caught.value)
    assert not environment.is_made


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ShellEnvironmentError, match=r"/file.*Not a directory.*XDG_CACHE_HOME"):
        ShellEnvironment(tmp_path / "file" / "below").make()
