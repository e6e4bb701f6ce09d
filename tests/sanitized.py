"""A plug-in of pytest that builds libraries in C with the sanitizers that SANITIZE names, with commas between them."""

from __future__ import annotations

import os
import shutil

import ctoolchain

_NAMES = os.environ.get("SANITIZE", "").split(",")
_COMMAND = (shutil.which("gcc") or "gcc", "-g", "-O1", "-w", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")

if _NAMES != [""]:
    SANITIZING = ctoolchain.Compiler("sanitizing", (*_COMMAND, *(f"-fsanitize={name}" for name in _NAMES)))
    ctoolchain.compilers = lambda: [SANITIZING]
    # Other programs, which tests start, are not made for it.
    os.environ.pop("LD_PRELOAD", None)
