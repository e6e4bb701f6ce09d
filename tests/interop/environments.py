"""The environment of p4runtime-shell, as `echelon shell` makes it, kept in the source tree between
runs.
"""

from __future__ import annotations

from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import typer

from echelon.cli import service
from tests.needs import NO_INDEX, skip

CACHE = Path(__file__).resolve().parents[2] / ".venv-interop"
"""The XDG cache directory for tests: making the environment takes half a minute and a package
index.
"""


def shell_python() -> Path:
    """Return the Python of the environment.

    Make it if needed; skip the test where pip reaches no package index.
    """
    with redirect_stderr(StringIO()) as said:
        try:
            return service.shell_python(CACHE / "echelon")
        except typer.Exit:
            pass
    if "No matching distribution" in said.getvalue():
        skip("a package index", NO_INDEX)
    raise AssertionError(said.getvalue())
