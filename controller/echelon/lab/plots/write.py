"""Find a kind of picture, draw it, and write it in every format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from echelon.documents import DocumentError, suggestion
from echelon.extras import how_to_install
from echelon.lab.plots.measured import Excerpt, MeasuredRun
from echelon.lab.plots.style import SHEET, WIDTHS_INCHES, Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUP = "echelon.plots"
"""The entry-point group of the kinds."""
FORMATS = ("png", "svg", "pdf")
_UNDATED: Mapping[str, Mapping[str, str | None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
"""Metadata that would differ from one drawing of the same content to the next."""


@cache
def _registered() -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP))}


def kind_names() -> tuple[str, ...]:
    """Return the names of all kinds of pictures, in alphabetical order."""
    return tuple(_registered())


def load_kind(name: str) -> Any:
    """Return the module of a kind of picture. Raise `DocumentError` for one that is unknown or cannot be imported."""
    _check("--kind", name, kind_names())
    entry = _registered()[name]
    try:
        return entry.load()
    except Exception as error:  # whatever a foreign module raises when it is imported
        if isinstance(error, ImportError) and how_to_install(error):
            raise
        reason = f"'{name}' ({entry.value}) cannot be imported: {error} (repair or remove it)"
        raise DocumentError("--kind", "", reason) from error


def draw(
    run: MeasuredRun,
    kind: str,
    selection: Excerpt,
    out: Path,
    formats: Sequence[str] = ("png",),
    width: str = "column",
) -> list[Path]:
    """Write a kind of picture of `run` into the directory `out`, in each format, and return the files.

    Raise `DocumentError` for an unknown kind, format or width, or if a job has none of the iterations, and `OSError`.
    """
    module = load_kind(kind)
    run.message(selection)
    return write_into(out, kind, lambda style: module.draw(run, selection, style), formats, width)


def write_into(
    out: Path, name: str, draw_pages: Callable[[Style], Sequence[Figure]], formats: Sequence[str], width: str
) -> list[Path]:
    """Write what `draw_pages` returns into the directory `out`, in each format, and return the files.

    Raise `DocumentError` for an unknown format or width, and `OSError`.
    """
    _check("--width", width, tuple(WIDTHS_INCHES))
    for word in formats:
        _check("--format", word, FORMATS)
    out.mkdir(parents=True, exist_ok=True)
    return write(draw_pages, out / name, formats, width)


def write_file(draw_pages: Callable[[Style], Sequence[Figure]], file: Path, width: str = "text") -> list[Path]:
    """Write what `draw_pages` returns to `file`, whose suffix is the format, and return the files.

    Raise `DocumentError` for an unknown format, and `OSError`.
    """
    suffix = file.suffix[1:]
    if suffix.lower() not in FORMATS:
        reason = f"the format '{suffix}' is unknown (write for example {file.stem}.png; there is {', '.join(FORMATS)})"
        raise DocumentError("--out", str(file), reason)
    return write(draw_pages, file.with_suffix(""), (suffix,), width)


def write(
    draw_pages: Callable[[Style], Sequence[Figure]],
    stem: Path,
    formats: Sequence[str] = ("png",),
    width: str = "text",
    **metadata: str,
) -> list[Path]:
    """Write pictures in our style to `stem` and a suffix, and return the files. Pages are numbered.

    The same content gives the same file. Raise `OSError`.
    """
    from matplotlib import rc_context

    files = []
    with rc_context(SHEET):
        pages = draw_pages(Style(width))
        for number, figure in enumerate(pages, start=1):
            page = f"-{number}" if len(pages) > 1 else ""
            for word in formats:
                file = stem.with_name(f"{stem.name}{page}.{word}")
                figure.savefig(file, format=word.lower(), metadata={**_UNDATED[word.lower()], **metadata})
                files.append(file)
    return files


def _check(option: str, word: str, words: Sequence[str]) -> None:
    if word not in words:
        raise DocumentError(option, "", f"unknown {option[2:]} '{word}' ({suggestion(word, words)})")
