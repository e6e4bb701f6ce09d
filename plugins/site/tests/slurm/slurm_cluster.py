"""The real Slurm with several nodes on one machine, and a service beside it. Call it in a sandbox.

Each node is a slurmd in namespaces of its own, so that SIGKILL of its first process is the death of
the node with all that runs there. munged, keys and all files are private.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import yaml

from echelon.controller.client import Client
from tests.echelon.service import lab
from tests.echelon.service.lab import Daemon, settle
from tests.echelon.service.site import Site, site

ROOT = Path(__file__).resolve().parents[4]
until = partial(lab.until, patience_s=300.0)
"""Nodes of Slurm, their hooks and tests beside them share two processors."""
HOOK = ROOT / "deploy" / "slurm" / "hook.sh"
SLURMD_TIMEOUT_S = 10
"""The silence after which slurmctld takes a node for dead."""
FORGOTTEN = "FORGOTTEN"
"""The state of a job that Slurm does not have."""
_FIRST_PORT = 17001
_SETTINGS = """
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort=17000
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/linear
MailProg=/bin/true
ReturnToService=2
SlurmdTimeout={slurmd_timeout_s}
KillWait=2
MessageTimeout=100
MinJobAge=86400
"""


class SlurmCluster:
    """slurmctld, its nodes, and hooks that call the `echelon` of this Python."""

    def __init__(self, folder: Path, nodes: int, settings: Mapping[str, object]) -> None:
        """Write all files, and start nothing yet; `settings` are those of the hooks."""
        self.folder = folder
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.log = folder / "logger.log"
        self.config = folder / "slurm.yaml"
        self.config.write_text(yaml.safe_dump(dict(settings)))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("state", "bin"):
            (folder / name).mkdir()
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._write_hook()
        self._write_slurm_conf()

    def _write_hook(self) -> None:
        """Write the hook as it is in deploy/, with paths of this machine."""
        # Without a system's log, the hook's messages go to a file.
        logger = self.folder / "bin" / "logger"
        logger.write_text(f'#!/bin/sh\necho "$@" >> {self.log}\n')
        logger.chmod(0o755)
        python = shlex.quote(sys.executable)
        wrapper = self.folder / "bin" / "echelon"
        wrapper.write_text(f'#!/bin/sh\nexec {python} -m echelon "$@" --config {self.config}\n')
        wrapper.chmod(0o755)
        path = f"PATH={self.folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        text, count = re.subn(r"(?m)^PATH=.*$", path, HOOK.read_text())
        assert count == 1
        exported = f"export PATH SLURM_CONF={self.folder}/slurm.conf"
        hook = self.folder / "hook.sh"
        # On a busy machine all takes longer.
        text = text.replace("timeout 8 ", "timeout 120 ")
        hook.write_text(text.replace("export PATH", exported, 1))
        hook.chmod(0o755)

    def _write_slurm_conf(self) -> None:
        lines = [_SETTINGS.format(folder=self.folder, slurmd_timeout_s=SLURMD_TIMEOUT_S)]
        hooks = (HOOK.parent / "slurm.conf").read_text()
        lines.append(hooks.replace("/etc/echelon/slurm-hook.sh", f"{self.folder}/hook.sh"))
        for number, name in enumerate(self.nodes):
            port = _FIRST_PORT + number
            place = f"NodeHostname=localhost NodeAddr=127.0.0.1 Port={port}"
            lines.append(f"NodeName={name} {place} CPUs=1 RealMemory=500")
        lines.append("PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE")
        (self.folder / "slurm.conf").write_text("\n".join(lines) + "\n")

    # -- processes ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything, and wait until all nodes are idle."""
        _make_an_address()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        command = ["munged", "--force", "--foreground", "--key-file", str(key)]
        for option in ("socket", "pid-file", "log-file", "seed-file"):
            command += [f"--{option}", f"{self.folder}/munge.{option.removesuffix('-file')}"]
        self._start("munged", command)
        until((self.folder / "munge.socket").exists, "munged does not listen")
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        until(lambda: self.idle_nodes() == len(self.nodes), "nodes are not idle")

    def start_controller(self) -> None:
        self._start("slurmctld", ["slurmctld", "-D"])

    def start_node(self, node: str) -> None:
        # Files of a node for its tasks are its own, too. The shell stays the first process, which
        # has to reap orphans: slurmd would wait for them for ever.
        script = "mkdir -p /run/echelon-slurm && mount -t tmpfs none /run/echelon-slurm"
        inner = ["sh", "-c", f"{script} && slurmd -D -N {node} & wait"]
        namespaces = ["unshare", "--fork", "--kill-child", "--pid", "--mount", "--mount-proc"]
        self._start(node, [*namespaces, *inner])

    def kill(self, name: str) -> None:
        """Kill slurmctld, or a node with all of its processes."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for name in list(self._processes):
            self.kill(name)

    def _start(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    # -- commands ----------------------------------------------------------------------------------

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def idle_nodes(self) -> int:
        done = self.command("sinfo", "--noheader", "--Node", "--format=%T")
        return done.stdout.split().count("idle")

    def submit(self, script: str, *options: str) -> int:
        """Submit a script, and return the job's number."""
        command = ("sbatch", "--parsable", *options, "--wrap", script)
        done = self.command(*command)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def facts(self, job: int) -> dict[str, str]:
        """Return what `scontrol show job` says of a job.

        A slurmctld that is killed forgets what it accepted in the seconds before.
        """
        done = self.command("scontrol", "show", "job", str(job))
        if "Invalid job id" in done.stderr:
            return {"JobState": FORGOTTEN}
        assert done.returncode == 0, done.stderr
        return dict(re.findall(r"(?m)(\w+)=(\S.*?)(?=\s+\w+=|$)", done.stdout))

    def wait_state(self, job: int, *states: str) -> dict[str, str]:
        """Wait until a job is in one of these states, and return its facts."""
        until(lambda: self.facts(job)["JobState"] in states, f"job {job} is not {states}")
        return self.facts(job)

    def running(self) -> dict[int, list[str]]:
        """Return the nodes of each job that has some, by `squeue` in text."""
        done = self.command(
            "squeue", "--noheader", "--states=RUNNING,CONFIGURING", "--format=%A %N"
        )
        assert done.returncode == 0, done.stderr
        jobs = {}
        for line in done.stdout.splitlines():
            number, nodes = line.split()
            names = self.command("scontrol", "show", "hostnames", nodes).stdout.split()
            jobs[int(number)] = names
        return jobs

    def output(self, job: int) -> str:
        path = self.folder / f"slurm-{job}.out"
        return path.read_text() if path.exists() else ""

    def sync(self) -> subprocess.CompletedProcess[str]:
        """Run what the timer runs."""
        path = f"{self.folder}/bin:{self.environment['PATH']}"
        return subprocess.run(
            [f"{self.folder}/bin/echelon", "slurm", "sync"],
            env={**self.environment, "PATH": path},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


def _make_an_address() -> None:
    """Make an interface with an address: Slurm asks for names only of families that have one."""
    for words in (
        "link add slurm0 type veth peer name slurm1",
        "addr add 10.99.0.1/24 dev slurm0",
        "link set slurm0 up",
        "link set slurm1 up",
    ):
        subprocess.run(["ip", *words.split()], check=True)


def fabric(nodes: int) -> dict[str, object]:
    """Return a fabric whose hosts have the names of Slurm's nodes, half of them at each leaf."""
    hosts = [f"n{number}" for number in range(1, nodes + 1)]
    links = []
    for number, host in enumerate(hosts):
        leaf = "leaf1" if number < nodes / 2 else "leaf2"
        links.append({"between": [host, leaf], "rate": "100 Gbit/s"})
    links.append({"between": ["leaf1", "leaf2"], "rate": "100 Gbit/s"})
    return {"fabric": "slurm", "hosts": hosts, "switches": ["leaf1", "leaf2"], "links": links}


class Place:
    """Slurm, and a service with the same hosts."""

    def __init__(self, slurm: SlurmCluster, services: Site) -> None:
        self.slurm = slurm
        self._services = services
        self._daemon: Daemon | None = None

    def start_service(self, *, wait: bool = True) -> None:
        self._daemon = self._services.daemon("store.db", policy={"name": "crux"})
        if wait:
            with self.client() as client:
                settle(client)

    def kill_service(self) -> None:
        assert self._daemon is not None
        self._daemon.kill()

    @contextmanager
    def client(self) -> Iterator[Client]:
        assert self._daemon is not None
        with self._services.client(self._daemon) as client:
            yield client

    def records(self) -> list[dict[str, object]]:
        """Return the service's log."""
        return self._services.records()

    def registered(self) -> dict[str, list[str]]:
        """Return the hosts of each job that the service has."""
        with self.client() as client:
            return {job.name: sorted(job.workers) for job in client.jobs()}


@contextmanager
def place(folder: Path, nodes: int, **settings: object) -> Iterator[Place]:
    """Yield Slurm and a service that run."""
    shutil.rmtree(folder / "site", ignore_errors=True)
    (folder / "site").mkdir()
    (folder / "slurm").mkdir()
    with site(folder / "site", fabric(nodes)) as services:
        slurm = SlurmCluster(folder / "slurm", nodes, {"url": services.url, **settings})
        here = Place(slurm, services)
        try:
            here.start_service()
            slurm.start()
            yield here
        finally:
            slurm.stop()
