"""For the topologies beside this file: our parts of `mn`, whatever Python it runs in.

Debian's `mn` runs in Debian's Python, which has nothing of Echelon. Then the command is run again,
before it has done anything, in the Python that has: the one that ECHELON_PYTHON names, that of the
.venv beside topologies/, or that of the command `echelon` on the PATH.
"""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

_AGAIN = "ECHELON_MN"
_ROOT = Path(__file__).resolve().parents[1]


def _pythons() -> Iterator[Path]:
    if named := os.environ.get("ECHELON_PYTHON"):
        yield Path(named)
    yield _ROOT / ".venv" / "bin" / "python"
    if command := shutil.which("echelon"):
        with Path(command).open("rb") as script:
            first = script.readline().decode(errors="replace").strip()
        yield Path(first.removeprefix("#!"))


def _run_again() -> None:
    for python in _pythons():
        if python.is_file() and _AGAIN not in os.environ:
            os.environ[_AGAIN] = "again"
            os.execv(python, [str(python), "-m", "echelon_lab.hosts.backends.mn", *sys.argv[1:]])
    sys.exit(
        "no Python with Echelon is known here (install it, or name its Python in ECHELON_PYTHON)"
    )


if importlib.util.find_spec("echelon") is None or importlib.util.find_spec("pydantic") is None:
    _run_again()

from echelon_lab.hosts.backends.mininet import load_mininet  # noqa: E402

load_mininet()

from echelon_lab.hosts.backends.mininet_nodes import (  # noqa: E402
    controllers,
    default_controller,
    switches,
    topology,
)

__all__ = ["controllers", "default_controller", "switches", "topology"]
