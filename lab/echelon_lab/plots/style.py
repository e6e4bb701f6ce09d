"""The look of all pictures: widths of a column and of the text, 8 pt, and colours.

Everybody can tell the colours apart. Lines differ by colour, dashes and markers, bars by colour and
hatching, so that pictures stay readable in greyscale. Kinds of pictures are found here, drawn, and
written in every format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from colorsys import hls_to_rgb
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from echelon.model.documents import DocumentError, suggestion
from echelon.model.extras import PLUG_INS, how_to_install, plug_in
from echelon_lab.plots.measured import Excerpt, MeasuredRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTHS_INCHES = {"column": 3.3, "text": 7.0}
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#777777", "#000000")
"""Okabe and Ito's palette, in an order that keeps neighbours far apart."""
INK = "#222222"
FAINT = "#dddddd"
DASHES: tuple[Any, ...] = (
    "-",
    "--",
    "-.",
    ":",
    (0, (5, 1, 1, 1, 1, 1)),
    (0, (8, 2)),
    (0, (1, 1)),
    (0, (3, 3)),
)
MARKERS = "osD^v<>P"
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo")
MOST = len(PALETTE)
"""The number of curves that can be told apart."""
_GOLDEN = 0.6180339887498949
"""Steps of this part of a circle come near no earlier one."""
# Of titles, which are bold (`SHEET`).
_CHARACTERS_PER_INCH = 15.5
_LEGEND_INCHES = 0.14

SHEET: Any = {
    "font.size": 8,
    "figure.titlesize": 8,
    "figure.titleweight": "bold",
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 3,
    "errorbar.capsize": 0,
    "hatch.linewidth": 0.5,
    "savefig.dpi": 300,
    # The same drawing has the same ids each time.
    "svg.hashsalt": "echelon",
    # Text stays text, which can be searched and edited.
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


@dataclass(frozen=True, slots=True)
class Style:
    """The size of a picture."""

    width: str = "column"

    @property
    def width_inches(self) -> float:
        return WIDTHS_INCHES[self.width]

    def figure(self, height_inches: float, title: str = "") -> Figure:
        """Make an empty picture with a title, which is wrapped to the width."""
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        layout = ConstrainedLayoutEngine(h_pad=0.03, w_pad=0.03)
        text = self.wrapped(title)
        lines = 0
        if title:
            lines = text.count("\n") + 1
        height_inches = height_inches + 0.35 + 0.14 * lines
        figure = Figure(
            figsize=(self.width_inches, height_inches),
            layout=layout,
        )
        if title:
            figure.suptitle(text, x=0.01, ha="left")
        return figure

    def wrapped(self, text: str, part: float = 1.0) -> str:
        """Return a text in lines of the width of the picture, or of a part of it."""
        return fill(text, int(part * self.width_inches * _CHARACTERS_PER_INCH))

    def panels(
        self,
        heights_inches: Sequence[float],
        title: str = "",
        **options: Any,
    ) -> tuple[Figure, Sequence[Axes]]:
        """Make a picture of panels, one below the other, each so high."""
        figure = self.figure(sum(heights_inches), title)
        rows = len(heights_inches)
        axes = figure.subplots(
            rows,
            1,
            squeeze=False,
            height_ratios=heights_inches,
            **options,
        )
        return figure, list(axes[:, 0])

    def legend(self, figure: Figure, entries: Mapping[str, Any]) -> None:
        """Put the legend, handles by label, below all panels, in as many columns as find room."""
        # A handle and the gaps around it are as wide as seven characters. The type is smaller than
        # that of titles.
        width = max((len(label) for label in entries), default=0) + 7
        characters = self.width_inches * _CHARACTERS_PER_INCH * 1.15
        columns = max(1, int(characters / width))
        columns = min(columns, len(entries) or 1)
        handles = list(entries.values())
        figure.legend(
            handles,
            list(entries),
            loc="outside lower left",
            ncols=columns,
        )
        rows = -(-len(entries) // columns)
        figure.set_figheight(figure.get_figheight() + _LEGEND_INCHES * (rows - 1))


def colour(place: int) -> str:
    """Return the colour of a place in a picture, which no other place has.

    Those of the palette come first.
    """
    if place < MOST:
        return PALETTE[place]
    lightness = 0.3 + 0.12 * (place % 4)
    red, green, blue = hls_to_rgb(place * _GOLDEN % 1, lightness, 0.55)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def hatch(place: int) -> str:
    """Return the hatching of a place, another one for places whose colours are close."""
    return HATCHES[(place + place // MOST) % len(HATCHES)]


def entries_of(*axes: Axes) -> dict[str, Any]:
    """Return what a legend shows of panels, each label once."""
    entries: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        entries |= zip(labels, handles, strict=True)
    return entries


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


def kind_names(subject: str = "") -> tuple[str, ...]:
    """Return the names of the kinds of pictures of a subject, in alphabetical order.

    The subject "" is a finished run.
    """
    names = []
    for entry in _registered():
        entry_subject, _, name = entry.rpartition(".")
        if entry_subject == subject:
            names.append(name)
    return tuple(names)


def subject_of(results: Path) -> str:
    """Return the subject whose document, such as `sweep.json`, is in the directory.

    The subject "" is a finished run. Raise `DocumentError` if that subject's kinds of pictures are
    not installed.
    """
    for entry in {**PLUG_INS[GROUP], **_registered()}:
        subject, _, _ = entry.rpartition(".")
        if subject and (results / f"{subject}.json").is_file():
            if entry not in _registered():
                raise DocumentError(str(results), "", f"{plug_in(GROUP, entry)}")
            return subject
    return ""


def load_kind(name: str, subject: str = "") -> Any:
    """Return the module of a kind of picture.

    Raise `DocumentError` for one that is unknown or cannot be imported.
    """
    kinds = kind_names(subject)
    if subject and name not in kinds:
        raise DocumentError(
            "--kind", "", f"unknown kind '{name}' of a {subject} (known: {', '.join(kinds)})"
        )
    _check("--kind", name, kinds)
    entry = _registered()[f"{subject}.{name}" if subject else name]
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
    """Write a kind of picture of `run` into the directory `out`, in each format.

    Return the files.

    Raise `DocumentError` for an unknown kind, format or width, or if a job has none of the
    iterations, and `OSError`.
    """
    module = load_kind(kind)
    run.message(selection)
    return write_into(out, kind, lambda style: module.draw(run, selection, style), formats, width)


def write_into(
    out: Path,
    name: str,
    draw_pages: Callable[[Style], Sequence[Figure]],
    formats: Sequence[str],
    width: str,
) -> list[Path]:
    """Write what `draw_pages` returns into the directory `out`, in each format.

    Return the files.

    Raise `DocumentError` for an unknown format or width, and `OSError`.
    """
    _check("--width", width, tuple(WIDTHS_INCHES))
    for word in formats:
        _check("--format", word, FORMATS)
    out.mkdir(parents=True, exist_ok=True)
    return write(draw_pages, out / name, formats, width)


def write_file(
    draw_pages: Callable[[Style], Sequence[Figure]],
    file: Path,
    width: str = "text",
) -> list[Path]:
    """Write what `draw_pages` returns to `file`, whose suffix is the format, and return the files.

    Raise `DocumentError` for an unknown format, and `OSError`.
    """
    suffix = file.suffix[1:]
    if suffix.lower() not in FORMATS:
        reason = (
            f"the format '{suffix}' is unknown (write for example {file.stem}.png; there is"
            f" {', '.join(FORMATS)})"
        )
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
            page = ""
            if len(pages) > 1:
                page = f"-{number}"
            for word in formats:
                file = stem.with_name(f"{stem.name}{page}.{word}")
                form = word.lower()
                figure.savefig(
                    file,
                    format=form,
                    metadata={**_UNDATED[form], **metadata},
                )
                files.append(file)
    return files


def _check(
    option: str,
    word: str,
    words: Sequence[str],
) -> None:
    if word not in words:
        raise DocumentError(
            option, "", f"unknown {option[2:]} '{word}' ({suggestion(word, words)})"
        )
