"""The service of a run on real hosts, and its jobs.

It is the daemon as operators start it, in a process of its own.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

import yaml

from echelon.controller.client import Client, ClientError
from echelon.controller.resources.jobs import JobResource
from echelon.controller.resources.status import StatusResource
from echelon.model.errors import RunError
from echelon.model.fabric.model import CableLink, Fabric
from echelon.model.jobs.spec import JobSpec
from echelon.model.quantities import duration_text, rate_text
from echelon.switches.lowering.at_hosts import HostRule
from echelon.switches.processes import (
    DIES_WITH_CALLER,
    NICENESS,
    free_port,
    last_words,
    preferred,
    start,
)
from echelon.switches.targets.launching import Place, SwitchLauncher, SwitchProcess
from echelon_lab.hosts.exposure import NO_EXPOSURE, Exposure
from echelon_lab.scenarios.results import ChosenPlan
from echelon_lab.scenarios.scenario import PolicyChoice

READY_S = 120.0
"""Longest wait until the service leads and all switches hold what they should."""
INSTALL_S = 60.0
"""Longest wait until a job is installed. The API lets a client wait for no longer."""
ANSWER_S = 10.0
FABRIC_FILE = "fabric.yaml"
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Controller:
    """The configuration of a service. `switches` are entries of its configuration file."""

    directory: Path
    """Directory for its files: empty, or that of an earlier process of the same service."""
    fabric: Fabric
    policy: PolicyChoice
    switches: Mapping[str, Mapping[str, object]]
    socket: Path | None = None
    """The Unix socket of the API, which all network namespaces reach; None: a port of loopback."""
    # It computes a lot at its start, which must not delay switches
    # that share the processors with it.
    before: Sequence[str] = (*DIES_WITH_CALLER, *preferred(NICENESS // 2))
    """Words to put before the command of the service."""
    service: str = "run"
    """The name of the service."""

    def configuration(self, listen: str) -> Path:
        """Write the configuration file, with the API at that address; return its path."""
        _write(self.directory / FABRIC_FILE, fabric_document(self.fabric))
        policy = {"name": self.policy.name, "parameters": dict(self.policy.parameters)}
        switches = {name: dict(entry) for name, entry in self.switches.items()}
        configuration = {
            "service": self.service,
            "fabric": FABRIC_FILE,
            "policy": policy,
            "store": "sqlite:state.db",
            "switches": switches,
            "api": {"listen": listen},
            "log": {"format": "json"},
        }
        return _write(self.directory / "echelon.yaml", configuration)


class ServiceProcess:
    """The process of `echelon serve`. A context manager: the process does not outlive it."""

    def __init__(self, controller: Controller) -> None:
        if controller.socket is None:
            self._listen = f"127.0.0.1:{free_port()}"
        else:
            self._listen = f"unix:{controller.socket}"
        self._configuration = controller.configuration(self._listen)
        self._log = controller.directory / "controller.log"
        self._before = controller.before
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        if self._listen.startswith("unix:"):
            return self._listen
        return f"http://{self._listen}"

    @property
    def pid(self) -> int | None:
        """The process id; None while the service is stopped."""
        if self._process is None:
            return None
        return self._process.pid

    def start(self) -> None:
        """Start the process without waiting for it.

        After `kill` it continues from what it had stored.
        """
        if self._process is not None:
            return
        serve = [sys.executable, "-Pm", "echelon", "serve", "--config", str(self._configuration)]
        self._process = start([*self._before, *serve], self._log, "ab")

    def kill(self) -> None:
        """Kill the process as a power cut would. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def check(self) -> None:
        """Raise `RunError` with the end of the process's log if it has ended by itself."""
        if self._process is None:
            status = None
        else:
            status = self._process.poll()
        if status is not None:
            if status >= 0:
                how = f"with status {status}"
            else:
                how = f"by {signal.Signals(-status).name}"
            raise RunError(f"the controller ended {how}: {last_words(self._log)}")

    def wait_settled(self) -> StatusResource:
        """Wait until the service leads and every switch holds what it should. Raises `RunError`."""
        give_up_at = time.monotonic() + READY_S
        problem = "it does not answer"
        with self.client() as client:
            while time.monotonic() < give_up_at:
                self.check()
                try:
                    status = client.status()
                except ClientError as error:
                    problem = error.reason
                else:
                    if (
                        status.role == "leader"
                        and status.settled
                        and set(status.switches) == {"ready"}
                    ):
                        return status
                    with suppress(ClientError):
                        problem = self._what_is_missing(client, status)
                time.sleep(_POLL_S)
        raise RunError(
            f"the controller is not ready after {READY_S:g} s: {problem};"
            f" it says: {last_words(self._log)}"
        )

    def register(self, specs: Sequence[JobSpec]) -> list[JobResource]:
        """Register jobs and wait until switches hold the best plan that the service finds.

        Raises `RunError`.
        """
        registered = self.install(specs)
        self._wait_searched()
        return registered

    def install(self, specs: Sequence[JobSpec]) -> list[JobResource]:
        """Register jobs and wait until switches hold a plan for them. Raises `RunError`."""
        registered = []
        with self.client() as client:
            for spec in specs:
                try:
                    client.register_job(document(spec))
                except ClientError as error:
                    self.check()
                    raise RunError(f"the controller refuses job {spec.job}: {error}") from None
            # Only now, so that the service plans for all of them together.
            for spec in specs:
                try:
                    job = client.job(spec.job, wait_s=INSTALL_S)
                except ClientError as error:
                    self.check()
                    raise RunError(
                        f"the controller does not answer about job {spec.job}: {error}"
                    ) from None
                if job.problem is not None:
                    raise RunError(f"the controller cannot plan job {spec.job}: {job.problem}")
                if job.state != "installed":
                    raise RunError(
                        f"job {spec.job} is not on the switches after {INSTALL_S:g} s:"
                        f" {last_words(self._log)}"
                    )
                registered.append(job)
        return registered

    def _wait_searched(self) -> None:
        """Wait without a limit until the service searches for a better plan no more."""
        while True:
            status = self.wait_settled()
            if not status.searching:
                return
            time.sleep(_POLL_S)

    def paths(self) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        """Return the nodes of each flow's path in the plan, by job and flow. Raises `RunError`."""
        paths: dict[str, dict[str, tuple[str, ...]]] = {}
        try:
            with self.client() as client:
                for flow in client.plan().flows:
                    paths.setdefault(flow.job, {})[flow.flow] = flow.path
        except ClientError as error:
            self.check()
            raise RunError(f"the controller does not tell its plan: {error.reason}") from None
        return paths

    def ranked_at_hosts(self, jobs: Iterable[str]) -> tuple[HostRule, ...]:
        """Return how senders of jobs rank, where switches do not. Raises `RunError`."""
        try:
            with self.client() as client:
                documents = chain.from_iterable(client.job(job).ranked_at_hosts for job in jobs)
                return tuple(map(HostRule.of_document, documents))
        except ClientError as error:
            self.check()
            raise RunError(f"the controller does not tell how hosts rank: {error.reason}") from None

    def plans(self) -> Sequence[ChosenPlan]:
        """Return what the policy has chosen for jobs that share links. Raises `RunError`."""
        try:
            with self.client() as client:
                why = client.plan(why=True).why
        except ClientError as error:
            self.check()
            raise RunError(
                f"the controller does not tell why its plan is as it is: {error.reason}"
            ) from None
        choices = []
        for choice in why:
            chosen = ChosenPlan(
                choice.jobs,
                choice.plan,
                choice.slowdowns,
                choice.judge,
                choice.by_model,
                choice.unjudged,
            )
            choices.append(chosen)
        return choices

    def holdings(self) -> Mapping[str, tuple[int, int]]:
        """Return the table entries and the flow events reported, by switch. Raises `RunError`."""
        try:
            with self.client() as client:
                entries = {switch.name: switch.entries or 0 for switch in client.switches()}
                metrics = client.metrics()
        except ClientError as error:
            self.check()
            raise RunError(f"the controller does not answer at the end: {error.reason}") from None
        counts = {}
        for name, count in entries.items():
            counts[name] = (count, _digests(metrics, name))
        return counts

    def client(self) -> Client:
        return Client(self.url, timeout_s=ANSWER_S)

    @staticmethod
    def _what_is_missing(client: Client, status: StatusResource) -> str:
        if status.role != "leader":
            return "it does not lead yet"
        for switch in client.switches():
            if switch.state != "ready":
                return (
                    f"switch {switch.name} at {switch.address} is {switch.state}:"
                    f" {switch.problem or 'no reason'}"
                )
        return status.plan_problem or "its plan is not on the switches yet"


def start_switches(
    stack: ExitStack,
    fabric: Fabric,
    launcher: SwitchLauncher,
    interfaces: Callable[[str], Mapping[int, str]],
    directory: Path,
    before: Sequence[str],
    queue_bytes: int | None = None,
    exposure: Exposure = NO_EXPOSURE,
) -> Mapping[str, SwitchProcess]:
    """Start all switches of a fabric, which `stack` ends, without waiting for them.

    `interfaces` are those of a switch, by port; the rest is that of `SwitchLauncher` and `Place`.
    """
    switches: dict[str, SwitchProcess] = {}
    for name, switch in fabric.switches.items():
        rates = {}
        for port, other in fabric.ports[name].items():
            rates[port] = fabric.rate_bps[name, other]
        place = Place(
            name,
            switch.device_id,
            interfaces(name),
            rates,
            queue_bytes,
            exposure.host,
            exposure.options(name),
        )
        switches[name] = launcher.launch(place, directory, before=before)
        stack.callback(switches[name].kill)
    return switches


def document(spec: JobSpec) -> dict[str, Any]:
    """Return the job file that `spec` came from, or would come from."""
    return spec.model_dump(mode="json", exclude_unset=True)


def fabric_document(fabric: Fabric) -> dict[str, object]:
    """Return a fabric file with everything fixed.

    Every reader finds the same names, addresses and ports.
    """
    hosts = {}
    for host in fabric.hosts.values():
        hosts[host.name] = {"ipv4": host.ipv4, "mac": host.mac}
    switches = {}
    for switch in fabric.switches.values():
        switches[switch.name] = {"device_id": switch.device_id}
    links = [_link_document(fabric, cable) for cable in fabric.cables]
    return {
        "fabric": fabric.name,
        "paths": fabric.paths,
        "hosts": hosts,
        "switches": switches,
        "links": links,
    }


def _link_document(fabric: Fabric, cable: CableLink) -> dict[str, object]:
    ports = {}
    for end in (cable.a, cable.b):
        # Only switches number their ports.
        if end.node in fabric.switches:
            ports[end.node] = end.port
    return {
        "between": [cable.a.node, cable.b.node],
        "rate": rate_text(cable.rate_bps),
        "delay": duration_text(cable.delay_s),
        "ports": ports,
    }


def _digests(metrics: str, switch: str) -> int:
    start = f'echelon_digests_total{{switch="{switch}"}} '
    for line in metrics.splitlines():
        if line.startswith(start):
            return int(float(line.removeprefix(start)))
    return 0


def _write(path: Path, content: Mapping[str, object]) -> Path:
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8")
    return path
