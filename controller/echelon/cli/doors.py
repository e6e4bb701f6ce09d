"""The door for commands of other packages: the entry points `echelon.commands`.

An entry's name is that of the command, with its group before a dot (`traffic.send`) unless it is
the whole program's. Its object is a `Command`. It is all that `echelon --help` needs; what it
points to is imported when the command is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from echelon.cli.usage import CommandGroup

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "echelon.commands"
_OURS = "echelon_lab."
"""The beginning of the modules whose commands no other package replaces."""

DESCRIBE = "Describe: files of jobs, fabrics and traffic"
RUN = "Run"
COMPARE = "Compare"
OPERATE = "Operate a service (ECHELON_URL, ECHELON_TOKEN_FILE)"
LOOK = "Look at a running service"
COMMANDS = "Commands"
"""The part of the help of a group, such as `echelon traffic`, for commands in no other part."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of another package."""

    panel: str
    """The part of `echelon --help`: `DESCRIBE`, `RUN`, `COMPARE`, `OPERATE`, `LOOK`, or its own."""
    about: str
    """The line in `echelon --help`: the first of the command's help."""
    path: str
    """The function, or the `typer.Typer` of several commands: ``package.module:name``."""
    interspersed: bool = True
    """Whether options may stand behind arguments; not if these are another program's command."""


class Door:
    """A command that is imported as soon as anything but its line in the help is asked for."""

    hidden = deprecated = False

    def __init__(self, name: str, command: Command) -> None:
        self.name = name
        self.rich_help_panel = command.panel
        self.short_help = command.about
        self._made_of = command
        self._command: Any = None

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the line for a list of commands, as a group of the command line asks for it."""
        return self.short_help

    def __getattr__(self, name: str) -> Any:
        if self._command is None:
            self._command = _load(self.name, self._made_of)
        return getattr(self._command, name)


class GroupWithDoors(CommandGroup):
    """A group with the commands that other packages add to it. They cannot replace its own."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, door in doors(self.name or "").items():
            self.commands.setdefault(name, door)


def doors(group: str = "") -> dict[str, Any]:
    """Return the commands of other packages in a group, by name; "" is the whole program."""
    doors = {}
    for entry in _entries():
        entry_group, _, name = entry.name.rpartition(".")
        if entry_group != group:
            continue
        try:
            command = entry.load()
            if not isinstance(command, Command):
                raise TypeError(f"{entry.value} is not a Command")
        except Exception as error:
            # A broken package must not take the other commands with it.
            reason = f"cannot be loaded ({type(error).__name__}: {error})"
            command = Command(COMPARE, reason, entry.value)
        doors[name] = Door(name, command)
    return doors


@cache
def _entries() -> Sequence[EntryPoint]:
    from importlib.metadata import entry_points

    # Of two commands of one name the last counts: Echelon's own keeps its name.

    def rank(entry: EntryPoint) -> tuple[str, bool, str]:
        return entry.name, entry.value.startswith(_OURS), entry.value

    return sorted(entry_points(group=GROUP), key=rank)


def _load(name: str, command: Command) -> Any:
    from pkgutil import resolve_name

    import typer

    function = resolve_name(command.path)
    app = typer.Typer()
    if isinstance(function, typer.Typer):
        app.add_typer(function, name=name)
    else:
        settings = {"allow_interspersed_args": command.interspersed}
        app.command(name, context_settings=settings)(function)
    return typer.main.get_group(app).commands[name]
