"""The sockets of a process and its descendants, while processes come and go and have odd names."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

from echelon_torch.agent.processes import descendants, elsewhere, socket_inodes
from tests.needs import needs


def test_sockets_are_found_while_processes_come_and_go() -> None:
    over = threading.Event()

    def fleet() -> None:
        while not over.is_set():
            subprocess.run(["true"], check=True)

    thread = threading.Thread(target=fleet)
    thread.start()
    try:
        with socket.socket() as ours:
            inode = os.fstat(ours.fileno()).st_ino
            assert all(inode in socket_inodes(os.getpid()) for _ in range(20))
    finally:
        over.set()
        thread.join()
    # Before it runs its program, a child holds what its parent held when it was made.
    assert inode not in socket_inodes(os.getpid())


def test_a_process_may_have_any_name(tmp_path: Path) -> None:
    # /proc/PID/stat has the name of the program in parentheses.
    program = tmp_path / "a) S 1\n(b"
    shutil.copy("/bin/cat", program)
    with subprocess.Popen([program], stdin=subprocess.PIPE) as child:
        assert child.pid in descendants(os.getpid())
        assert child.stdin is not None
        child.stdin.close()


def test_a_process_that_is_not_there_has_no_sockets() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as child:
        child.wait()
    assert socket_inodes(child.pid) == frozenset()


def test_a_broken_proc_is_no_trouble(tmp_path: Path) -> None:
    for process, stat in {"1": "", "2": "2 (x", "3": "3 (x) S no", "4": "4 (x) S 9"}.items():
        (tmp_path / process / "fd").mkdir(parents=True)
        (tmp_path / process / "stat").write_text(stat)
        (tmp_path / process / "fd" / "0").symlink_to(
            "socket:[77]" if process == "4" else "socket:[x]"
        )
    (tmp_path / "5").mkdir()
    (tmp_path / "self").symlink_to("1")
    assert descendants(9, tmp_path) == {9, 4}
    assert socket_inodes(9, tmp_path) == {77}


@needs("network namespaces")
def test_a_process_in_another_network_namespace_is_told_apart() -> None:
    ready = ("sh", "-c", "echo; cat")
    with (
        subprocess.Popen(ready, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as here,
        subprocess.Popen(
            ["unshare", "--net", *ready], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as there,
    ):
        for child in (here, there):
            assert child.stdout is not None
            child.stdout.readline()
        found = dict(elsewhere([os.getpid(), here.pid, there.pid, 2**22 + 1]))
        assert list(found) == [there.pid]
        here.communicate()
        there.communicate()
