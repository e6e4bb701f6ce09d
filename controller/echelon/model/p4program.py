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
_RANKING_ID = re.compile(r"\(RANKING_ACTION\)\s+@id\((0x[0-9a-fA-F]+)\)")
_RANKING_SECTIONS = (
    "VALUE",
    "METADATA",
    "ACTION",
    "NAME",
    "CONTROL",
    "INSTANCE",
    "APPLY",
    "KEY_LASTS",
)
_BINARIES = {"v1model": ("echelon.json", "p4"), "tna": ("echelon.bfa", "p4-tofino")}
"""What p4c makes for an architecture, and the target of the Makefile that makes it."""


@dataclass(frozen=True, slots=True)
class P4Program:
    """The output of p4c for one program and one architecture."""

    name: str
    p4info: Path
    """P4Info, protobuf text."""
    binary: Path
    """The file that the target loads: BMv2's JSON, or a Tofino's assembly."""


def program(architecture: str = "v1model", directory: Path | None = None) -> P4Program:
    """Return the Echelon program compiled for `architecture`: the one that comes with the package,
    or another build in `directory`. Raise FileNotFoundError if it was not compiled."""
    directory = directory or shipped() / "p4src" / "build" / architecture
    binary, target = _BINARIES.get(architecture, _BINARIES["v1model"])
    found = P4Program("echelon", directory / "echelon.p4info.txtpb", directory / binary)
    for path in (found.p4info, found.binary):
        if not path.is_file():
            raise FileNotFoundError(
                f"{path}: does not exist; compile the P4 program with `make {target}` (needs p4c)"
            )
    return found


def variant(architecture: str, name: str) -> Path:
    """Return where a build of the program lies: that which ranks alone, or with another part, such
    as aggregation.
    """
    return (
        shipped()
        / "p4src"
        / "build"
        / (architecture if name == "ranking" else f"{architecture}-{name}")
    )


def parse_constants(text: str) -> dict[str, int]:
    """Return every `#define NAME number` of a preprocessor file."""
    return {name: int(number, 0) for name, number in _DEFINE.findall(text)}


@cache
def constants(architecture: str = "v1model") -> Mapping[str, int]:
    """Return the numbers of `p4src/shared/constants.h` by name, and the sizes that the program for
    `architecture` has.

    Raise FileNotFoundError if there is no such program.
    """
    files = (
        shipped() / "p4src" / "shared" / "constants.h",
        shipped() / "p4src" / architecture / f"sizes_{architecture}.h",
    )
    return {
        name: number for path in files for name, number in parse_constants(path.read_text()).items()
    }


def source_digest(p4src: Path, architecture: str = "v1model") -> str:
    """Return the SHA-256 over the names and contents of every source that the program for
    `architecture` can include."""
    digest = hashlib.sha256()
    for directory in (p4src / "shared", p4src / architecture):
        for path in sorted(p for p in directory.rglob("*") if p.suffix in _SOURCE_SUFFIXES):
            digest.update(f"{path.relative_to(p4src).as_posix()}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def ranking_list(p4src: Path, architecture: str) -> str:
    """Return the P4 file that includes all rankings of an architecture, in the order of their
    actions' identifiers.

    A ranking is `shared/rankings/NAME.p4`, `ARCHITECTURE/include/rankings/NAME.p4`, or both. The
    program includes the list once for each section of these files, after defining RANKING_ and the
    section's name.

    Raise ValueError if a ranking's action has no identifier, or that of another ranking.
    """
    files: dict[str, list[Path]] = {}
    for folder in (p4src / "shared" / "rankings", p4src / architecture / "include" / "rankings"):
        for path in sorted(folder.glob("*.p4")):
            files.setdefault(path.stem, []).append(path)
    names: dict[int, str] = {}
    for name, paths in files.items():
        found = _RANKING_ID.search("".join(path.read_text() for path in paths))
        if found is None:
            raise ValueError(
                f"{paths[0]}: section RANKING_ACTION has no @id; give the action the next free one"
            )
        number = int(found[1], 16)
        if number in names:
            raise ValueError(
                f"{paths[0]}: @id({found[1]}) belongs to ranking {names[number]}; take the next"
                " free one"
            )
        names[number] = name
    listed = [
        path.relative_to(p4src).as_posix()
        for _, name in sorted(names.items())
        for path in files[name]
    ]
    return "".join(
        [
            "// The rankings of p4src, as `make p4-rankings` lists them.\n",
            *(f'#include "../../{path}"\n' for path in listed),
            *(f"#undef RANKING_{section}\n" for section in _RANKING_SECTIONS),
        ]
    )
