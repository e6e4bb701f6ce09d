"""`echelon lab`: switches that forward, a service with its page, a shell; and that nothing is left,
however it ends.
"""

from __future__ import annotations

import os
import pty
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from echelon.cli import app
from echelon_lab.commands.laboratories import not_installed
from tests.echelon.lab.laboratories import (
    PATIENCE_S,
    await_ends,
    descendants,
    environment_in,
    held,
)
from tests.faults import mentions
from tests.needs import missing, needs

ROOT = Path(__file__).parents[4]
FABRIC = ROOT / "topologies" / "line_2.yaml"
LAB = (sys.executable, "-m", "echelon", "lab", str(FABRIC))
WAITING = "echo $ECHELON_LAB; sleep 1000; :"
"""A command that says where the laboratory is, and waits."""


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Yield a directory with a short name: that of a Unix socket in it has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="lab") as name:
        yield Path(name)


@pytest.fixture
def environment(temporary: Path) -> dict[str, str]:
    """Return an environment whose temporary files are in `temporary`, and in no other place."""
    return environment_in(temporary)


def all_of(lab: int) -> list[int]:
    """Return descriptors of two switches, the service, the shell and its command, as soon as they
    all run.
    """
    give_up_at = time.monotonic() + PATIENCE_S
    while len(found := descendants(lab)) < 5:
        assert time.monotonic() < give_up_at, "a process of the laboratory is missing"
        time.sleep(0.01)
    return held(found)


def frame(payload: bytes) -> bytes:
    """Return an IPv4 packet without a transport from the fabric's first host to its second, in an
    Ethernet frame.
    """
    header = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 1, 0, 64, 253, 0, b"\n\0\0\1", b"\n\0\0\2"
    )
    total = sum(struct.unpack("!10H", header))
    check = 0xFFFF ^ (total % 0xFFFF or 0xFFFF)
    header = header[:10] + struct.pack("!H", check) + header[12:]
    return bytes.fromhex("0200000000020200000000010800") + header + payload  # fmt: skip


Running = tuple[subprocess.Popen[str], Path]
"""The process of a laboratory, and the laboratory's directory."""


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[list[Running], Path]]:
    """Yield the list for the laboratories that `running` starts, and their temporary directory."""
    laboratories: list[Running] = []
    with tempfile.TemporaryDirectory(prefix="lab") as name:
        yield laboratories, Path(name)
        for lab, _ in laboratories:
            with lab:
                lab.kill()


@pytest.fixture
def running(started: tuple[list[Running], Path]) -> Running:
    """Return the laboratory that the test before left running, or a new one."""
    laboratories, temporary = started
    if not laboratories or laboratories[-1][0].poll() is not None:
        lab = subprocess.Popen(
            [*LAB, "--run", WAITING],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env=environment_in(temporary),
        )
        assert lab.stdout is not None
        laboratories.append((lab, Path(lab.stdout.readline().strip())))
    return laboratories[-1]


shared = pytest.mark.xdist_group("laboratory")
"""The mark of tests that use `running`, in one process."""


def test_the_commands_find_the_service_and_the_status_is_the_commands(
    environment: dict[str, str], temporary: Path
) -> None:
    script = "echelon switch list --json; echelon job list; exit 7"
    done = subprocess.run(
        [*LAB, "--policy", "fair", "--run", f"echelon policy show; {script}"],
        env={**environment, "ECHELON_TOKEN_FILE": "/nowhere", "ECHELON_URL": "unix:/nowhere"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert "fair" in done.stdout
    assert done.stdout.count('"ready"') == 2
    assert list(temporary.iterdir()) == []


def test_switches_beyond_loopback_ask_for_certificates(
    environment: dict[str, str], temporary: Path
) -> None:
    # Only localhost counts as loopback, whatever this machine's name leads to.
    host = socket.gethostname()
    script = "echelon switch list --json; cat $ECHELON_LAB/*.log; ls $ECHELON_LAB/certificates"
    done = subprocess.run(
        [*LAB, "--at", host, "--run", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"ready"') == 2
    assert done.stdout.count(f"P4Runtime and gNMI at {host}:") == 2
    assert done.stdout.count(", TLS, ") == 2
    assert "warning" not in done.stdout
    assert done.stdout.splitlines()[-4:] == ["authority", "controller", "s1", "s2"]
    assert list(temporary.iterdir()) == []


@shared
def test_programs_can_be_hosts(running: Running) -> None:
    """Two sockets of this test are the hosts; what one sends, the other gets, through both
    switches.
    """
    _, directory = running
    sent = frame(b"through two switches")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as h1,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as h2,
    ):
        h1.bind(str(directory / "s1-h1.peer"))
        h2.bind(str(directory / "s2-h2.peer"))
        h2.settimeout(PATIENCE_S)
        h1.sendto(sent, str(directory / "s1-h1"))
        got = h2.recv(2000)
    assert got[:14] == sent[:14]
    assert got[34:] == sent[34:]


@shared
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, id="SIGTERM"),
        pytest.param(signal.SIGINT, id="SIGINT", marks=pytest.mark.wide),
        pytest.param(signal.SIGHUP, id="SIGHUP", marks=pytest.mark.wide),
    ],
)
def test_a_signal_ends_all_of_it(running: Running, number: signal.Signals) -> None:
    lab, directory = running
    assert directory.is_dir()
    left = all_of(lab.pid)
    lab.send_signal(number)
    assert lab.wait(PATIENCE_S) == 128 + number
    await_ends(left)
    assert not directory.exists()


@shared
def test_kill_9_leaves_no_process(running: Running) -> None:
    lab, _ = running
    left = held(descendants(lab.pid))
    lab.kill()
    lab.wait(PATIENCE_S)
    # The kernel tells the shell, and leaves what the shell has started to the shell.
    await_ends([descriptor for descriptor in left if b"sleep" not in _command(descriptor)])


def command(process: int) -> bytes:
    """Return the command line of a process; empty: there is none."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def _command(descriptor: int) -> bytes:
    fields = dict(
        line.split(":\t")
        for line in Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
        if ":\t" in line
    )
    return command(int(fields["Pid"]))


@pytest.mark.long
def test_kill_9_at_any_moment_of_the_start_leaves_no_process(environment: dict[str, str]) -> None:
    rng = random.Random(5)
    for _ in range(15):
        with subprocess.Popen(
            [*LAB, "--run", "exec sleep 1000"], env=environment, stderr=subprocess.DEVNULL
        ) as lab:
            try:
                lab.wait(rng.uniform(0, 8))
            except subprocess.TimeoutExpired:
                left = held(descendants(lab.pid))
                lab.kill()
                await_ends(left)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="ports"),
        pytest.param(
            ["--hosts"],
            id="hosts",
            marks=[needs("the laboratory's sandbox"), pytest.mark.wide],
        ),
    ],
)
def test_on_a_terminal_ctrl_c_is_for_the_shell_and_hanging_up_ends_all(
    environment: dict[str, str], options: list[str]
) -> None:
    child, terminal = pty.fork()
    if not child:
        os.execve(sys.executable, [*LAB, *options], environment)
    said = b""

    def await_said(wanted: bytes) -> None:
        nonlocal said
        while wanted not in said:
            assert select.select([terminal], [], [], PATIENCE_S)[0], said.decode()
            said += os.read(terminal, 4096)

    await_said(b"exit, or Ctrl-D")
    assert b"line_2: 2 switches, 2 hosts, all ready" in said
    assert (b"ping is not installed" in said) == (
        "--hosts" in options and missing("ping") is not None
    )
    os.write(terminal, b"echo re$((70 + 1))dy\n")
    await_said(b"re71dy\r\nready> ")
    said = b""
    os.write(terminal, b"\x03")
    await_said(b"ready> ")  # until then terminal and shell forget what is typed
    os.write(terminal, b"echo to$((40 + 2))gether\n")
    await_said(b"to42gether")
    os.write(terminal, b"echo as$((60 + 1))leep; sleep 1000\n")
    await_said(b"as61leep")
    # Until the shell has given the terminal to its command, Ctrl-C is not the command's.
    while not command(os.tcgetpgrp(terminal)).startswith(b"sleep"):
        time.sleep(0.01)
    said = b""
    os.write(terminal, b"\x03")
    await_said(b"ready> ")
    os.write(terminal, b"echo fr$((50 + 1))ee\n")
    await_said(b"fr51ee")
    left = held(descendants(child))
    assert len(left) >= 4
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 128 + signal.SIGHUP
    await_ends(left)
    assert list(Path(environment["TMPDIR"]).iterdir()) == []


def interfaces() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def test_the_greeting_says_what_it_suggests_and_this_machine_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not_installed() == "ping is not installed (apt-get install iputils-ping)"
    (tmp_path / "ping").touch(0o755)
    assert not_installed() == ""


@needs("the laboratory's sandbox", "ping")
@pytest.mark.parametrize(
    "target",
    [
        "softswitch",
        pytest.param("bmv2", marks=[pytest.mark.long, pytest.mark.bmv2, needs("bmv2")]),
    ],
)
def test_hosts_have_shells_and_browsers_outside_reach_the_page(
    environment: dict[str, str], temporary: Path, target: str
) -> None:
    """Each host has its address and reaches the other through both switches; nothing of it is seen
    outside, or left.
    """
    before = interfaces()
    script = (
        "echo $ECHELON_LAB_PAGE; host h1 ip -o -4 address show; echo 'ping -c 2 10.0.0.2; exit' |"
        " host h1; host h2 ping -c 2 -s 1000 10.0.0.1; host h9; echo unknown: $?; echelon switch"
        " list --json; read word; exit 5"
    )
    with subprocess.Popen(
        [*LAB, "--hosts", "--target", target, "--run", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as lab:
        try:
            assert lab.stdout is not None
            assert lab.stderr is not None
            url = lab.stdout.readline().strip()
            seen = httpx.get(f"{url}/status", trust_env=False).json()
            assert (seen["fabric"], seen["switches"]) == ("line_2", {"ready": 2})
            many = [httpx.get(f"{url}/openapi.json", trust_env=False).content for _ in range(5)]
            assert len(set(many)) == 1
            assert len(many[0]) > 1 << 16
            assert interfaces() == before
            left = held(descendants(lab.pid))
            print("on", file=lab.stdin, flush=True)
            said, errors = lab.stdout.read(), lab.stderr.read()
            assert lab.wait(PATIENCE_S) == 5, errors
        finally:
            lab.kill()
    assert "inet 10.0.0.1/16" in said
    assert said.count("2 received, 0% packet loss") == 2
    assert "unknown: 2" in said
    assert "there is no host 'h9' (there are h1, h2)" in errors
    assert said.count('"ready"') == 2
    await_ends(left)
    assert interfaces() == before
    assert list(temporary.iterdir()) == []


@needs("the laboratory's sandbox")
def test_kill_9_leaves_nothing_of_hosts(environment: dict[str, str]) -> None:
    """The kernel ends all of it, also what a command has itself started on a host."""
    before = interfaces()
    script = "host h1 sleep 1000 & host h2 ip -brief link; echo started; sleep 1000; :"
    with subprocess.Popen(
        [*LAB, "--hosts", "--run", script], stdout=subprocess.PIPE, text=True, env=environment
    ) as lab:
        assert lab.stdout is not None
        assert any(line == "started\n" for line in lab.stdout)
        left = held(descendants(lab.pid))
        assert sum(b"sleep" in _command(descriptor) for descriptor in left) >= 2
        lab.kill()
    await_ends(left)
    assert interfaces() == before


@pytest.mark.parametrize(
    ("options", "status", "names"),
    [
        (["--policy", "best"], 2, ["--policy", "'best'"]),
        (["--target", "bmv3"], 2, ["--target", "'bmv3'"]),
        (["--target", "bmv2"], 1, ["softswitch", "--hosts"]),
        (["--hosts", "--at", "10.0.0.1"], 1, ["--hosts", "--at 10.0.0.1"]),
    ],
)
def test_a_mistake_is_one_line(options: list[str], status: int, names: list[str]) -> None:
    done = CliRunner().invoke(app, ["lab", str(FABRIC), *options])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert mentions(done.stderr, *names)
