"""P4 programs that do more than rank, for targets whose switches choose their program.

A distribution adds a program by an entry point of the group `echelon.programs`, which names a
`SwitchProgram`. The entry of a switch in the configuration chooses it with `program: NAME`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.model.documents import DocumentError, problem, suggestion
from echelon.model.extras import plug_in
from echelon.switches.targets.loading import load_entry

if TYPE_CHECKING:
    from echelon.switches.lowering.capabilities import Capabilities

GROUP = "echelon.programs"

RANKING = "ranking"
"""The program that comes with Echelon, which ranks and does nothing else."""


@dataclass(frozen=True, slots=True)
class SwitchProgram:
    """A program with the tables of the ranking one, and tables of its own."""

    builds: Path
    """A folder with the output of p4c, in a folder for each architecture."""
    extend: Callable[[Capabilities], Capabilities]
    """Returns what a switch can carry with this program, from what it can with the ranking one."""


@cache
def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP))}


def program_names() -> tuple[str, ...]:
    """Return the names that a switch's entry may give, the ranking program first."""
    return (RANKING, *_entries())


def find_program(name: str) -> SwitchProgram | None:
    """Return the program of that name, or None for the ranking one.

    Raise `DocumentError` for one that cannot be loaded.
    """
    if name == RANKING:
        return None
    entry = _entries()[name]
    where = f"program {name}"
    program = load_entry(entry, where)
    if not isinstance(program, SwitchProgram):
        reason = f"{entry.value} is not a SwitchProgram (correct or remove its entry point)"
        raise DocumentError(where, "", reason)
    return program


def known_program(name: str) -> str:
    """Return `name` if there is such a program.

    Raise `echelon.model.documents.problem` if not, with the names that there are.
    """
    names = program_names()
    if name in names:
        return name
    reason = plug_in(GROUP, name) or f"unknown program '{name}' ({suggestion(name, names)})"
    raise problem(reason)
