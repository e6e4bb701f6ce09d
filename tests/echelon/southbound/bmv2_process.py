"""BMv2's `simple_switch_grpc` as a process of its own, without a program."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from echelon.switches.processes import free_port
from tests.echelon.service.lab import PATIENCE_S

COMMAND = "simple_switch_grpc"
HERE = "127.0.0.1"


class Bmv2:
    """The switch; its addresses stay the same when it is started again."""

    def __init__(
        self,
        *options: str,
        device_id: int = 1,
        interfaces: Mapping[int, str] | None = None,
    ) -> None:
        """Args:
        options: of its P4Runtime target.
        interfaces: by port.
        """
        self.thrift = free_port()
        self._port = free_port()
        self.address = f"{HERE}:{self._port}"
        self._command = [COMMAND, "--no-p4", "--device-id", str(device_id)]
        self._command += ["--thrift-port", str(self.thrift)]
        for port, interface in (interfaces or {}).items():
            self._command += ["-i", f"{port}@{interface}"]
        self._command += ["--", "--grpc-server-addr", self.address, *options]
        self.process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start it, without waiting until it listens."""
        nowhere = subprocess.DEVNULL
        self.process = subprocess.Popen(self._command, stdout=nowhere, stderr=nowhere)

    def start(self) -> None:
        """Start it, and wait until its P4Runtime and Thrift servers listen."""
        self.launch()
        assert self.process is not None
        give_up_at = time.monotonic() + PATIENCE_S
        for port in (self._port, self.thrift):
            while not _listens(port):
                assert self.process.poll() is None, f"{COMMAND} has ended"
                assert time.monotonic() < give_up_at, f"{COMMAND} does not answer"
                time.sleep(0.02)

    def kill(self) -> None:
        """Kill it as a power cut would. Idempotent."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
            self.process = None

    def end(self) -> None:
        """Ask it to end, and wait until it has. Idempotent."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HERE, port)) == 0


@contextmanager
def bmv2_process(*options: str, interfaces: Mapping[int, str] | None = None) -> Iterator[Bmv2]:
    """Yield a switch that listens."""
    switch = Bmv2(*options, interfaces=interfaces)
    try:
        switch.start()
        yield switch
    finally:
        switch.end()
