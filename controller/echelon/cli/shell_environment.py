"""The Python environment of p4runtime-shell, whose requirements (protobuf 3) conflict with those of everything else."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from echelon.errors import Code, CodedError

PINS = (
    "p4runtime-shell==0.0.6",
    "p4runtime==1.4.1",
    "protobuf==3.20.3",
    "googleapis-common-protos==1.73.0",
    "grpcio==1.85.1",
    "ipython==7.31.1",
    "jedi==0.17.2",
)
"""Versions that are known to work together."""

_DONE = "INSTALLED"
_MADE_BY = f"{chr(10).join(PINS)}\n{sys.version}\n"


class ShellEnvironmentError(CodedError):
    """The environment cannot be made; one line with what to do."""

    code: Code = "failed"


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return this user's cache directory, by the XDG convention."""
    given = environment.get("XDG_CACHE_HOME", "")
    return (Path(given) if given.startswith("/") else Path.home() / ".cache") / "echelon"


class ShellEnvironment:
    """The environment, one per user and version of Python and of `PINS`; made at the first use."""

    def __init__(self, cache: Path) -> None:
        self._home = cache / f"p4runtime-shell-{hashlib.sha256(_MADE_BY.encode()).hexdigest()[:12]}"
        self.python = self._home / "bin" / "python"

    @property
    def is_made(self) -> bool:
        """Return whether `python` is there with all of `PINS`."""
        try:
            # It is written last: an interrupted environment has none.
            return (self._home / _DONE).read_text() == _MADE_BY
        except OSError:
            return False

    def make(self) -> None:
        """Make the environment unless it is there; wait for another process that is making it. Raise
        `ShellEnvironmentError`."""
        if self.is_made:
            return
        try:
            self._home.parent.mkdir(parents=True, exist_ok=True)
            with self._lock():
                if not self.is_made:
                    self._make()
        except OSError as error:
            where = error.filename or self._home
            raise ShellEnvironmentError(
                f"{where}: {error.strerror or error} (set XDG_CACHE_HOME to a directory that you can write to)"
            ) from None

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with self._home.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _make(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)
        _run(
            [sys.executable, "-m", "venv", str(self._home)],
            "Python cannot make an environment (on Debian: apt-get install python3-venv)",
        )
        pip = [str(self.python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        _run([*pip, "install", *PINS], f"pip cannot install {PINS[0]} (is a package index reachable?)")
        _run([str(self.python), "-c", "import p4runtime_sh.shell"], f"{PINS[0]} does not work with this Python")
        (self._home / _DONE).write_text(_MADE_BY)


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those that would lead another Python to our modules."""
    return {name: value for name, value in environment.items() if not name.startswith("PYTHON")}


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean(os.environ))
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise ShellEnvironmentError(f"{what}: {said}")
