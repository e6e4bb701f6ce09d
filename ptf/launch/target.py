"""Targets: how each is started, and how its queues are slowed down. All take simple_switch_grpc's options."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from launch.wires import Wire

DEVICE_ID = 1
_START_S = 20.0


class TargetMissingError(Exception):
    """The target is not installed; the text says what is missing, and what to do."""


class TargetDeadError(Exception):
    """The target was started and does not answer."""


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of switch."""

    name: str
    executable: str
    unix_ports: bool
    """Whether `-i` takes `unix:PATH`."""
    rates: str
    """How queues are slowed: gnmi or thrift."""

    def find(self) -> str:
        """The executable's path: beside this Python, or on the PATH. Raises TargetMissingError."""
        beside = Path(sys.executable).with_name(self.executable)
        found = str(beside) if beside.exists() else shutil.which(self.executable)
        if found is None:
            raise TargetMissingError(f"target {self.name}: {self.executable} is not installed; put it on the PATH")
        return found


TARGETS = {
    target.name: target
    for target in (
        Target("softswitch", "softswitch", unix_ports=True, rates="gnmi"),
        Target("bmv2", "simple_switch_grpc", unix_ports=False, rates="thrift"),
    )
}


@dataclass(frozen=True, slots=True)
class Running:
    """A target that was started."""

    process: subprocess.Popen[bytes]
    address: str
    """Of P4Runtime, host:port."""
    queue_rates: str
    """As the tests' parameter of that name wants it."""


@contextmanager
def running(target: Target, wires: Sequence[Wire], scratch: Path, log: Path) -> Iterator[Running]:
    """The target, started without a program, answering, and stopped in the end.

    Raises:
        TargetMissingError: it is not installed.
        TargetDeadError: it ended by itself or does not open its P4Runtime port.
    """
    address = f"127.0.0.1:{_free_port()}"
    thrift_port = _free_port()
    command = [target.find(), "--no-p4", "--device-id", str(DEVICE_ID), "--thrift-port", str(thrift_port)]
    command += ["--notifications-addr", f"ipc://{scratch}/notifications"]
    for wire in wires:
        command += ["-i", f"{wire.port}@{wire.switch_end}"]
    command += ["--", "--grpc-server-addr", address, "--priority-queues", "8"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            rates = f"{target.rates}:{thrift_port}" if target.rates == "thrift" else target.rates
            _await_server(address, process)
            yield Running(process, address, rates)
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await_server(address: str, process: subprocess.Popen[bytes]) -> None:
    host, _, port = address.rpartition(":")
    end = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.02)
    how = "does not answer" if process.returncode is None else f"ended with status {process.returncode}"
    raise TargetDeadError(f"the target {how}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
