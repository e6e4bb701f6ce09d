"""The registry of paradigms: which there are, and the section of the job file that each describes.

A paradigm is a subclass of `echelon.jobs.paradigm.Paradigm`. A distribution registers it in the entry-point group
`echelon.paradigms`, under the name of its section::

    [project.entry-points."echelon.paradigms"]
    data = "echelon.jobs.paradigms.data:Data"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from echelon.jobs.paradigm import Paradigm

GROUP = "echelon.paradigms"
"""The entry-point group."""


@dataclass(frozen=True, slots=True)
class Paradigms:
    """All registered paradigms by name, in alphabetical order."""

    sections: Mapping[str, type[Paradigm]]
    broken: Mapping[str, str]
    """The reason why each of the others cannot be used, and what to do."""


@cache
def registered() -> Paradigms:
    """Return the paradigms of all installed distributions.

    One that cannot be imported, or that two distributions register, does not keep the others from being used. Raises
    `RuntimeError` if there are none, because the installed metadata of Echelon itself are older than this source tree.
    """
    sections: dict[str, type[Paradigm]] = {}
    broken: dict[str, str] = {}
    origins: dict[str, str] = {}
    for entry in sorted(entry_points(group=GROUP)):
        name, origin = entry.name, _origin(entry)
        if origins.setdefault(name, origin) != origin:
            sections.pop(name, None)
            broken[name] = f"is registered by {origins[name]} and {origin} (remove one)"
            continue
        try:
            sections[name] = _load(entry)
        except Exception as error:  # whatever a foreign module raises when it is imported
            broken[name] = f"of {origin} cannot be used: {error} (repair or remove it)"
    if not sections:
        raise RuntimeError(
            "no paradigm is registered: the installed package is older than its source tree "
            "(run: python -m pip install --editable .)"
        )
    return Paradigms(sections, broken)


def _load(entry: EntryPoint) -> type[Paradigm]:
    paradigm = entry.load()
    if not (isinstance(paradigm, type) and issubclass(paradigm, Paradigm)):
        raise TypeError(f"{entry.value} is not a subclass of {Paradigm.__module__}.{Paradigm.__name__}")
    return paradigm


def _origin(entry: EntryPoint) -> str:
    return f"{entry.dist.name if entry.dist else 'an unknown distribution'} ({entry.value})"
