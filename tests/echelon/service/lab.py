"""A service as operators run it: the real daemon, real switches, all processes of their own,
nothing in between.

Switches are joined by Unix datagram sockets, so that nothing here needs root; hosts are the test's
own sockets.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import grpc
import yaml
from finsy.proto import p4r, p4r_grpc

from echelon.controller.client import Client
from echelon.controller.machine.jobs import RegisteredJob, parse_job
from echelon.controller.machine.records import Changes
from echelon.controller.resources.status import StatusResource
from echelon.controller.service.store import Candidate, open_store
from echelon.model.fabric.load import load_fabric
from echelon.model.fabric.model import Fabric
from echelon.switches.processes import free_port

PATIENCE_S = 60.0
SEARCHED_S = 300.0
"""The time that searches for plans may take on a busy machine.

They run when nothing else does.
"""
RULE = {"plan": "rule"}
"""Parameters of `echelon` without searches, which take seconds of a processor and change the plan
again.
"""

LINE = {
    "fabric": "line",
    "hosts": ["h1", "h2"],
    "switches": ["s1"],
    "links": [{"between": [host, "s1"], "rate": "1 Gbit/s"} for host in ("h1", "h2")],
}
PAIR = {
    "fabric": "pair",
    "hosts": ["h1", "h2", "h3", "h4"],
    "switches": ["leaf1", "leaf2"],
    "links": [
        {"between": ends, "rate": "1 Gbit/s"}
        for ends in (
            ["h1", "leaf1"],
            ["h2", "leaf1"],
            ["h3", "leaf2"],
            ["h4", "leaf2"],
            ["leaf1", "leaf2"],
        )
    ],
}
TWO_BY_TWO = {
    "fabric": "two_by_two",
    "hosts": ["h1", "h2", "h3", "h4"],
    "switches": ["leaf1", "leaf2", "spine1", "spine2"],
    "links": [
        *({"between": [host, leaf], "rate": "1 Gbit/s"} for host, leaf in
          (("h1", "leaf1"), ("h2", "leaf1"), ("h3", "leaf2"), ("h4", "leaf2"))),
        *({"between": [leaf, spine], "rate": "1 Gbit/s"} for leaf in ("leaf1", "leaf2")
          for spine in ("spine1", "spine2")),
    ],
}  # fmt: skip

BIN = Path(sys.executable).parent
"""The folder of the installed commands."""


PRELOADED = [
    __name__,
    "echelon.cli",
    "echelon.controller.service.api.app",
    "echelon.controller.service.daemon",
    "echelon.controller.service.store.sqlite",
    "echelon.switches.targets",
    "networkx",
    "softswitch.cli.running",
    "softswitch.cli.switch_command",
    "softswitch.native.polling",
    "softswitch.realtime.unix_port",
    "tests.echelon.service.preloaded",
]
"""The modules of which processes are forked that start in a fraction of the time."""
_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(PRELOADED)


def _run(
    command: str, arguments: Sequence[str], cwd: Path, output: Connection, descriptors: int | None
) -> None:
    """Be the installed command, or that of another environment, by its path, with the console at a
    pipe.
    """
    if descriptors is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    output.close()
    os.chdir(cwd)
    os.environ["NO_COLOR"] = "1"
    warnings.simplefilter("default")
    sys.argv = [command, *arguments]
    if os.sep in command:
        os.execv(command, sys.argv)
    (entry,) = entry_points(group="console_scripts", name=command)
    sys.exit(entry.load()())


class Process:
    """A command of ours as a process of its own, whose lines are kept, and can be waited for.

    It is forked from a process that has imported what it needs: it starts in a fraction of the
    time, and is as real otherwise. tests/echelon/service/test_deploy.py starts the service as its
    users do.
    """

    def __init__(
        self, name: str, command: str, *arguments: str, cwd: Path, descriptors: int | None = None
    ) -> None:
        """Start it; `descriptors` is the number of files that it may open at a time."""
        self.name = name
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._pipe, output = _FORKING.Pipe(duplex=False)
        self._process = _FORKING.Process(
            target=_run, args=(command, arguments, cwd, output, descriptors)
        )
        self._process.start()
        output.close()
        self._reader = threading.Thread(target=self._read, name=f"log of {name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with os.fdopen(os.dup(self._pipe.fileno()), errors="replace") as stream, self._pipe:
            for line in stream:
                with self._news:
                    self.lines.append(line.rstrip("\n"))
                    self._news.notify_all()
        with self._news:
            self._news.notify_all()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def wait_line(self, wanted: Callable[[str], bool]) -> str:
        """Return the first line that is `wanted`. Fails if the process ends without one."""
        seen = 0
        with self._news:
            while True:
                for line in self.lines[seen:]:
                    if wanted(line):
                        return line
                seen = len(self.lines)
                assert self._reader.is_alive(), f"{self.name} ended:\n" + "\n".join(
                    self.lines[-20:]
                )
                assert self._news.wait(PATIENCE_S), f"{self.name} is silent:\n" + "\n".join(
                    self.lines[-20:]
                )

    def kill(self) -> None:
        """Kill the process as a power cut would. Idempotent."""
        self._process.kill()
        self.join()

    def terminate(self) -> int:
        self._process.terminate()
        return self.join()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def join(self) -> int:
        """Wait for the end, and return the exit status."""
        self._process.join(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self._process.exitcode is not None
        return self._process.exitcode


class Daemon(Process):
    """The process of `echelon serve`."""

    def __init__(self, config: Path, *options: str, descriptors: int | None = None) -> None:
        command = ("echelon", "serve", "--config", str(config), *options)
        super().__init__(config.stem, *command, cwd=config.parent, descriptors=descriptors)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the log records of that event so far."""
        return [record for record in map(_record, list(self.lines)) if record.get("event") == name]

    def wait_event(self, name: str, **fields: object) -> dict[str, Any]:
        """Return the first such record in its log."""
        line = self.wait_line(lambda line: _matches(_record(line), name, fields))
        return _record(line)

    def wait_listening(self) -> str:
        """Wait until the daemon listens, and return its URL."""
        return str(self.wait_event("listening")["url"])

    def hang_up(self) -> None:
        """Let the service read its changed configuration, and wait until it leads with it."""
        led = len(self.events("leading"))
        self.signal(signal.SIGHUP)
        until(lambda: len(self.events("leading")) > led, "it does not lead again")


class Switch:
    """The process of `softswitch`, without a program until a controller brings one."""

    def __init__(
        self,
        directory: Path,
        name: str,
        device_id: int,
        ports: list[int],
        rates_bps: Mapping[int, int],
    ) -> None:
        self.name = name
        self.device_id = device_id
        self.address = f"127.0.0.1:{free_port()}"
        self._directory = directory
        self.ports = ports
        self._rates_bps = rates_bps
        self._process: Process | None = None
        self.interfaces: Mapping[int, str] = {}
        """The interface of each port that is not joined by sockets."""

    def path(self, port: int) -> Path:
        """Return the path of a port: frames sent to it come in there; the port sends to the same
        path with `.peer`.
        """
        return self._directory / f"{self.name}-{port}"

    def launch(self) -> None:
        """Start the switch, without waiting until it listens."""
        interfaces = [
            text
            for port in self.ports
            for text in ("-i", f"{port}@{self.interfaces.get(port) or f'unix:{self.path(port)}'}")
        ]
        self._process = Process(
            self.name,
            *("softswitch", "--no-p4"),
            *interfaces,
            *(
                text
                for port, rate in self._rates_bps.items()
                for text in ("--port-rate", f"{port}={rate}bit")
            ),
            *("--device-id", str(self.device_id), "--", "--grpc-server-addr", self.address),
            *("--cpu-port", "510", "--priority-queues", "8"),
            cwd=self._directory,
        )

    def wait_listening(self) -> None:
        assert self._process is not None
        self._process.wait_line(lambda line: "P4Runtime" in line)

    def start(self) -> None:
        self.launch()
        self.wait_listening()

    def kill(self) -> None:
        """Kill the switch; its tables are gone with it."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    @contextmanager
    def stub(self) -> Iterator[p4r_grpc.P4RuntimeStub]:
        """Yield a stub of plain gRPC, without anything of echelon's in between."""
        with stub_of(self.address) as stub:
            yield stub

    def entries(self) -> list[p4r.TableEntry]:
        """Return every entry that a client wrote."""
        return entries_of(self.address, self.device_id)


@contextmanager
def stub_of(address: str) -> Iterator[p4r_grpc.P4RuntimeStub]:
    """Yield a stub of plain gRPC for the switch at an address."""
    with grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)]) as channel:
        yield p4r_grpc.P4RuntimeStub(channel)


def entries_of(address: str, device_id: int) -> list[p4r.TableEntry]:
    """Return every entry that a client wrote, read by plain gRPC, counters cleared."""
    with stub_of(address) as stub:
        request = p4r.ReadRequest(
            device_id=device_id, entities=[p4r.Entity(table_entry=p4r.TableEntry())]
        )
        replies = list(stub.Read(request, timeout=PATIENCE_S))
    out = []
    for reply in replies:
        for entity in reply.entities:
            entry = entity.table_entry
            if not entry.is_default_action and not entry.is_const:
                entry.ClearField("counter_data")
                out.append(entry)
    return out


class Services:
    """The configuration of services for a fabric's switches, and the services' daemons."""

    fabric: Fabric

    def __init__(self, directory: Path, settings: Mapping[str, Any], retry_s: float = 0.0) -> None:
        """Args:
        settings: of the service's configuration.
        retry_s: how long clients repeat a failed call.
        """
        self.directory = directory
        self._settings = settings
        self._retry_s = retry_s
        self._daemons: list[Daemon] = []

    def addresses(self) -> Mapping[str, str]:
        """Return the address of each switch."""
        raise NotImplementedError

    def config(self, name: str = "echelon", **more: Any) -> Path:
        """Write a configuration file; each controller has its own."""
        switches = {name: {"address": address} for name, address in self.addresses().items()}
        settings: dict[str, Any] = {
            "fabric": "fabric.yaml",
            "switches": switches,
            "log": {"format": "json"},
            **self._settings,
            **more,
        }
        path = self.directory / f"{name}.yaml"
        path.write_text(yaml.safe_dump(settings))
        return path

    def started(self, daemon: Daemon) -> Daemon:
        """Remember a daemon, so that it is killed at the end at the latest."""
        self._daemons.append(daemon)
        return daemon

    @contextmanager
    def client(self, daemon: Daemon) -> Iterator[Client]:
        """Wait until the daemon leads, and yield a client of it."""
        daemon.wait_event("leading")
        url = daemon.wait_listening()
        with Client(url, timeout_s=PATIENCE_S, retry_s=self._retry_s) as client:
            yield client

    def records(self) -> list[dict[str, Any]]:
        """Return the log records of all daemons so far."""
        lines = [line for daemon in self._daemons for line in list(daemon.lines)]
        return [record for record in map(_record, lines) if record]

    def stop(self) -> None:
        """Kill all daemons."""
        for daemon in self._daemons:
            daemon.kill()


class Lab(Services):
    """Switches of a fabric, each a process of its own, and services for them.

    `start` and `stop` the switches; daemons are the caller's (`daemon`).
    """

    def __init__(
        self,
        directory: Path,
        fabric: Mapping[str, Any],
        *,
        with_rates: bool = False,
        **settings: Any,
    ) -> None:
        """Args:
        with_rates: ports send no faster than the fabric says; otherwise as fast as they can.
        settings: of the service's configuration.
        """
        super().__init__(
            directory, {"service": "lab", "api": {"listen": "127.0.0.1:0"}, **settings}
        )
        (directory / "fabric.yaml").write_text(yaml.safe_dump(dict(fabric)))
        self.fabric: Fabric = load_fabric(directory / "fabric.yaml")
        self.switches = {
            name: Switch(
                directory,
                name,
                switch.device_id,
                sorted(port for (node, _), port in self.fabric.port_to.items() if node == name),
                {
                    port: self.fabric.rate_bps[ends]
                    for ends, port in self.fabric.port_to.items()
                    if ends[0] == name
                }
                if with_rates
                else {},
            )
            for name, switch in self.fabric.switches.items()
        }
        self._join()

    def _join(self) -> None:
        """Join the switches' ports: a port sends to its own path with `.peer`, which becomes a link
        to the port at the other end.
        """
        for (node, other), port in self.fabric.port_to.items():
            if node in self.switches and other in self.switches:
                there = self.switches[other].path(self.fabric.port_to[other, node])
                self.switches[node].path(port).with_name(f"{node}-{port}.peer").symlink_to(there)

    def addresses(self) -> Mapping[str, str]:
        return {name: switch.address for name, switch in self.switches.items()}

    def start(self) -> None:
        for switch in self.switches.values():
            switch.launch()
        for switch in self.switches.values():
            switch.wait_listening()

    def stop(self) -> None:
        super().stop()
        # Shown by pytest where the test failed.
        for daemon in self._daemons[-2:]:
            print(f"--- {daemon.name}", *daemon.lines[-60:], sep="\n")
        for switch in self.switches.values():
            switch.kill()

    def daemon(self, name: str = "echelon", *options: str, **more: Any) -> Daemon:
        """Start a daemon without waiting for it. It is killed at the end at the latest."""
        return self.started(Daemon(self.config(name, **more), *options))

    def limited_daemon(self, descriptors: int, **more: Any) -> Daemon:
        """Start a daemon that may open so many files at a time."""
        return self.started(Daemon(self.config(**more), descriptors=descriptors))

    def host(self, name: str) -> Host:
        (leaf,) = (node for node, other in self.fabric.port_to if other == name)
        return Host(self.switches[leaf].path(self.fabric.port_to[leaf, name]))


class Host:
    """The end of a link to a host. A context manager."""

    def __init__(self, port: Path) -> None:
        self._to = str(port)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.settimeout(PATIENCE_S)
        self._peer = port.with_name(port.name + ".peer")
        self._peer.unlink(missing_ok=True)
        self._socket.bind(str(self._peer))

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: bytes) -> None:
        self._socket.sendto(frame, self._to)

    def receive(self) -> bytes:
        """Wait for a frame. Raises TimeoutError when nothing comes for long."""
        return self._socket.recv(1 << 16)

    def close(self) -> None:
        self._socket.close()
        self._peer.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def until(
    condition: Callable[[], object],
    what: str,
    patience_s: float = PATIENCE_S,
) -> None:
    """Wait until the condition holds. Fails, saying `what`, if it does not in a long time."""
    give_up_at = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < give_up_at, what
        time.sleep(0.02)


def wait_links(client: Client) -> None:
    """Wait until every link may be used."""
    until(lambda: {link.state for link in client.links()} == {"up"}, "links stay down")


def settle(client: Client) -> None:
    """Wait until nothing is under way, and every switch is ready; no job may be unplanned."""
    rest(client)
    assert client.status().plan_problem is None


def rest(client: Client, *, links: bool = False) -> StatusResource:
    """Wait until nothing is under way, and every switch is ready; return the status.

    Args:
        links: wait besides until no link is taken for down, as that of a switch that answers too
            late is.
    """
    give_up_at = time.monotonic() + SEARCHED_S
    while True:
        status = client.status()
        ready = set(status.switches) == {"ready"}
        broken = links and any(link.state == "down" for link in client.links())
        if status.settled and not status.searching and ready and not broken:
            return status
        assert time.monotonic() < give_up_at, (status, client.switches())
        # Each status takes client and service ten milliseconds of a processor.
        time.sleep(0.05)


def specs(client: Client) -> dict[str, Any]:
    """Return the spec of each job that a service has."""
    return {job.name: client.job(job.name).spec for job in client.jobs()}


def reset(client: Client, parameters: Mapping[str, str] | None = None) -> None:
    """Remove all jobs, set the policy `echelon` and restore every link that was drained."""
    for job in client.jobs():
        client.remove_job(job.name)
    client.set_policy("echelon", parameters)
    for link in client.links():
        if link.state == "drained":  # one that is down comes back by itself
            client.set_link(link.a, link.b, "up")


def ring(
    name: str, workers: list[str], gradient: str = "1 MB", compute: str = "10 ms"
) -> dict[str, Any]:
    """Return the spec of a data-parallel job."""
    return {
        "job": name,
        "parallelism": "data",
        "workers": workers,
        "data": {"compute": compute, "gradient": gradient},
    }


async def fill_store(path: Path, specs: Iterable[Mapping[str, Any]]) -> None:
    """Write accepted jobs into a new store, for a daemon to find."""
    jobs = [
        RegisteredJob(spec["job"], number, float(number), spec, parse_job(spec), {})
        for number, spec in enumerate(specs, start=1)
    ]
    async with await open_store(f"sqlite:{path}", lease_s=5) as store:
        leadership = await store.campaign(Candidate("test", "http://localhost"))
        await store.commit(Changes({("jobs", job.name): job.to_document() for job in jobs}))
        await leadership.resign()


def _record(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _matches(record: Mapping[str, Any], name: str, fields: Mapping[str, object]) -> bool:
    return record.get("event") == name and all(
        record.get(key) == value for key, value in fields.items()
    )
