"""Worker processes in the network namespaces of their hosts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Self

from echelon.errors import RunError
from echelon.lab.hosts.backends.base import HostFabric
from echelon.lab.hosts.loop import RealTimeLoop
from echelon.lab.hosts.processes import watch_end
from echelon.lab.hosts.workers.assignment import Assignment, write_assignment
from echelon.processes import DIES_WITH_CALLER, NICENESS, preferred, said

_WORKER = (sys.executable, "-Pm", "echelon.lab.hosts.workers")
_LAST_WORDS_NS = 100_000_000
"""Longest wait for the message of a worker that has ended."""
_END_S = 5.0


class WorkerProcesses:
    """The worker processes of `hosts`, which wait for their assignments. A context manager: they do not outlive it."""

    def __init__(self, fabric: HostFabric, hosts: Iterable[str], directory: Path) -> None:
        self._fabric = fabric
        self._hosts = list(hosts)
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        for host in self._hosts:
            command = [*self._fabric.in_host(host), *DIES_WITH_CALLER, *preferred(NICENESS), *_WORKER]
            with self._log(host).open("wb") as log:
                self._processes[host] = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=log, stderr=log, process_group=0
                )
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
            if process.stdin is not None:
                process.stdin.close()

    @property
    def pids(self) -> Mapping[str, int]:
        """Process ids by host."""
        return {host: process.pid for host, process in self._processes.items()}

    def assign(self, assignments: Mapping[str, Assignment]) -> None:
        """Hand out the assignments. Raises `RunError` if a worker has ended already."""
        for host, process in self._processes.items():
            assert process.stdin is not None
            try:
                with process.stdin:
                    write_assignment(assignments[host], process.stdin)
            except BrokenPipeError:
                process.wait()
                raise self._ended(host) from None

    @contextmanager
    def watched(self, loop: RealTimeLoop) -> Iterator[None]:
        """Watch the workers: a `RunError` comes out of the loop if one ends otherwise than it should."""

        def ended(host: str) -> None:
            # The worker's own message comes first.
            loop.at(loop.now_ns + _LAST_WORDS_NS, self._check, host)

        with ExitStack() as stack:
            for host, process in self._processes.items():
                stack.callback(watch_end(loop, process.pid, partial(ended, host)))
            yield

    def wait(self) -> None:
        """Wait until all workers have ended, as they were told to. Raises `RunError`."""
        for host, process in self._processes.items():
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                raise RunError(f"host {host}: its worker does not exit: {said(self._log(host))}") from None

    def _check(self, host: str) -> None:
        if self._processes[host].poll():
            raise self._ended(host)

    def _ended(self, host: str) -> RunError:
        status = self._processes[host].returncode
        return RunError(f"host {host}: its worker ended with status {status}: {said(self._log(host))}")

    def _log(self, host: str) -> Path:
        return self._directory / f"worker-{host}.log"
