"""`ip -batch`, in this network namespace or in another, several at a time."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from echelon.scenarios.results import RunError

_AT_ONCE = 8
"""Processes."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines for `ip`, which runs in the network namespace `descriptor` (none: in ours). They may name other namespaces
    by their descriptors, as /proc/self/fd/N."""

    lines: Sequence[str]
    where: str
    """For whoever reads of an error."""
    descriptor: int | None = None
    named: Sequence[int] = ()


def run_batch(batch: Batch) -> str:
    """What `ip` says. Raises `RunError` that says which line failed and why."""
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
    """All of them, in no order. Raises as `run_batch` does."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(run_batch, batches):
            pass


def _reason(said: str, lines: Sequence[str]) -> str:
    """`ip` ends with `Command failed -:LINE`."""
    *reasons, last = said.strip().splitlines() or [""]
    number = last.rpartition(":")[2]
    if not number.isdecimal() or not 0 < int(number) <= len(lines):
        return " ".join(said.split()) or "ip failed and does not say why"
    return f"ip {lines[int(number) - 1]}: {' '.join(reasons)}"
