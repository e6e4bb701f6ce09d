"""The choice between the engines for a program, with the line that says which one it is and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ctoolchain import Compiler
from softswitch.errors import ProgramError, TooLarge

from .engine import NativeError, NativeProgram, compile_native
from .kept import load_kept, unit_of

if TYPE_CHECKING:
    from softswitch.switch import Program

__all__ = ["ENGINES", "IN_PYTHON", "Choice"]

ENGINES = ("auto", "native", "python")

IN_PYTHON = "packets run in Python, which is the reference and 500 to 1,000 times slower than C"

_compiled: WeakKeyDictionary[Program, NativeProgram | NativeError] = WeakKeyDictionary()


@dataclass(slots=True)
class Choice:
    """An engine as somebody wants it: one of `ENGINES`."""

    wanted: str = "auto"
    compilers: Sequence[Compiler] | None = None
    """The compilers to try, those of the machine by default."""
    option: str = "--engine "
    """The option that asks for an engine, up to the name."""
    line: str = field(default="", init=False)
    """The line about the engine of the last program."""
    on_line: Callable[[str], object] | None = field(default=None, init=False)
    """Called by `tell` with a new line."""
    _last_line: str = field(default="", init=False)

    def load(self, source: bytes, name: str) -> Program:
        """Load what ``p4c-bm2-ss`` wrote, as `load_program` does, or what is kept of it."""
        from softswitch.switch import load_program

        if self.wanted == "python":
            return load_program(source, name)
        return load_kept(source, name)

    def tell(self) -> None:
        """Pass the line on, unless it was the last one that was passed on."""
        if self.on_line is not None and self.line != self._last_line:
            self._last_line = self.line
            self.on_line(self.line)

    def __call__(self, program: Program) -> NativeProgram | None:
        """Return what runs a program natively, None for Python.

        Raises :class:`ProgramError` if it must run natively and cannot.
        """
        if self.wanted == "python":
            self.line = f"{IN_PYTHON}, as asked ({self.option}python)"
            return None
        native = _native(program, self.compilers)
        if isinstance(native, NativeProgram):
            self.line = f"packets run in C, compiled by {native.compiler_name}"
            if native.later is not None:
                self.line += f" until {native.later} has done it"
            return native
        if self.wanted == "native":
            reason = f"{native}; {self.option}auto lets Python run it"
            raise ProgramError(f"{self.option}native", reason)
        self.line = f"{IN_PYTHON}, because {native}"
        return None


def _native(program: Program, compilers: Sequence[Compiler] | None) -> NativeProgram | NativeError:
    """Return a program's C, or why there is none. Switches that share the program share it."""
    if program not in _compiled:
        try:
            native = compile_native(
                program.ir,
                compilers,
                at_once=True,
                unit=unit_of(program),
            )
        except TooLarge:
            # What is too large for C is too large: Python would only be slower with it.
            raise
        except ProgramError as error:
            _compiled[program] = NativeError(str(error))
        except NativeError as error:
            _compiled[program] = error
        else:
            _compiled[program] = native
    return _compiled[program]
