"""Switches as processes, at the same priority as their controller, which does half of the work."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.switch.targets import Launch, Target, TargetError, free_port

_START_S = 20.0


@contextmanager
def running(target: Target) -> Iterator[str]:
    """Run one switch without program and interfaces, and yield its address. Raises TargetError."""
    path = target.path()
    if path is None:
        raise TargetError(f"{target.executable}: not installed")
    address = f"127.0.0.1:{free_port()}"
    command = [path, *target.arguments(Launch({}, address, free_port(), {}))]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait(process, address)
            yield address
        finally:
            process.terminate()
            process.wait()


def _wait(process: subprocess.Popen[bytes], address: str) -> None:
    import grpc  # type: ignore[import-untyped]

    deadline = time.monotonic() + _START_S
    with grpc.insecure_channel(address) as channel:
        ready = grpc.channel_ready_future(channel)
        while not ready.done():
            if process.poll() is not None:
                raise TargetError(f"the switch ended with status {process.returncode}")
            if time.monotonic() > deadline:
                raise TargetError(f"nothing listens at {address} after {_START_S:g} s")
            time.sleep(0.02)
