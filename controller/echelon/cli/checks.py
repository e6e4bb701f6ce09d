"""`echelon check`: every kind of file that people write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from echelon.cli.progress import ShownProgress
from echelon.cli.tables import AsJson, show_json
from echelon.cli.usage import BAD_INPUT


def _scenario(path: Path) -> str:
    from echelon.lab.scenarios.scenario import load_scenario

    return f"scenario '{load_scenario(path).name}'"


def _service(path: Path) -> str:
    from echelon.service.config import load_service_config

    return f"service '{load_service_config(path).name}'"


def _fabric(path: Path) -> str:
    from echelon.fabric.load import load_fabric

    return f"fabric '{load_fabric(path).name}'"


def _job(path: Path) -> str:
    from echelon.jobs import load_job

    return f"job '{load_job(path).name}'"


def _tokens(path: Path) -> str:
    from echelon.service.api.tokens import load_tokens

    return f"tokens {', '.join(repr(token.name) for token in load_tokens(path).tokens)}"


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file, recognised by a key that all its files have."""

    key: str
    load: Callable[[Path], str]
    """A function that describes the file. It raises `DocumentError`."""


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file, and what it is or what is wrong with it."""

    file: Path
    good: bool
    what: str | None
    """The kind and name of a good file."""
    mistakes: tuple[str, ...] = ()


KINDS = (
    FileKind("job", _job),
    FileKind("fabric", _fabric),
    FileKind("scenario", _scenario),
    FileKind("service", _service),
    FileKind("tokens", _tokens),
)
"""The kinds in order. A file of a kind may also have the keys of the kinds before it: scenarios and configurations name
a fabric."""


def check(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files of jobs, fabrics, scenarios, service configurations and tokens.", metavar="FILE"),
    ],
    as_json: AsJson = False,
) -> None:
    """Check files without running anything.

    Ends with status 2 if any file is bad, after one line about each mistake on standard error.

    Example: echelon check *.yaml
    """
    checked = []
    with ShownProgress() as progress:
        progress.stage("checking", len(files), "files")
        for file in files:
            progress.doing(f"checking {file.name}")
            checked.append(_checked(file))
            progress.done()
    for found in checked:
        for mistake in found.mistakes:
            typer.echo(mistake, err=True)
        if found.good and not as_json:
            typer.echo(f"{found.file}: {found.what} is good")
    if as_json:
        show_json(checked)
    if not all(found.good for found in checked):
        raise typer.Exit(BAD_INPUT)


def _checked(file: Path) -> CheckedFile:
    from echelon.documents import DocumentError

    try:
        return CheckedFile(file, True, _kind_of(file).load(file))
    except DocumentError as error:
        return CheckedFile(file, False, None, tuple(str(mistake) for mistake in (error, *error.others)))


def _kind_of(file: Path) -> FileKind:
    from echelon.documents import DocumentError, read_document

    data = read_document(file)
    for kind in reversed(KINDS):
        if kind.key in data:
            return kind
    kinds = " nor ".join(kind.key for kind in KINDS)
    raise DocumentError(str(file), "", f"is neither {kinds} (it has none of these keys)")
