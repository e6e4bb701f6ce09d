"""Switches as processes on interfaces: their start, their configuration, and their end."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar, Protocol

from echelon.model.errors import RunError
from echelon.switches.processes import free_port, last_words, start

QUEUES = 8
CPU_PORT = 510
_START_S = 30.0
_STOP_S = 5.0
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Place:
    """The place where a switch runs."""

    name: str
    device_id: int
    interfaces: Mapping[int, str]
    """The interface at each port, as the target's `-i` takes it."""
    rates_bps: Mapping[int, int] = field(default_factory=dict)
    """The rate of the link at each port, in bits per second.

    A port that is missing is not limited.
    """
    queue_bytes: int | None = None
    """Number of bytes that each queue holds; None: the target's default."""
    host: str = "127.0.0.1"
    """The address of this machine at which the switch listens."""
    options: Sequence[str] = ()
    """Further options of the executable."""


class SwitchProcess(Protocol):
    """A switch that was started. It has no P4 program yet: its controller brings one."""

    @property
    def address(self) -> str:
        """The host:port of P4Runtime (and gNMI), in the launcher's network namespace."""
        ...

    @property
    def entry(self) -> Mapping[str, object]:
        """The switch's entry in the configuration: `address`, `target` and the target's keys."""
        ...

    @property
    def pid(self) -> int: ...

    def wait_ready(self) -> None:
        """Wait until the switch answers. Raise `RunError` with its last words if it does not."""
        ...

    def check(self) -> None:
        """Raise `RunError` with the switch's last words if it has ended."""
        ...

    def stop(self) -> int:
        """End the switch, wait, and return its exit status (negative: a signal's number).

        Idempotent.
        """
        ...

    def kill(self) -> None:
        """End the switch as a power cut does. Idempotent."""
        ...


class SwitchLauncher(Protocol):
    """A launcher of switches of one target as processes."""

    @property
    def unix_ports(self) -> bool:
        """Whether a port may be a Unix datagram socket, given as `unix:PATH`."""
        ...

    def find(self) -> str:
        """Return the path of the executable. Raise `RunError` that says what to install."""
        ...

    def launch(
        self,
        place: Place,
        directory: Path,
        before: Sequence[str] = (),
    ) -> SwitchProcess:
        """Start a switch; it writes what it prints to NAME.log in `directory`.

        `before` are words to put before the command. Returns before the switch is ready
        (`wait_ready`), so that several start at once. Raise `RunError` that says what to install,
        or what the target cannot hold.
        """
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports of the loopback interface that a switch may serve at."""

    grpc: int
    other: int
    """The port for anything that a target serves besides P4Runtime."""


class ExecutableLauncher(ABC):
    """A `SwitchLauncher` of an executable that takes the options of `simple_switch_grpc`."""

    target: ClassVar[str]
    executable: ClassVar[str]
    remedy: ClassVar[str]
    """The remedy if the executable is missing."""
    unix_ports: bool = False

    def find(self) -> str:
        in_environment = Path(sys.executable).with_name(self.executable)
        if in_environment.exists():
            return str(in_environment)
        on_path = shutil.which(self.executable)
        if on_path is None:
            raise RunError(
                f"target {self.target}: {self.executable} is not installed ({self.remedy})"
            )
        return on_path

    @abstractmethod
    def arguments(self, place: Place, ports: Ports) -> Sequence[str]:
        """Return the target's own options, those before `--`."""

    def entry(self, place: Place, ports: Ports) -> Mapping[str, object]:
        """Return the target's own keys of the switch's configuration entry. Raise `RunError`."""
        return {}

    def serves_at(self, ports: Ports) -> Sequence[int]:
        """Return the TCP ports at which the switch answers when it is ready."""
        return (ports.grpc,)

    def completion(self, entry: Mapping[str, object]) -> Callable[[int], None]:
        """Return what makes the process, once it answers, what its `entry` says.

        It may raise `OSError`.
        """
        return lambda _process: None

    def launch(
        self,
        place: Place,
        directory: Path,
        before: Sequence[str] = (),
    ) -> SwitchProcess:
        path = self.find()
        ports = Ports(free_port(), free_port())
        address = f"{place.host}:{ports.grpc}"
        entry = {"address": address, "target": self.target, **self.entry(place, ports)}
        command = [*before, path, "--no-p4", "--device-id", str(place.device_id)]
        for port, interface in place.interfaces.items():
            command += ["-i", f"{port}@{interface}"]
        command += [*self.arguments(place, ports), *place.options]
        command += ["--", "--grpc-server-addr", address]
        command += ["--cpu-port", str(CPU_PORT), "--priority-queues", str(QUEUES)]
        log = directory / f"{place.name}.log"
        try:
            process = start(command, log)
        except OSError as error:
            raise RunError(f"switch {place.name}: {error.filename}: {error.strerror}") from None
        return _Process(
            title=f"switch {place.name}",
            executable=self.executable,
            host=place.host,
            ports=self.serves_at(ports),
            process=process,
            log=log,
            address=address,
            entry=entry,
            complete=self.completion(entry),
        )


@cache
def accepts(path: str, option: str) -> bool:
    """Return whether the executable at `path` names `option` in its help text. It is asked once."""
    return option in _help(path).replace("=", " ").split()


@cache
def _help(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--help"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_START_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


@dataclass(frozen=True, slots=True)
class _Process:
    """A `SwitchProcess`."""

    title: str
    """Its name in messages."""
    executable: str
    host: str
    ports: Sequence[int]
    """The TCP ports at which it answers when it is ready."""
    process: subprocess.Popen[bytes]
    log: Path
    address: str
    entry: Mapping[str, object]
    complete: Callable[[int], None]

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self) -> None:
        give_up_at = time.monotonic() + _START_S
        for port in self.ports:
            while not _answers(self.host, port):
                self.check()
                if time.monotonic() > give_up_at:
                    raise RunError(
                        f"{self.title}: does not answer at port {port} after {_START_S:g} s:"
                        f" {last_words(self.log)}"
                    )
                time.sleep(_POLL_S)
        try:
            self.complete(self.pid)
        except OSError as error:
            raise RunError(
                f"{self.title}: {error.filename or 'its sockets'}: {error.strerror}"
            ) from None

    def check(self) -> None:
        status = self.process.poll()
        if status is None:
            return
        if status >= 0:
            end = f"ended with status {status}"
        else:
            end = f"ended by {signal.Signals(-status).name}"
        raise RunError(f"{self.title}: {self.executable} {end}: {last_words(self.log)}")

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.process.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def _answers(host: str, port: int) -> bool:
    with socket.socket() as probe:
        if probe.connect_ex((host, port)) != 0:
            return False
        # A probe may be given the port itself, and then reaches itself.
        return bool(probe.getsockname() != probe.getpeername())
