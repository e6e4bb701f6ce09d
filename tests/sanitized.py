"""A plug-in of pytest that builds libraries in C with the sanitizers that SANITIZE names, with
commas between them.
"""

from __future__ import annotations

import os

import ctoolchain
from tests.needs import path_of

_NAMES = os.environ.get("SANITIZE", "").split(",")
_GCC = path_of("gcc") or "gcc"
_COMMAND = (_GCC, "-g", "-O1", "-w", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")

if _NAMES != [""]:
    SANITIZING = ctoolchain.Compiler(
        "sanitizing", (*_COMMAND, *(f"-fsanitize={name}" for name in _NAMES))
    )
    ctoolchain.compilers = lambda: [SANITIZING]
    # Other programs, which tests start, are not made for it.
    os.environ.pop("LD_PRELOAD", None)
