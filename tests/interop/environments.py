"""The environment of p4runtime-shell, as `echelon shell` makes it, kept in the source tree between runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon.cli.shell_environment import ShellEnvironment, ShellEnvironmentError, cache_directory

CACHE = Path(__file__).resolve().parents[2] / ".venv-interop"
"""The XDG cache directory for tests: making the environment takes half a minute and a package index."""


def shell_python() -> Path:
    """Return the Python of the environment. Make it if needed; skip the test where pip reaches no package index."""
    environment = ShellEnvironment(cache_directory({"XDG_CACHE_HOME": str(CACHE)}))
    try:
        environment.make()
    except ShellEnvironmentError as error:
        if "is a package index reachable?" in str(error):
            pytest.skip(str(error))
        raise
    return environment.python
