"""Mininet's `mn`, run by this Python: `python -m echelon_lab.hosts.backends.mn`.

This Python has what our nodes need.
"""

from __future__ import annotations

import runpy
import shutil
import sys

from echelon.model.errors import RunError
from echelon_lab.hosts.backends.mininet import INSTALL, load_mininet


def main() -> None:
    """Run `mn` with the arguments of this process."""
    try:
        command = shutil.which("mn")
        if command is None:
            raise RunError(f"mn is not installed ({INSTALL})")
        load_mininet()
    except RunError as error:
        sys.exit(str(error))
    sys.argv[0] = command
    runpy.run_path(command, run_name="__main__")


if __name__ == "__main__":
    main()
