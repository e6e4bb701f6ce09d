"""The version of the code that determines a measurement, so that a change of it is noticed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from echelon.p4program import program

_ROOT = Path(__file__).parents[2]
_FLUID = (
    "allocation.py",
    "completion.py",
    "execution.py",
    "fabric",
    "fluid",
    "jobs",
    "paths.py",
    "plan.py",
    "policies",
    "rankings",
    "lab/scenarios",
    "lab/virtual/fluid_run.py",
)
"""The code of a run without packets."""
_SOURCES = (".c", ".h", ".py")
_NO_PACKETS = ("cli", "client", "service")
"""Packages that no run needs."""


@cache
def code_digest(*others: Path, packets: bool = False) -> str:
    """Return a digest of the sources that a measurement runs through, with or without packets, and of `others`."""
    files = [_ROOT / name for name in _FLUID]
    if packets:
        files = [path for path in _ROOT.iterdir() if path.name not in _NO_PACKETS] + [program().binary]
        softswitch = find_spec("softswitch")
        files += [Path(place) for place in softswitch.submodule_search_locations or ()] if softswitch else []
    digest = hashlib.sha256()
    for path in sorted(_sources([*files, *others])):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _sources(files: Iterable[Path]) -> Iterable[Path]:
    for path in files:
        yield from (of for of in path.rglob("*.*") if of.suffix in _SOURCES) if path.is_dir() else [path]
