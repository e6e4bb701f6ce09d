"""`echelon examples` and `echelon init`: files to begin with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from echelon.cli.tables import AsJson, Column, show, show_json
from echelon.cli.usage import FAILED, fail
from echelon.shipped import shipped

_FOLDERS = ("topologies", "examples", "p4src")
_START = Path("examples") / "start"
_SENTENCE_END = re.compile(r"(?<=[.?])(?<!Fig\.) ")
_SUFFIXES = (".yaml", ".py", ".p4", ".h", ".toml", ".md")

Names = Annotated[
    list[str] | None,
    typer.Argument(help="A part of the path of those wanted, e.g. fig2; default: all.", metavar="NAME"),
]


def examples(
    names: Names = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Copy them into this directory.", metavar="DIRECTORY")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the scenarios, fabrics, files for `mn`, plug-ins and P4 sources that come with Echelon, or copy them.

    Example: echelon examples scenarios/ -o examples
    """
    found = [path for path in _files() if not names or any(name in path.as_posix() for name in names)]
    if not found:
        fail(f"echelon examples: no file has {' or '.join(map(repr, names or []))} in its path (see echelon examples)")
    if out is None:
        rows = [(path.as_posix(), _first_sentence(shipped() / path)) for path in found]
        if as_json:
            show_json([{"file": file, "about": about} for file, about in rows])
            return
        show((Column("file"), Column("what it is", wraps=True)), rows, "no examples")
        return
    # Files name others by relative paths, so these are copied, too.
    needed = dict.fromkeys(found)
    if any(path.parts[0] == "topologies" for path in found):
        shared = [path for path in _files() if path.parts[0] == "topologies" and path.parts[1] != "scenarios"]
        needed |= dict.fromkeys(shared)
    _copy({path: out / path for path in needed})
    if as_json:
        show_json({"files": [out / path for path in needed]})
        return
    typer.echo(f"{out}: {len(needed)} files")


def init(
    directory: Annotated[Path, typer.Argument(help="The directory; it is made.", metavar="DIRECTORY")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Write a scenario, a fabric and two jobs with comments, to be changed.

    Example: echelon init mine && echelon run mine/scenario.yaml -o mine/results
    """
    files = [path for path in _files() if path.parent == _START]
    _copy({path: directory / path.name for path in files})
    if as_json:
        show_json({"files": sorted(directory / path.name for path in files)})
        return
    for path in sorted(files):
        typer.echo(f"{directory / path.name}: {_first_sentence(shipped() / path)}")
    scenario = directory / "scenario.yaml"
    typer.echo(f"\nNext: echelon check {scenario}\n      echelon run {scenario} -o {directory / 'results'}")


def _copy(copies: dict[Path, Path]) -> None:
    """Copy shipped files, none of them over a file that is there."""
    for target in copies.values():
        if target.exists():
            fail(f"{target}: exists already (move it away, or name another directory)")
    try:
        for path, target in copies.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((shipped() / path).read_bytes())
    except OSError as error:
        fail(f"{error.filename}: {error.strerror} (name a directory that can be written to)", FAILED)


def _files() -> Iterator[Path]:
    """Yield the shipped files, relative to where they are shipped, without what p4c has made."""
    for folder in _FOLDERS:
        for path in sorted((shipped() / folder).rglob("*")):
            relative = path.relative_to(shipped())
            if path.suffix in _SUFFIXES and not {"build", "__pycache__"}.intersection(relative.parts):
                yield relative


def _first_sentence(file: Path) -> str:
    """Return the first sentence of the comment at the beginning of a file."""
    words: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        text = line.strip().strip('"').removeprefix("/*").removesuffix("*/").lstrip("#/* ").strip()
        if words and (not text or line[:1].isalnum()):
            break
        if text.startswith("SPDX") or not text or (not words and line[:1].isalpha()):
            if line[:1].isalpha():
                break
            continue
        words += text.split()
    return _SENTENCE_END.split(" ".join(words), maxsplit=1)[0]
