"""Find the kind of picture, draw it, and write it in every format."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from echelon.documents import DocumentError, suggestion
from echelon.plots import kinds as folder
from echelon.plots.measured import Excerpt, MeasuredRun
from echelon.plots.style import SHEET, WIDTHS_INCHES, Style

FORMATS = ("png", "svg", "pdf")
_METADATA = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""What would differ from one drawing of the same content to the next."""


def plot_kinds() -> Mapping[str, ModuleType]:
    """Return the kinds of pictures by name."""
    names = (found.name for found in pkgutil.iter_modules(folder.__path__))
    return {name: import_module(f"{folder.__name__}.{name}") for name in names}


def draw(
    run: MeasuredRun,
    kind: str,
    selection: Excerpt,
    out: Path,
    formats: Sequence[str] = ("png",),
    width: str = "column",
) -> list[Path]:
    """Write a kind of picture of `run` into the directory `out`, in each format, and return the files.

    Raise `DocumentError` for an unknown kind, format or width, and `OSError`.
    """
    known = plot_kinds()
    for option, word, words in (("--kind", kind, tuple(known)), ("--width", width, tuple(WIDTHS_INCHES))):
        if word not in words:
            raise DocumentError(option, "", f"unknown {option[2:]} '{word}' ({suggestion(word, words)})")
    for word in formats:
        if word not in FORMATS:
            raise DocumentError("--format", "", f"unknown format '{word}' ({suggestion(word, FORMATS)})")
    from matplotlib import rc_context

    files = []
    out.mkdir(parents=True, exist_ok=True)
    with rc_context(SHEET):
        pages = known[kind].draw(run, selection, Style(width))
        for number, figure in enumerate(pages, start=1):
            page = f"-{number}" if len(pages) > 1 else ""
            for word in formats:
                file = out / f"{kind}{page}.{word}"
                figure.savefig(file, metadata=_METADATA[word])
                files.append(file)
    return files
