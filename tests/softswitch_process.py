"""The `softswitch` command as a process, on a port that is free."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

COMMAND = Path(sys.executable).with_name("softswitch")
PATIENCE_S = 60


class Running:
    """A `softswitch` that has said that it is ready."""

    def __init__(self, process: subprocess.Popen[str], ready: str) -> None:
        self.process = process
        self.ready = ready
        self.address = ready.partition(" at ")[2].partition(",")[0]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End it; returns its exit status and what it wrote to stderr."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, errors


@contextmanager
def running(
    *arguments: str | Path,
    prefix: Sequence[str] = (),
    address: str = "127.0.0.1:0",
) -> Iterator[Running]:
    """Yield the command with these arguments; it is killed if it still runs at the end.

    Raises AssertionError if it ends without having been ready.
    """
    command = [*prefix, COMMAND, *arguments, "--grpc-server-addr", address]
    process = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready, f"softswitch ended: {process.communicate(timeout=PATIENCE_S)[1]}"
        yield Running(process, ready.strip())
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextmanager
def sound(*arguments: str | Path) -> Iterator[Running]:
    """Yield the command, which must not end by itself, nor complain of an exception."""
    with running("--log-level", "off", *arguments) as switch:
        yield switch
        assert switch.process.poll() is None, "the switch has ended"
        _, errors = switch.stop()
        assert "Traceback" not in errors, errors[-4000:]
