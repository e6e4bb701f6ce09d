"""The paradigms of training, found by the entry-point group `echelon.paradigms`.

An entry point names a section of the job file and the `echelon.jobs.paradigm.Paradigm` that describes it. Any installed
distribution can register one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from echelon.jobs.paradigm import Paradigm

GROUP = "echelon.paradigms"


@dataclass(frozen=True, slots=True)
class Paradigms:
    """All registered paradigms."""

    sections: Mapping[str, type[Paradigm]]
    """By name, in alphabetical order."""
    broken: Mapping[str, str]
    """By name: why it cannot be used, and what to do."""


@cache
def registered() -> Paradigms:
    """Return the paradigms of all installed distributions.

    Raises `RuntimeError` if there are none: then the project itself is not installed.
    """
    sections: dict[str, type[Paradigm]] = {}
    broken: dict[str, str] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        owner = entry.dist.name if entry.dist else entry.value
        if entry.name in sections or entry.name in broken:
            sections.pop(entry.name, None)
            broken[entry.name] = f"is registered twice (uninstall {owner}, or the other distribution that has it)"
            continue
        try:
            sections[entry.name] = _load(entry)
        except Exception as error:  # whatever a foreign module raises when it is imported
            broken[entry.name] = f"cannot be loaded: {error} (repair or uninstall {owner})"
    if not sections:
        raise RuntimeError(f"no entry point of group {GROUP} is installed (install the distribution echelon-p4)")
    return Paradigms(sections, broken)


def _load(entry: EntryPoint) -> type[Paradigm]:
    paradigm = entry.load()
    if not (isinstance(paradigm, type) and issubclass(paradigm, Paradigm)):
        raise TypeError(f"{entry.value} is not a subclass of Paradigm")
    return paradigm
