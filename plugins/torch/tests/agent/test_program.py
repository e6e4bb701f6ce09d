"""The program in the kernel: what is committed was made of its source, and what it tells, marks and
leaves behind.
"""

from __future__ import annotations

import hashlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from echelon_torch.agent import cgroups, groups
from echelon_torch.agent.program import OBJECT, KernelProgram, Seen
from echelon_torch.agent.sockets import SocketList
from plugins.torch.tests.agent import kernel
from tests.needs import needs

pytestmark = pytest.mark.xdist_group("agent")
PATIENCE_S = 30.0

TALK = """
import socket, sys
server = socket.create_server((sys.argv[1], 0), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET,
                              dualstack_ipv6=":" in sys.argv[1])
for line in sys.stdin:
    ours = socket.create_connection(("127.0.0.1", server.getsockname()[1]))
    theirs, _ = server.accept()
    print(ours.getsockname()[1], server.getsockname()[1], ours.getsockopt(socket.IPPROTO_IP, socket.IP_TOS), flush=True)
    sys.stdin.readline()
    ours.close()
    theirs.close()
    print(flush=True)
"""


def test_the_objects_were_made_of_the_sources() -> None:
    recorded = dict(
        reversed(line.split())
        for line in (OBJECT.parent / "SOURCE.sha256").read_text().splitlines()
    )
    assert {"connections.bpf.c", "ranks.bpf.c"} < recorded.keys()
    for name, digest in recorded.items():
        assert hashlib.sha256((OBJECT.parent / name).read_bytes()).hexdigest() == digest, (
            f"{name}: run make bpf"
        )
    for made in OBJECT.parent.glob("*.bpf.c"):
        assert made.with_suffix(".o").read_bytes().startswith(b"\x7fELF")


@pytest.fixture
def group() -> Iterator[Path]:
    with cgroups.JobGroup("test") as group:
        yield group.path


class Talker:
    """A process in a control group that opens a connection with itself, and closes it."""

    def __init__(self, group: Path, address: str = "127.0.0.1") -> None:
        def enter() -> None:
            (group / "cgroup.procs").write_text("0")

        self._popen = subprocess.Popen(
            [sys.executable, "-c", TALK, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=enter,
        )

    def talk(self) -> list[int]:
        """Open or close; return the ports and the type of service after opening."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        print(file=self._popen.stdin, flush=True)
        return [int(word) for word in self._popen.stdout.readline().split()]

    def close(self) -> None:
        self._popen.communicate(timeout=PATIENCE_S)


def told(program: KernelProgram, count: int) -> list[Seen]:
    found: list[Seen] = []
    give_up_at = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < give_up_at, found
        select.select([program], [], [], 1.0)
        found += program.read()
    return found


@needs("eBPF")
@pytest.mark.parametrize("address", ["127.0.0.1", "::"])
def test_it_tells_of_connections_of_its_group_at_both_ends(group: Path, address: str) -> None:
    with KernelProgram(group) as program, ExitStack() as stack:
        other = Talker(groups.own_group())
        stack.callback(other.close)
        talker = Talker(group, address)
        stack.callback(talker.close)
        other.talk()
        client, server, _ = talker.talk()
        opened = told(program, 2)
        talker.talk()
        closed = told(program, 2)
        ends = {(client, server), (server, client)}
        assert {(one.connection.local_port, one.connection.remote_port) for one in opened} == ends
        assert {(one.connection.local_port, one.connection.remote_port) for one in closed} == ends
        assert (
            {one.connection.local for one in opened}
            == {one.connection.remote for one in opened}
            == {"127.0.0.1"}
        )
        assert all(one.is_open for one in opened)
        assert not any(one.is_open for one in closed)


@needs("eBPF")
@pytest.mark.parametrize("dscp", [None, 10, 46])
def test_connections_carry_the_mark_that_was_asked_for(group: Path, dscp: int | None) -> None:
    with KernelProgram(group, dscp) as program, ExitStack() as stack:
        talker = Talker(group)
        stack.callback(talker.close)
        _, _, tos = talker.talk()
        assert tos == (dscp or 0) << 2
        assert {one.is_marked for one in told(program, 2)} == {dscp is not None}


@needs("eBPF")
def test_the_list_of_sockets_knows_the_group(group: Path) -> None:
    with SocketList() as listing, ExitStack() as stack:
        talker = Talker(group)
        stack.callback(talker.close)
        client, server, _ = talker.talk()
        ours = {
            one.connection.local_port
            for one in listing.read()
            if one.cgroup in cgroups.numbers(group)
        }
        assert ours == {client, server}


HOLD = """
import subprocess
import sys
sys.path[:0] = sys.argv[1:]
from pathlib import Path
from echelon_torch.agent import cgroups
from echelon_torch.agent.program import KernelProgram
with cgroups.JobGroup("test") as made, KernelProgram(made.path, 10):
    # The job's own groups below its group, with a process that goes on.
    inner = made.path / "inner" / "most"
    inner.mkdir(parents=True)
    child = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL,
                             preexec_fn=lambda: (inner / "cgroup.procs").write_text("0"))
    print(child.pid, flush=True)
    sys.stdin.read()
"""


@needs("eBPF")
@pytest.mark.parametrize("number", [signal.SIGKILL, None])
def test_nothing_is_left_however_it_ends(number: signal.Signals | None) -> None:
    before = kernel.programs(), kernel.links(), kernel.groups()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    during = kernel.programs(), kernel.links(), kernel.groups()
    assert [len(now - then) for now, then in zip(during, before, strict=True)] == [1, 1, 1]
    if number is not None:
        holder.send_signal(number)
    holder.communicate(timeout=PATIENCE_S)
    give_up_at = time.monotonic() + PATIENCE_S
    while any(
        now & new
        for now, new in zip(
            held(), (a - b for a, b in zip(during, before, strict=True)), strict=True
        )
    ):
        assert time.monotonic() < give_up_at, (held(), before)
        time.sleep(0.02)
    own = Path("/proc/self/cgroup").read_text().splitlines()[-1]
    assert Path(f"/proc/{child}/cgroup").read_text().splitlines()[-1] == own, (
        "it goes on in the agent's own group"
    )
    os.kill(child, signal.SIGKILL)


def held() -> tuple[frozenset[int] | frozenset[str], ...]:
    return kernel.programs(), kernel.links(), kernel.groups()
