"""The programs of jobs, each beside an agent in the namespace of its host."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from echelon.model.errors import RunError
from echelon.switches.processes import DIES_WITH_CALLER, last_words, start
from echelon_lab.hosts.backends.base import HostFabric
from echelon_lab.hosts.loop import RealTimeLoop, watch_end
from echelon_lab.scenarios.scenario import Scenario
from echelon_torch.agent.processes import descendants
from echelon_torch.injecting import with_hook

WARM_UP = 3
"""Iterations of a program that are not measured: PyTorch prepares in them what later ones use."""
_FIRST_PORT = 29500
_END_S = 10.0

_CAUSE = re.compile(r"(?:\[rank\d+\]: ?)?(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): .*")
"""The last line of a traceback. In a log, torchrun's own messages follow it."""


def _cause(log: Path) -> str | None:
    """Return the first Python error in a log, or None."""
    with suppress(OSError):
        for line in log.read_text(errors="replace").splitlines():
            if _CAUSE.fullmatch(line):
                return " ".join(line.split())
    return None


def _kill(agent: subprocess.Popen[bytes]) -> None:
    """Kill the processes of an agent that did not end when it was asked to."""
    for process in descendants(agent.pid):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    agent.wait()


@dataclass(frozen=True, slots=True)
class _Program:
    job: str
    host: str
    agent: subprocess.Popen[bytes]
    log: Path


class Programs:
    """The programs of `scenario` on `hosts`, with agents that report to the service at `url`.

    The ranks report to the socket at `ranks`. A context manager: no process of the programs
    outlives it.
    """

    def __init__(
        self,
        scenario: Scenario,
        hosts: HostFabric,
        url: str,
        ranks: Path,
        directory: Path,
    ) -> None:
        self._scenario = scenario
        self._hosts = hosts
        self._url = url
        self._ranks = ranks
        self._directory = directory
        self._programs: list[_Program] = []
        self._over: set[str] = set()

    def __enter__(self) -> Self:
        jobs = [job for job in self._scenario.jobs if job.name in self._scenario.commands]
        for number, job in enumerate(jobs):
            for rank in range(len(job.workers)):
                self._start(job.name, job.workers, rank, _FIRST_PORT + number)
        return self

    def __exit__(self, *_: object) -> None:
        for job in {program.job for program in self._programs}:
            self.stop(job)
        for program in self._programs:
            try:
                program.agent.wait(_END_S)
            except subprocess.TimeoutExpired:
                _kill(program.agent)

    def stop(self, job: str) -> None:
        """Ask the programs of a job to end.

        Their agents pass the signal on, and remove their control groups when they end.
        """
        self._over.add(job)
        for program in self._programs:
            if program.job == job:
                program.agent.terminate()

    @contextmanager
    def watched(self, loop: RealTimeLoop) -> Iterator[None]:
        """Watch the programs: the loop raises `RunError` if one ends before it is stopped."""
        with ExitStack() as stack:
            for program in self._programs:
                ended = partial(self._ended, program)
                stack.callback(watch_end(loop, program.agent.pid, ended))
            yield

    def last_words(self, job: str) -> str:
        """Return the last output of a job's programs, by host."""
        words = []
        for program in self._programs:
            if program.job == job:
                words.append(f"{program.host}: {last_words(program.log)}")
        return " | ".join(words)

    def _ended(self, program: _Program) -> None:
        if program.job in self._over:
            return
        status = program.agent.wait()
        cause = _cause(program.log) or last_words(program.log)
        raise RunError(
            f"job {program.job}: its program on {program.host} ended with status {status} before"
            f" the run did (it has to train for longer than the run): {cause}"
        )

    def _start(
        self,
        job: str,
        workers: tuple[str, ...],
        rank: int,
        port: int,
    ) -> None:
        host = workers[rank]
        log = self._directory / f"program-{job}-{host}.log"
        echelon = [sys.executable, "-Pm", "echelon"]
        options = ["--url", self._url, "--job", job, "--worker", host]
        command = [*self._hosts.in_host(host), *DIES_WITH_CALLER]
        command += [*echelon, "agent", "run", *options, "--", *self._scenario.commands[job]]
        environment = {**with_hook(os.environ), **self._environment(job, workers, rank, port)}
        process = start(
            command,
            log,
            cwd=self._scenario.file.parent,
            env=environment,
        )
        self._programs.append(_Program(job, host, process, log))

    def _environment(
        self,
        job: str,
        workers: tuple[str, ...],
        rank: int,
        port: int,
    ) -> Mapping[str, str]:
        """Return the environment of a rank; `torchrun` takes its options from PET_*."""
        ranks = str(len(workers))
        host = workers[rank]
        address = self._scenario.fabric.hosts[workers[0]].ipv4
        programs = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        return {
            "RANK": str(rank),
            "WORLD_SIZE": ranks,
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
            "PET_NNODES": ranks,
            "PET_NODE_RANK": str(rank),
            "PET_NPROC_PER_NODE": "1",
            "PET_MASTER_ADDR": address,
            "PET_MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": self._hosts.host_interface(host),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "PATH": os.pathsep.join(programs),
            "ECHELON_RUN_SOCKET": str(self._ranks),
            "ECHELON_RUN_WARM_UP": str(WARM_UP),
            "ECHELON_RUN_JOB": job,
            "ECHELON_RUN_WORKER": host,
        }
