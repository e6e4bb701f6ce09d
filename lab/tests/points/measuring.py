"""Measurements for the tests of the sweep; at the top of a module, so that other processes find
them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from echelon.model.errors import RunError


def square(number: int, log: Path) -> Mapping[str, Any]:
    """Return the square, and add a line to `log` with the number and the process."""
    with log.open("a", encoding="utf-8") as lines:
        lines.write(f"{number} {os.getpid()}\n")
    return {"square": number * number}


def refuse(reason: str) -> Mapping[str, Any]:
    raise RunError(reason)


def stay(log: Path) -> Mapping[str, Any]:
    """Wait for ever, after adding the process to `log`."""
    with log.open("a", encoding="utf-8") as lines:
        lines.write(f"{os.getpid()}\n")
    signal.pause()
    return {}


def die() -> Mapping[str, Any]:
    os._exit(3)


def die_once(mark: Path) -> Mapping[str, Any]:
    """Kill the process the first time, which leaves `mark`."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"survived": True}
