"""`echelon agent` as a command: exit status, mistakes, metrics, capabilities."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from echelon.cli import app
from echelon.switches.processes import free_port
from echelon_torch.agent import groups
from plugins.torch.tests.agent import kernel
from tests.echelon.service.lab import BIN
from tests.needs import needs

pytestmark = pytest.mark.xdist_group("agent")
PATIENCE_S = 60.0
JOB = f"a-{os.getpid()}"


def command(directory: Path, *words: str | Path) -> list[str | Path]:
    """Return the words of the command; nobody answers at the service's address."""
    return [
        BIN / "echelon",
        "agent",
        words[0],
        "--url",
        f"unix:{directory}/nobody",
        "--job",
        JOB,
        *words[1:],
    ]


def ended(directory: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(directory, *words), capture_output=True, text=True, timeout=PATIENCE_S
    )


@pytest.mark.parametrize(
    ("options", "script", "status"),
    [
        ([], "raise SystemExit(0)", 0),
        (["--no-ebpf"], "raise SystemExit(7)", 7),
        ([], "import os; os.kill(os.getpid(), 9)", 137),
    ],
)
def test_it_ends_as_the_command_ends(
    tmp_path: Path, options: Sequence[str], script: str, status: int
) -> None:
    done = ended(
        tmp_path, "run", *options, "--", sys.executable, "-c", f"print('its own output'); {script}"
    )
    assert done.returncode == status, done.stderr
    assert not [group for group in kernel.groups() if f"echelon-{JOB}-" in group]
    assert "Traceback" not in done.stderr


def test_the_command_has_the_standard_streams(tmp_path: Path) -> None:
    words = command(tmp_path, "run", "--", sys.executable, "-c", "print(input()[::-1])")
    done = subprocess.run(words, input="abc\n", capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout == "cba\n"


@needs("network namespaces")
@pytest.mark.parametrize("option", ["--ebpf", "--no-ebpf"])
def test_it_says_of_a_network_of_the_commands_own_that_it_is_not_seen(
    tmp_path: Path, option: str
) -> None:
    waits_until_it_is_said = f"until grep -q nsenter {tmp_path}/said; do sleep 0.1; done"
    with (tmp_path / "said").open("w") as said:
        words = command(
            tmp_path, "run", option, "--", "unshare", "--net", "sh", "-c", waits_until_it_is_said
        )
        assert subprocess.run(words, stderr=said, check=False, timeout=PATIENCE_S).returncode == 0
    (line,) = [one for one in (tmp_path / "said").read_text().splitlines() if "nsenter" in one]
    assert re.search(
        r"process (\d+) of the job has a network namespace of its own,.*--net=/proc/\1/ns/net", line
    )


MISTAKES = [
    ["run", "--idle-gap", "soon", "--", "true"],
    ["run", "--idle-gap", "0 s", "--", "true"],
    ["run", "--metrics", "9465", "--", "true"],
    ["run", "--metrics", "127.0.0.1:99999", "--", "true"],
    ["run", "--dscp", "64", "--", "true"],
    ["run", "--window", "much", "--", "true"],
    ["run", "--window", "2 GB", "--", "true"],
    ["run", "--priority", "7", "--", "true"],
    ["run", "--pacing", "10 kB", "--", "true"],
    ["run", "--job", "../../elsewhere", "--", "true"],
    ["run", "--job", "a\n\x1b[2Jb", "--", "true"],
    ["run", "--worker", "h 1", "--", "true"],
    ["run"],
    ["watch"],
]
FOUND_BY_THE_AGENT = [
    ["run", "--", "no-such-command"],
    ["run", "--dscp", "10", "--no-ebpf", "--", "true"],
    ["watch", "--cgroup", "/"],
    ["watch", "--cgroup", "/nowhere"],
]


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_line(tmp_path: Path, words: Sequence[str]) -> None:
    done = CliRunner().invoke(app, list(map(str, command(tmp_path, *words)[1:])))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("words", FOUND_BY_THE_AGENT)
def test_what_the_agent_finds_is_one_line(tmp_path: Path, words: Sequence[str]) -> None:
    done = ended(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr


TALK = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
ours = socket.create_connection(server.getsockname())
theirs, _ = server.accept()
print("talking", flush=True)
sys.stdin.read()
"""


def test_metrics_and_a_request_to_end(tmp_path: Path) -> None:
    port = free_port()
    words = command(tmp_path, "run", "--metrics", f"127.0.0.1:{port}", "--idle-gap", "50 ms", "--")
    agent = subprocess.Popen(
        [*words, sys.executable, "-c", TALK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert agent.stdout is not None
    assert agent.stdout.readline() == "talking\n"
    wanted = (
        "echelon_agent_ebpf",
        "echelon_agent_sent_bytes_total",
        "echelon_agent_report_failures_total",
    )
    give_up_at = time.monotonic() + PATIENCE_S
    while not all(name in (text := scraped(port)) for name in wanted):
        assert time.monotonic() < give_up_at, text
        time.sleep(0.05)
    page = (Path(__file__).parents[4] / "docs" / "agent.md").read_text()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split()[2]
            assert name in page or name.removeprefix("echelon_agent") in page, (
                f"{name} is not on the page"
            )
    agent.send_signal(signal.SIGTERM)
    agent.wait(PATIENCE_S)  # with its standard input open: its end would end the command first
    agent.communicate()
    assert agent.returncode == 128 + signal.SIGTERM


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


@needs("eBPF")
def test_it_keeps_no_capability_once_it_watches(tmp_path: Path) -> None:
    words = command(tmp_path, "run", "--", sys.executable, "-c", TALK)
    agent = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    assert agent.stdout.readline() == "talking\n"
    give_up_at = time.monotonic() + PATIENCE_S
    while (held := capabilities(agent.pid))["CapEff"]:
        assert time.monotonic() < give_up_at, held
        time.sleep(0.02)
    assert not held["CapPrm"]
    for thread in Path(f"/proc/{agent.pid}/task").iterdir():
        assert not capabilities(int(thread.name))["CapEff"]
    agent.communicate(timeout=PATIENCE_S)
    assert agent.returncode == 0


def capabilities(process: int) -> dict[str, int]:
    lines = (
        line.split()
        for line in Path(f"/proc/{process}/status").read_text().splitlines()
        if line.startswith("Cap")
    )
    return {name.rstrip(":"): int(value, 16) for name, value in lines}


DUAL = """
import socket, sys, time
server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
ours = socket.socket(socket.AF_INET6)
ours.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
theirs, _ = server.accept()
while {one.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) for one in (ours, theirs)} != {int(sys.argv[1])}:
    time.sleep(0.01)
ours.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 8)
time.sleep(1.5)
print(ours.getsockopt(socket.IPPROTO_IP, socket.IP_TOS))
"""


@needs("eBPF")
def test_sockets_for_both_families_are_marked_once(tmp_path: Path) -> None:
    # What the program sets itself later wins, also over the agent's next reading.
    done = ended(tmp_path, "run", "--dscp", "10", "--", sys.executable, "-c", DUAL, str(10 << 2))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "8\n"


SET_UP = """
import socket, struct, sys, time
server = socket.create_server(("127.0.0.1", 0))
ours = socket.create_connection(server.getsockname())
theirs, _ = server.accept()
def options(one):
    pacing = struct.unpack("@L", one.getsockopt(socket.SOL_SOCKET, 47, 8))[0]
    return [one.getsockopt(*of) for of in ((6, 10), (6, 25), (1, 12), (0, 1))] + [pacing]
while options(ours) != (wanted := [int(word) for word in sys.argv[1:]]) or options(theirs) != wanted:
    time.sleep(0.01)
print("set")
"""
ONE_SET = """
import socket, struct, sys, time
server = socket.create_server(("127.0.0.1", 0))
ours = socket.create_connection(server.getsockname())
pacing = struct.unpack("@L", ours.getsockopt(socket.SOL_SOCKET, 47, 8))[0]
before = ours.getsockopt(6, 25), ours.getsockopt(1, 8)
while ours.getsockopt(1, 12) != 5:
    time.sleep(0.01)
assert struct.unpack("@L", ours.getsockopt(socket.SOL_SOCKET, 47, 8))[0] == pacing
assert before == (ours.getsockopt(6, 25), ours.getsockopt(1, 8))
"""
"""Window (the limit of what is announced), unsent bytes, priority, type of service, and the rate in
bytes a second.
"""


@pytest.mark.parametrize("ebpf", [pytest.param("--ebpf", marks=needs("eBPF")), "--no-ebpf"])
def test_sockets_get_what_was_asked_for_and_nothing_else(tmp_path: Path, ebpf: str) -> None:
    options = ["--window", "20 kB", "--unsent", "40 kB", "--priority", "5", "--pacing", "80 Mbit/s"]
    wanted = ["20000", "40000", "5", "0", "10000000"]
    done = ended(tmp_path, "run", ebpf, *options, "--", sys.executable, "-c", SET_UP, *wanted)
    assert (done.returncode, done.stdout) == (0, "set\n"), done.stderr
    done = ended(tmp_path, "run", ebpf, "--priority", "5", "--", sys.executable, "-c", ONE_SET)
    assert done.returncode == 0, done.stderr


@needs("eBPF")
def test_a_group_that_vanishes_ends_its_connections_and_not_the_agent(tmp_path: Path) -> None:
    group = groups.own_group() / JOB
    group.mkdir()
    agent = subprocess.Popen(
        command(tmp_path, "watch", "--cgroup", group),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert agent.stderr is not None
        # It watches, and cannot report.
        said = [agent.stderr.readline(), agent.stderr.readline()]
    finally:
        group.rmdir()
    # Two readings or more of a group that is not there.
    time.sleep(2.5)
    assert agent.poll() is None, said
    agent.send_signal(signal.SIGTERM)
    _, rest = agent.communicate(timeout=PATIENCE_S)
    assert agent.returncode == 0
    assert "Traceback" not in rest + "".join(said)
