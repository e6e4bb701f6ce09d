"""Programs that this user has run before, read from the cache folder.

They come with their C, without p4c's JSON.

Only the user can write to that folder, as for libraries in C. What is kept is named after the
program's bytes and the text of this package, so that no version of it reads what another one wrote.
"""

from __future__ import annotations

import pickle
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ctoolchain import keep, read_kept
from softswitch import ir
from softswitch.errors import ProgramError

from .generate import CUnit, generate

if TYPE_CHECKING:
    from softswitch.switch import Program

__all__ = ["load_kept", "unit_of"]

_units: WeakKeyDictionary[Program, CUnit] = WeakKeyDictionary()


@lru_cache(maxsize=4)
def load_kept(source: bytes, name: str) -> Program:
    """Load a program as `load_program` does, without its interpreter.

    Raises :class:`ProgramError`.
    """
    from softswitch.switch import Program, load_program

    identity = b"\0".join([_version(), name.encode(), source])
    key = sha256(identity).hexdigest()[:32]
    try:
        kept = pickle.loads(read_kept(f"program-{key}") or b"")
        form, unit = kept
        if not (isinstance(form, ir.ProgramIR) and isinstance(unit, CUnit)):
            raise TypeError
        program = Program(name, form)
    except Exception:  # whatever is wrong with what was kept, the program itself is here
        program = load_program(source, name, resolved=False)
        try:
            unit = generate(program.ir)
        except ProgramError:
            return program
        packed = BytesIO()
        _Pickler(packed, protocol=5).dump((program.ir, unit))
        keep(f"program-{key}", packed.getvalue())
    _units[program] = unit
    return program


class _Pickler(pickle.Pickler):
    """A pickler of data classes as calls of them.

    Calls are read in half the time that setting their fields takes.
    """

    def reducer_override(self, value: Any) -> Any:
        if not is_dataclass(value) or isinstance(value, type):
            return NotImplemented
        return type(value), tuple(getattr(value, field.name) for field in fields(value))


def unit_of(program: Program) -> CUnit:
    """Return a program's C.

    Raises :class:`ProgramError` for what the native engine does not have.
    """
    return _units.get(program) or generate(program.ir)


@cache
def _version() -> bytes:
    """Return a digest of all text that decides how a program is read and what its C is."""
    package = Path(__file__).parents[1]
    paths: list[Path] = []
    for folder in (package, package / "load", package / "native"):
        paths += folder.glob("*.*")
    digest = sha256()
    for path in sorted(paths):
        if path.suffix in (".py", ".c", ".h"):
            digest.update(path.read_bytes())
    return digest.digest()
