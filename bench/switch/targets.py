"""The switches under test, as processes: how each is started, and with which settings."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

DEVICE_ID = 1
QUEUES = 8
BMV2_QUEUE_PACKETS = 4096
"""Depth of each of BMv2's queues; its default of 64 would drop what its egress threads are about to
take.
"""
_NICE = -10
"""The niceness of the switch under test, so that little else on this machine disturbs it;
softswitch adds as much to its threads that move packets."""
_START_S = 20.0
_STOP_S = 10.0
_TAIL_BYTES = 2000


class TargetError(Exception):
    """A switch cannot be started; the text has what it said."""


def free_port() -> int:
    """Return a TCP port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Launch:
    """The arguments that every switch is started with."""

    interfaces: Mapping[int, str]
    """by port"""
    address: str
    """host:port of the P4Runtime service"""
    thrift_port: int
    port_rates: Mapping[int, str]
    """e.g. ``10Mbit``; only for a target that can"""

    @property
    def common(self) -> list[str]:
        """Options that simple_switch_grpc has, and softswitch has too."""
        out = ["--no-p4", "--device-id", str(DEVICE_ID)]
        for port, interface in self.interfaces.items():
            out += ["-i", f"{port}@{interface}"]
        return out

    @property
    def target(self) -> list[str]:
        return ["--grpc-server-addr", self.address, "--priority-queues", str(QUEUES)]


def _softswitch(launch: Launch) -> list[str]:
    rates = [
        part
        for port, rate in launch.port_rates.items()
        for part in ("--port-rate", f"{port}={rate}")
    ]
    return [*launch.common, *rates, "--", *launch.target]


def _bmv2(launch: Launch) -> list[str]:
    if launch.port_rates:
        raise TargetError("BMv2 has no port rates")
    return [*launch.common, "--thrift-port", str(launch.thrift_port), "--", *launch.target]


def _forwarder(launch: Launch) -> list[str]:
    return ["-m", "bench.switch.forwarder", launch.address, *launch.interfaces.values()]


def _as_it_is(_launch: Launch) -> str:
    return f"{QUEUES} queues, its defaults otherwise"


def _deepen_queues(launch: Launch) -> str:
    """Deepen BMv2's queues, over Thrift, whose client is BMv2's own command line; return their
    description.
    """
    client = shutil.which("simple_switch_CLI")
    if client is None:
        return (
            f"{QUEUES} queues of 64 packets (simple_switch_CLI is not installed, which could deepen"
            " them)"
        )
    done = subprocess.run(
        [client, "--thrift-port", str(launch.thrift_port)],
        input=f"set_queue_depth {BMV2_QUEUE_PACKETS}\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=_START_S,
    )
    if done.returncode or "Error" in done.stdout:
        output = done.stderr.strip() or done.stdout.strip()
        reason = output.splitlines()[-1:]
        return (
            f"{QUEUES} queues of 64 packets (simple_switch_CLI could not deepen them:"
            f" {' '.join(reason)})"
        )
    return f"{QUEUES} queues of {BMV2_QUEUE_PACKETS} packets"


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of switch."""

    name: str
    executable: str
    arguments: Callable[[Launch], list[str]]
    configure: Callable[[Launch], str]
    """called once it answers; returns its settings in words"""
    is_switch: bool = True
    """whether it serves P4Runtime and runs the program; one that does not forwards frames as they
    are
    """

    def path(self) -> str | None:
        """Return the path of the executable: beside this Python, or on the PATH."""
        path = Path(sys.executable).with_name(self.executable)
        if path.exists():
            return str(path)
        return shutil.which(self.executable)


SOFTSWITCH = Target("softswitch", "softswitch", _softswitch, _as_it_is)
BMV2 = Target("BMv2", "simple_switch_grpc", _bmv2, _deepen_queues)
FORWARDER = Target(
    "forwarder",
    Path(sys.executable).name,
    _forwarder,
    lambda _: "the interfaces in C, and no program",
    False,
)
TARGETS = (SOFTSWITCH, BMV2, FORWARDER)


class RunningSwitch:
    """A switch without a program, serving P4Runtime at `address`. A context manager: runs inside.

    Raises TargetError if it does not start.
    """

    def __init__(
        self,
        target: Target,
        interfaces: Mapping[int, str],
        *,
        port_rates: Mapping[int, str] | None = None,
        cpus: Sequence[int] = (),
    ) -> None:
        path = target.path()
        if path is None:
            raise TargetError(f"{target.executable}: not installed")
        self.target = target
        self.address = f"127.0.0.1:{free_port()}"
        self.settings = ""
        self._launch = Launch(dict(interfaces), self.address, free_port(), dict(port_rates or {}))
        self._command = [path, *target.arguments(self._launch)]
        self._command = ["nice", "-n", str(_NICE), *self._command]
        if cpus:
            cpu_list = ",".join(map(str, cpus))
            self._command = ["taskset", "--cpu-list", cpu_list, *self._command]
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def thrift_port(self) -> int:
        """The port on 127.0.0.1, of a target that has one."""
        return self._launch.thrift_port

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def processor_ns(self) -> int:
        """Return the processor time that its threads have used."""
        total_ns = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            used_ns, *_ = (task / "schedstat").read_text().split()
            total_ns += int(used_ns)
        return total_ns

    def resident_bytes(self) -> int:
        """Return the memory that its process has in use."""
        text = Path(f"/proc/{self.pid}/statm").read_text()
        _, resident_pages, *_ = text.split()
        return int(resident_pages) * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with contextlib.suppress(OSError):
            # Where the kernel shares processors by session (sched(7), autogroup), niceness counts
            # only within one.
            Path(f"/proc/{self._process.pid}/autogroup").write_text(str(_NICE))
        try:
            self._wait_ready(self._process)
            self.settings = self.target.configure(self._launch)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    def output_end(self) -> str:
        """Return the end of the process's output."""
        size = os.fstat(self._output.fileno()).st_size
        start = max(0, size - _TAIL_BYTES)
        tail = os.pread(self._output.fileno(), _TAIL_BYTES, start)
        return tail.decode(errors="replace").strip()

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        host, _, port = self.address.partition(":")
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise TargetError(
                    f"{self.target.name} ended with status {process.returncode}: {self.output_end()}"
                )
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    return
            time.sleep(0.05)
        raise TargetError(
            f"{self.target.name} does not serve P4Runtime after {_START_S:.0f} s: {self.output_end()}"
        )

    def _stop(self) -> None:
        process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._output.close()
