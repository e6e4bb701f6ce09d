"""The switches that requirements are asked of: softswitch and BMv2, each as a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from echelon.switches.processes import free_port
from tests.differential.process import SwitchProcess
from tests.softswitch_process import running

CPU_PORT = 510
NAMES = ("softswitch", "bmv2")


@contextmanager
def started(name: str) -> Iterator[str]:
    """Yield the address of a switch without a program; it ends with the block."""
    start = _softswitch if name == "softswitch" else _bmv2
    with start() as address:
        yield address


@contextmanager
def _softswitch() -> Iterator[str]:
    # Packets may run in Python: they are few, and nothing has to be compiled.
    options = ("--no-p4", "--engine", "python", "--cpu-port", str(CPU_PORT), "--role", "*")
    with running(*options) as process:
        yield process.address


@contextmanager
def _bmv2() -> Iterator[str]:
    control, thrift = free_port(), free_port()
    address = f"127.0.0.1:{control}"
    command = ["simple_switch_grpc", "--no-p4", "--device-id", "1"]
    command += ["--thrift-port", str(thrift), "--log-console", "-L", "off", "--"]
    command += ["--grpc-server-addr", address, "--cpu-port", str(CPU_PORT)]
    process = SwitchProcess(command, [thrift, control])
    try:
        yield address
    finally:
        process.stop()
