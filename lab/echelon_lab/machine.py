"""The contents of machine.json: the machine, the versions and the command of an experiment."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("finsy", "grpcio", "protobuf", "networkx", "pydantic", "numpy", "matplotlib")


def version() -> str:
    """Return the version of this program."""
    try:
        return metadata.version("echelon-p4")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def machine(
    command: Sequence[str],
    settings: Mapping[str, Any],
    workers: int,
) -> dict[str, Any]:
    """Return the contents of machine.json; they are the same for every call on the same machine."""
    return {
        "echelon": version(),
        "command": list(command),
        "settings": dict(settings),
        "workers": workers,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": _cpu(),
        "processors": os.cpu_count(),
        "packages": _packages(),
    }


def _packages() -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    versions = {}
    for name in _PACKAGES:
        version = _installed(name)
        if version is not None:
            versions[name] = version
    return versions


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    for line in lines:
        if line.startswith("model name"):
            _, _, name = line.partition(":")
            return name.strip()
    # Only some architectures name the model in this file.
    return platform.machine()
