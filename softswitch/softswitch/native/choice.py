"""The choice between the engines for a program, with the line that says which one it is and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ctoolchain import Compiler
from softswitch.errors import ProgramError

from .engine import NativeError, NativeProgram, compile_native
from .kept import load_kept, unit_of

if TYPE_CHECKING:
    from softswitch.switch import Program

__all__ = ["ENGINES", "IN_PYTHON", "Choice"]

ENGINES = ("auto", "native", "python")

IN_PYTHON = "packets run in Python, which is the reference and 500 to 1,000 times slower than C"

_known: WeakKeyDictionary[Program, NativeProgram | NativeError] = WeakKeyDictionary()


@dataclass(slots=True)
class Choice:
    """An engine as it is asked for. ``said`` is the line about the engine of the last program,
    which ``tell`` passes to ``on_said`` if it is new."""

    wanted: str = "auto"
    given: Sequence[Compiler] | None = None
    """The compilers to try, those of the machine by default."""
    said: str = field(default="", init=False)
    on_said: Callable[[str], object] | None = field(default=None, init=False)
    _told: str = field(default="", init=False)

    def load(self, source: bytes, name: str) -> Program:
        """Load what ``p4c-bm2-ss`` wrote, as `load_program` does, or what is kept of it."""
        from softswitch.switch import load_program

        if self.wanted == "python":
            return load_program(source, name)
        return load_kept(source, name)

    def tell(self) -> None:
        if self.on_said is not None and self.said != self._told:
            self._told = self.said
            self.on_said(self.said)

    def __call__(self, program: Program) -> NativeProgram | None:
        """Return what runs a program natively, None for Python. Raises :class:`ProgramError` if it
        must run natively and cannot."""
        if self.wanted == "python":
            self.said = f"{IN_PYTHON}, as asked (--engine python)"
            return None
        found = _native(program, self.given)
        if isinstance(found, NativeProgram):
            if found.later is not None:
                later = f" until {found.later} has done it"
            else:
                later = ""
            self.said = f"packets run in C, compiled by {found.by}{later}"
            return found
        if self.wanted == "native":
            raise ProgramError("--engine native", f"{found}; --engine auto lets Python run it")
        self.said = f"{IN_PYTHON}, because {found}"
        return None


def _native(program: Program, given: Sequence[Compiler] | None) -> NativeProgram | NativeError:
    """Return a program's C, or why there is none. Switches that share the program share it."""
    if program not in _known:
        try:
            _known[program] = compile_native(program.ir, given, at_once=True, unit=unit_of(program))
        except ProgramError as error:
            _known[program] = NativeError(str(error))
        except NativeError as error:
            _known[program] = error
    return _known[program]
