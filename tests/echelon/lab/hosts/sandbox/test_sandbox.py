"""Private namespaces: what is inside, what gets out (status, files), and that nothing is left,
whoever is killed.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from echelon.switches.processes import NICENESS
from echelon_lab.hosts import sandbox
from tests.faults import coded, mentions
from tests.needs import needs

PATIENCE_S = 30.0
CALLER = (
    "import sys; from echelon_lab.hosts.sandbox import run_inside;"
    " sys.exit(run_inside(sys.argv[1:]))"
)
PRIVATE_CALLER = (
    "import sys; from echelon_lab.hosts.sandbox import run_inside;"
    " sys.exit(run_inside(sys.argv[2:], [sys.argv[1]]))"
)

pytestmark = needs("the laboratory's sandbox")


def run(*command: str, caller: str = CALLER, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", caller, *command],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        **options,  # type: ignore[call-overload]
    )


def python(script: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script, *arguments)


# -- what the caller gets --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 3"), 3),
        (("sh", "-c", "kill -KILL $$"), 128 + signal.SIGKILL),
        (("sh", "-c", "kill -TERM $$"), 128 + signal.SIGTERM),
        (("no-such-command",), 127),
    ],
)
def test_the_exit_status_is_that_of_the_command(command: tuple[str, ...], status: int) -> None:
    assert run(*command).returncode == status


def test_streams_directory_and_environment_are_the_callers(tmp_path: Path) -> None:
    done = run(
        "sh",
        "-c",
        "cat; pwd; echo $WORD; echo said >&2",
        input="given\n",
        cwd=tmp_path,
        env={**os.environ, "WORD": "word"},
    )
    assert (done.stdout.splitlines(), done.stderr) == (["given", str(tmp_path), "word"], "said\n")


@needs("sessions in groups")
def test_the_whole_sandbox_is_preferred() -> None:
    before = Path("/proc/self/autogroup").read_text()
    assert run("sh", "-c", "cat /proc/self/autogroup").stdout.split()[1:] == ["nice", str(NICENESS)]
    assert Path("/proc/self/autogroup").read_text() == before


def test_files_stay_except_in_private_directories(tmp_path: Path) -> None:
    kept, private = tmp_path / "kept", tmp_path / "private"
    private.mkdir()
    (private / "before").write_text("outside")
    done = run(
        str(private),
        "sh",
        "-c",
        f"ls {private}; echo 1 > {kept}; echo 2 > {private}/lost",
        caller=PRIVATE_CALLER,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert kept.read_text() == "1\n"
    assert [path.name for path in private.iterdir()] == ["before"]


def test_a_broken_pipe_ends_commands_as_usual() -> None:
    """Python ignores SIGPIPE; the programs that it starts should not."""
    ignored = next(
        line
        for line in run("cat", "/proc/self/status").stdout.splitlines()
        if line.startswith("SigIgn")
    )
    assert int(ignored.split()[1], 16) & 1 << (signal.SIGPIPE - 1) == 0


# -- inside ----------------------------------------------------------------------------------------

_FACTS = """
import json, os, socket
from echelon_lab.hosts import sandbox
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(server.getsockname()).close()
scratch = sandbox.scratch()
print(json.dumps({
    "inside": sandbox.inside(),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "listed": os.listdir("/sys/class/net"),
    "ipv6": open("/proc/sys/net/ipv6/conf/default/disable_ipv6").read().strip(),
    "processes": sum(name.isdecimal() for name in os.listdir("/proc")),
    "memory": os.listdir("/dev/shm"),
    "netns": os.listdir("/run/netns"),
    "scratch": [str(scratch), os.listdir(scratch)],
}))
"""


def test_inside_there_is_loopback_and_nothing_else() -> None:
    facts = json.loads(run(*python(_FACTS)).stdout)
    assert facts == {
        "inside": True,
        "interfaces": ["lo"],
        "listed": ["lo"],
        "ipv6": "1",
        "processes": 2,  # the first and this one
        "memory": [],
        "netns": [],
        "scratch": ["/run/sandbox", []],
    }
    assert not sandbox.inside()


def test_the_mark_of_a_sandbox_does_not_hold_outside() -> None:
    mark = run("sh", "-c", "echo $ECHELON_SANDBOX").stdout.strip()
    assert mark
    asked = [sys.executable, "-c", "from echelon_lab.hosts import sandbox; print(sandbox.inside())"]
    done = subprocess.run(
        asked, env={**os.environ, "ECHELON_SANDBOX": mark}, capture_output=True, text=True
    )
    assert done.stdout == "False\n"


def test_run_has_what_it_has_outside() -> None:
    outside = sorted(path.name for path in Path("/run").iterdir())
    inside = run("ls", "-A", "/run").stdout.split()
    assert sorted(set(inside) - {"netns", "sandbox"}) == sorted(set(outside) - {"netns", "sandbox"})


def test_a_sandbox_in_a_sandbox() -> None:
    done = run(
        *python(CALLER, *python("from echelon_lab.hosts import sandbox; print(sandbox.inside())"))
    )
    assert (done.returncode, done.stdout) == (0, "True\n")


# -- signals ---------------------------------------------------------------------------------------

_SAYS = """
import signal, sys
signals = {signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print("ready", flush=True)
for _ in range(4):
    print(signal.sigwait(signals).name, flush=True)
sys.exit(7)
"""


def test_each_signal_to_the_caller_arrives_once() -> None:
    """The caller is the leader of a process group, as in a terminal, where Ctrl-C goes to all of
    it.
    """
    with subprocess.Popen(
        [sys.executable, "-c", CALLER, *python(_SAYS)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "ready\n"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            os.killpg(caller.pid, number)
            assert caller.stdout.readline() == f"{number.name}\n"
        assert caller.wait(PATIENCE_S) == 7


# -- the end ---------------------------------------------------------------------------------------

_STUBBORN = """
import os, signal, subprocess, sys, time
token = sys.argv[1]
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
subprocess.run(["ip", "link", "add", f"x{token}", "type", "veth", "peer", "name", f"y{token}"], check=True)
subprocess.run(["ip", "netns", "add", token], check=True)
open(f"/dev/shm/{token}", "w").close()
open(f"/run/sandbox/{token}", "w").close()
open(f"/run/{token}", "w").close()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("ready", flush=True)
        while True:
            signal.pause()
    os._exit(0)
while True:
    signal.pause()
"""


@pytest.fixture
def token() -> str:
    return uuid.uuid4().hex[:10]


def _processes_with(token: str) -> list[str]:
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            try:
                environment = (directory / "environ").read_bytes()
            except OSError:
                continue
            if token.encode() in environment:
                found.append((directory / "cmdline").read_text())
    return found


@pytest.mark.parametrize("victim", ["caller", "unshare", "first process", "command"])
def test_nothing_is_left_when_any_of_them_is_killed(victim: str, token: str) -> None:
    before = sorted(path.name for path in Path("/run").iterdir())
    with subprocess.Popen(
        [sys.executable, "-c", CALLER, *python(_STUBBORN, token)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TOKEN": token},
    ) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "ready\n"
        assert len(_processes_with(token)) >= 5
        chain = ["caller", "unshare", "first process", "command"]
        processes = [caller.pid]
        while len(processes) < len(chain):
            (child,) = _children(processes[-1])[:1]
            processes.append(child)
        os.kill(processes[chain.index(victim)], signal.SIGKILL)
        # All hold the other end of this pipe: its end is theirs.
        assert caller.stdout.read() == ""
        caller.wait(PATIENCE_S)
    assert _processes_with(token) == []
    assert token not in " ".join(name for _, name in socket.if_nameindex())
    assert not Path(f"/dev/shm/{token}").exists()
    assert not Path(f"/run/netns/{token}").exists()
    assert sorted(path.name for path in Path("/run").iterdir()) == before


def _children(process: int) -> list[int]:
    return [
        int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]


_STARTS_MORE = """
import subprocess, sys
print(".", flush=True)
while True:
    subprocess.run(["sleep", "1000"], start_new_session=True)
"""


@pytest.mark.long
def test_nothing_is_left_whenever_the_caller_is_killed(token: str) -> None:
    """The caller is killed at any moment of the start, which takes some hundredths of a second."""
    rng = random.Random(7)
    for _ in range(150):
        with subprocess.Popen(
            [sys.executable, "-c", CALLER, *python(_STARTS_MORE)],
            stdout=subprocess.PIPE,
            env={**os.environ, "TOKEN": token},
        ) as caller:
            assert caller.stdout is not None
            # Not to wait for anything, but to strike at different moments.
            select.select([caller.stdout], [], [], rng.uniform(0, 0.3))
            caller.kill()
            caller.stdout.read()
    assert _processes_with(token) == []


# -- where there can be none -----------------------------------------------------------------------


def test_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert mentions(sandbox.missing() or "", "unshare", "util-linux")


def test_missing_says_that_it_needs_root() -> None:
    loaded = "import os, shutil, subprocess; from echelon_lab.hosts import sandbox"
    script = f"{loaded}; os.setuid(65534); print(sandbox.missing())"
    asked = [sys.executable, "-c", script]
    done = subprocess.run(asked, capture_output=True, text=True)
    assert mentions(done.stdout, "root", "sudo")
    assert done.stdout.count("\n") == 1


def test_scratch_is_refused_outside() -> None:
    from echelon.model.errors import RunError

    with pytest.raises(RunError, check=coded("run-failed", "sandbox.run_inside")):
        sandbox.scratch()
