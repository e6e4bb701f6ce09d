"""`ip -batch`, in this network namespace or in another, several at a time.

pyroute2 could do the same, but a fabric of n hosts has n (n - 1) neighbour entries: each takes pyroute2 0.5 ms of
processor time, and `ip` 0.01 ms (1000 entries on one interface, pyroute2 0.9.7, iproute2 6.1).
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from echelon.errors import RunError

_AT_ONCE = 8
"""Number of processes that run at the same time."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines for one `ip` process."""

    lines: Sequence[str]
    where: str
    """The subject of the lines, for error messages."""
    descriptor: int | None = None
    """A descriptor of the network namespace to run in; None: the caller's."""
    named: Sequence[int] = ()
    """Descriptors of other namespaces, which the lines name as /proc/self/fd/N."""


def run_batch(batch: Batch) -> str:
    """Run a batch, and return what `ip` prints. Raises `RunError` that says which line failed and why."""
    command = ["ip", "-batch", "-"]
    descriptors = list(batch.named)
    if batch.descriptor is not None:
        command = ["nsenter", f"--net=/proc/self/fd/{batch.descriptor}", "--", *command]
        descriptors.append(batch.descriptor)
    try:
        done = subprocess.run(
            command, input="\n".join(batch.lines), capture_output=True, text=True, check=False, pass_fds=descriptors
        )
    except FileNotFoundError as error:
        raise RunError(f"{error.filename} is not installed (apt-get install iproute2 util-linux)") from None
    if done.returncode:
        raise RunError(f"{batch.where}: {_reason(done.stderr, batch.lines)}")
    return done.stdout


def run_batches(batches: Sequence[Batch]) -> None:
    """Run all batches, in any order. Raises as `run_batch` does."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(run_batch, batches):
            pass


def _reason(said: str, lines: Sequence[str]) -> str:
    """Return the line that failed, which `ip` names as `Command failed -:LINE`, and the reason."""
    *reasons, last = said.strip().splitlines() or [""]
    number = last.rpartition(":")[2]
    if not number.isdecimal() or not 0 < int(number) <= len(lines):
        return " ".join(said.split()) or "ip failed without a reason"
    return f"ip {lines[int(number) - 1]}: {' '.join(reasons)}"
