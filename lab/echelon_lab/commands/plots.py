"""`echelon plot`: pictures of a finished run, for papers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelon.cli import tables
from echelon.cli.progress import ShownProgress
from echelon.cli.usage import fail

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from echelon_lab.plots import Excerpt, Style


ResultsArgument = Annotated[
    Path,
    typer.Argument(
        help=(
            "The directory that echelon run has written, or its results.json; or that of a sweep."
        ),
        metavar="RESULTS",
    ),
]
OutOption = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        help="The directory for the pictures.",
        metavar="DIRECTORY",
    ),
]
KindOption = Annotated[
    list[str] | None,
    typer.Option(
        help=(
            "summary, iterations, bars, timeline...; of a sweep: slowdowns; repeatable."
            " Default: all."
        ),
        metavar="KIND",
    ),
]
FormatsOption = Annotated[
    str,
    typer.Option(
        "--format",
        help="png, svg, pdf, or several of them: png,pdf.",
        metavar="FORMAT",
    ),
]
WidthOption = Annotated[
    str,
    typer.Option(
        help="column (3.3 inches) or text (7 inches).",
        metavar="WIDTH",
    ),
]
PolicyOption = Annotated[list[str] | None, typer.Option(help="Draw only this policy; repeatable.")]
JobOption = Annotated[list[str] | None, typer.Option(help="Draw only this job; repeatable.")]
IterationsOption = Annotated[
    str | None,
    typer.Option(
        help="Draw only these, as 2 or 2:4, counted from 1.",
        metavar="FIRST:LAST",
    ),
]


def plot(
    results: ResultsArgument,
    out: OutOption,
    kind: KindOption = None,
    formats: FormatsOption = "png",
    width: WidthOption = "column",
    policy: PolicyOption = None,
    job: JobOption = None,
    iterations: IterationsOption = None,
    as_json: tables.AsJson = False,
) -> None:
    """Draw pictures of a finished run or a sweep, readable at the width of a column, and say what they leave out.

    Example: echelon plot results --kind iterations --format png,pdf -o pictures
    """
    from echelon.model.documents import DocumentError
    from echelon_lab.plots import Excerpt, draw, kind_names, load, subject_of

    files: list[Path] = []
    notes: list[str] = []
    try:
        first, last = _range(iterations)
        subject = subject_of(results)
        kinds = kind or kind_names(subject)
        with ShownProgress() as progress:
            progress.stage("drawing", len(kinds), "kinds")
            for name in kinds:
                progress.doing(f"drawing {name}")
                selection = Excerpt(first, last, tuple(job or ()))
                look = formats.split(","), width
                policies = policy or ()
                if subject:
                    files += _draw_subject(
                        subject, name, results, selection, out, *look, policies=policies
                    )
                else:
                    run = load(results, selection, policies)
                    files += draw(run, name, selection, out, *look)
                notes += [f"{name}: {note}" for note in selection.notes]
                progress.done()
    except DocumentError as error:
        fail(str(error))
    except OSError as error:
        fail(
            f"--out: {error.filename or out}: {error.strerror or error}"
            " (name a directory to write to)"
        )
    for note in notes:
        typer.echo(note, err=True)
    if as_json:
        tables.show_json({"files": files, "notes": notes})
        return
    for file in files:
        typer.echo(file)


def draw_file(pages: Callable[[Style], Sequence[Figure]], file: Path) -> None:
    """Write a picture to the file of `--out`, or fail with one line."""
    from echelon.model.documents import DocumentError
    from echelon_lab.plots import write_file

    try:
        write_file(pages, file)
    except DocumentError as error:
        fail(str(error))
    except OSError as error:
        fail(f"--out: {file}: {error.strerror or error} (name a file that can be written)")


def _draw_subject(
    subject: str,
    name: str,
    results: Path,
    selection: Excerpt,
    out: Path,
    *look: Any,
    policies: Sequence[str],
) -> list[Path]:
    """Draw a kind of picture of what is no finished run."""
    from echelon_lab.plots import load_kind, write_into

    kind = load_kind(name, subject)
    loaded = kind.load(results)
    return write_into(out, name, lambda style: kind.draw(loaded, selection, style, policies), *look)


def _range(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    begin, colon, end = text.partition(":")
    try:
        first = int(begin)
        last = first
        if colon:
            last = int(end)
    except ValueError:
        fail(f"--iterations: '{text}' is not FIRST:LAST (write for example 2:4)")
    if not 1 <= first <= last:
        fail(f"--iterations: '{text}' is empty (write for example 2:4)")
    return first, last
