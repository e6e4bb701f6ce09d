"""The compiled P4 programs that come with the package, and the constants that P4 and Python share.

p4c compiles the sources in `p4src/`; its output is kept under `p4src/build/`, with a digest of the
sources that it was made from, so that nothing here needs p4c. Each architecture has its own sizes
of tables and registers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from echelon.model.extras import shipped

_DEFINE = re.compile(r"^#define\s+(\w+)\s+(0[xX][0-9a-fA-F]+|\d+)\s*$", re.MULTILINE)
_SOURCE_SUFFIXES = (".p4", ".h")
_BINARIES = {"v1model": ("echelon.json", "p4"), "tna": ("echelon.bfa", "p4-tofino")}
"""The output of p4c for an architecture, and the target of the Makefile that makes it."""


@dataclass(frozen=True, slots=True)
class P4Program:
    """The output of p4c for one program and one architecture."""

    name: str
    p4info: Path
    """P4Info, protobuf text."""
    binary: Path
    """The file that the target loads: BMv2's JSON, or a Tofino's assembly."""


def program(architecture: str = "v1model", directory: Path | None = None) -> P4Program:
    """Return the Echelon program compiled for `architecture`.

    It is the one that comes with the package, or another build in `directory`. Raise
    FileNotFoundError if it was not compiled.
    """
    directory = directory or shipped() / "p4src" / "build" / architecture
    binary, target = _BINARIES.get(architecture, _BINARIES["v1model"])
    compiled = P4Program("echelon", directory / "echelon.p4info.txtpb", directory / binary)
    for path in (compiled.p4info, compiled.binary):
        if not path.is_file():
            raise FileNotFoundError(
                f"{path}: does not exist; compile the P4 program with `make {target}` (needs p4c)"
            )
    return compiled


def parse_constants(text: str) -> dict[str, int]:
    """Return every `#define NAME number` of a preprocessor file."""
    return {name: int(number, 0) for name, number in _DEFINE.findall(text)}


@cache
def constants(architecture: str = "v1model") -> Mapping[str, int]:
    """Return the numbers of `p4src/shared/constants.h` and the sizes for `architecture`, by name.

    Raise FileNotFoundError if there is no such program.
    """
    p4src = shipped() / "p4src"
    shared = p4src / "shared" / "constants.h"
    sizes = p4src / architecture / f"sizes_{architecture}.h"
    return parse_constants(shared.read_text()) | parse_constants(sizes.read_text())


def source_digest(
    p4src: Path,
    architecture: str = "v1model",
    extension: Path | None = None,
) -> str:
    """Return the SHA-256 over the names and contents of every source that a program can include.

    These are the sources for `architecture` in `p4src`, and those of a program that extends them,
    in the folder `extension`.
    """
    digest = hashlib.sha256()
    for root in (p4src, extension):
        if root is None:
            continue
        for folder in (root / "shared", root / architecture):
            sources = (path for path in folder.rglob("*") if path.suffix in _SOURCE_SUFFIXES)
            for path in sorted(sources):
                digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()
