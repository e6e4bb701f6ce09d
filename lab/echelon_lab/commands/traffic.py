"""`echelon traffic`: draw cross traffic and show it. Another package sends it over real sockets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from echelon.cli import figures, tables
from echelon.cli.doors import GroupWithDoors
from echelon.cli.progress import ShownProgress
from echelon.cli.usage import BAD_INPUT, FAILED, fail
from echelon_lab.commands.plots import draw_file

if TYPE_CHECKING:
    from echelon_lab.traffic.models import TrafficModel
    from echelon_lab.traffic.schedule import Schedule
    from echelon_lab.traffic.sizes import SizeDistribution


app = typer.Typer(
    help="Cross traffic: draw it, look at it, send it over real sockets.",
    cls=GroupWithDoors,
    no_args_is_help=True,
)

T = TypeVar("T")


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Report bad documents, and what cannot be done, in one line."""
    from echelon.model.documents import DocumentError
    from echelon.model.errors import CodedError

    try:
        yield
    except CodedError as error:
        fail(str(error), BAD_INPUT if isinstance(error, DocumentError) else FAILED)


def option(name: str, parse: Callable[[Any], T], text: object) -> T:
    """Return what `parse` makes of the value of an option; report its errors with the option's
    name.
    """
    try:
        return parse(text)
    except ValueError as error:
        fail(f"{name}: {error}", BAD_INPUT)


# -- show, sizes -----------------------------------------------------------------------------------

_PAIRS_SHOWN = 20


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="The schedule.", metavar="FILE.csv")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            "--png",
            help="Draw the load and the flows over time into this file: PNG, SVG or PDF.",
            metavar="PICTURE.png",
        ),
    ] = None,
    as_json: tables.AsJson = False,
) -> None:
    """Show what a schedule holds: load, sizes, pairs of hosts, bursts.

    Example: echelon traffic show flows.csv
    """
    from echelon_lab.traffic.outcome import percentile
    from echelon_lab.traffic.schedule import burst_share, burst_us, pair_loads

    with one_line_errors():
        schedule = read(file)
        ordered = sorted(flow.size_bytes for flow in schedule.flows)
        length_us = burst_us(schedule)
        if length_us:
            in_bursts = burst_share(schedule, length_us)
        else:
            in_bursts = None
        loads = pair_loads(schedule)
        if out is not None:
            from echelon_lab.plots.others import draw_schedule

            draw_file(lambda style: [draw_schedule(schedule, file.name, style)], out)
        if as_json:
            tables.show_json(
                {
                    "flows": len(ordered),
                    "duration_s": schedule.duration_us / 1e6,
                    "offered_bps": schedule.offered_bps,
                    "bytes": schedule.total_bytes,
                    "p50_bytes": percentile(ordered, 50),
                    "p99_bytes": percentile(ordered, 99),
                    "burst_share": in_bursts,
                    "about": dict(schedule.about),
                    "pairs": loads,
                }
            )
            return
        facts = [
            ("flows", str(len(ordered))),
            ("duration", figures.duration(schedule.duration_us / 1e6)),
            ("offered load", rate(schedule.offered_bps)),
            ("mean size", figures.size(schedule.total_bytes / len(ordered)) if ordered else ""),
            (
                "median, 99 %",
                (
                    f"{figures.size(percentile(ordered, 50))},"
                    f" {figures.size(percentile(ordered, 99))}"
                    if ordered
                    else ""
                ),
            ),
            ("in bursts", "" if in_bursts is None else f"{in_bursts:.2%} of bytes"),
        ]
        tables.pairs([*facts, *((key, value) for key, value in schedule.about.items())])
        total = schedule.total_bytes or 1
        columns = (
            tables.Column("from", lambda of: of.pair[0]),
            tables.Column("to", lambda of: of.pair[1]),
            tables.Column("flows", right=True),
            tables.Column("bytes", lambda of: figures.size(of.total_bytes), right=True),
            tables.Column("load", lambda of: rate(of.offered_bps), right=True),
            tables.Column("share", lambda of: f"{of.total_bytes / total:.1%}", right=True),
        )
        tables.show_all(columns, loads[:_PAIRS_SHOWN], "no flows")
        if len(loads) > _PAIRS_SHOWN:
            typer.echo(f"and {len(loads) - _PAIRS_SHOWN} pairs more")
        if out is not None:
            typer.echo(out)


def read(file: Path) -> Schedule:
    from echelon_lab.traffic.schedule import read_schedule

    with ShownProgress() as progress:
        progress.stage(f"reading {file.name}")
        return read_schedule(file)


@app.command()
def sizes(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Show these in full: names or files.", metavar="[NAME]..."),
    ] = None,
    as_json: tables.AsJson = False,
) -> None:
    """List the distributions of flow sizes that come with Echelon; of those named, show the points and their source.

    Example: echelon traffic sizes web_search
    """
    from echelon_lab.traffic.sizes import READINGS, builtin_sizes, load_sizes

    def row(name: str) -> tuple[str, ...]:
        means = (figures.size(float(load_sizes(name, reading).mean_bytes)) for reading in READINGS)
        points = load_sizes(name).points
        return (
            name,
            *means,
            figures.size(load_sizes(name).quantile(_HALF)),
            figures.size(points[-1][0]),
        )

    with one_line_errors():
        if as_json:
            tables.show_json([_plain_sizes(name) for name in names or builtin_sizes()])
            return
        columns = [
            tables.Column("name"),
            *(tables.Column(f"mean ({reading})", right=True) for reading in READINGS),
            tables.Column("median", right=True),
            tables.Column("largest", right=True),
        ]
        tables.show(columns, [row(name) for name in names or builtin_sizes()], "none")
        for name in names or ():
            known = load_sizes(name)
            typer.echo(f"\n{known.about}" if known.about else "")
            points = [(str(size), f"{float(share):g}") for size, share in known.points]
            tables.show(
                [tables.Column("bytes", right=True), tables.Column("share", right=True)],
                points,
                "none",
            )


def _plain_sizes(name: str) -> dict[str, object]:
    from echelon_lab.traffic.sizes import READINGS, load_sizes

    known = load_sizes(name)
    means = {reading: float(load_sizes(name, reading).mean_bytes) for reading in READINGS}
    points = [{"bytes": size, "share": share} for size, share in known.points]
    return {"name": name, "about": known.about, "mean_bytes": means, "points": points}


_HALF = math.nextafter(0.5, 0)
"""Just below a half, so that a size that exactly half of all flows do not exceed is the median."""


# -- generate --------------------------------------------------------------------------------------

_OF_SIZES = ("sizes", "size_scale", "reading", "gaps", "draw", "seed")
MODELS = {"consistent": _OF_SIZES, "burst": (*_OF_SIZES, "burst"), "long": ("parallel", "piece")}
"""The options of each model, besides those that all have."""


@app.command()
def generate(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help=f"The model: {', '.join(MODELS)}.", metavar="MODEL")],
    load: Annotated[
        str, typer.Option(help="Payload of all flows together, e.g. 20Mbit/s.", metavar="RATE")
    ],
    duration: Annotated[
        str, typer.Option(help="Length of the schedule, e.g. 10s.", metavar="TIME")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file to write.", metavar="FILE.csv")
    ],
    src: Annotated[
        list[str],
        typer.Option(
            "--src", help="A host that sends; repeatable. Every source sends to every destination."
        ),
    ],
    dst: Annotated[list[str], typer.Option("--dst", help="A host that receives; repeatable.")],
    sizes: Annotated[
        str | None,
        typer.Option(
            help=(
                "Distribution of sizes: a name (see echelon traffic sizes) or a file. Default:"
                " web_search."
            ),
            metavar="NAME",
        ),
    ] = None,
    size_scale: Annotated[
        str | None,
        typer.Option(help="Factor of all sizes, e.g. 0.01 or 1/100. Default: 1.", metavar="FACTOR"),
    ] = None,
    reading: Annotated[
        str | None,
        typer.Option(
            help=(
                "How to read the distribution: points (only sizes in its table; the default) or"
                " linear (also sizes "
                "between them)."
            )
        ),
    ] = None,
    gaps: Annotated[
        str | None,
        typer.Option(
            help=(
                "Distribution of the gaps between starts: exponential (the default), or poisson as"
                " printed in the "
                "thesis."
            )
        ),
    ] = None,
    draw: Annotated[
        str | None,
        typer.Option(
            "--draw",
            help=(
                "matched (the default): the schedule has the requested load; printed: as in the"
                " thesis, where the "
                "load is random."
            ),
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed for all random choices. The same seed gives the same schedule. Default: 0.",
            min=0,
        ),
    ] = None,
    burst: Annotated[
        str | None,
        typer.Option(
            help="Length of a burst; the period is ten times as long. Default: 1ms.", metavar="TIME"
        ),
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option(help="Total number of long flows; they share the load. Default: 4.", min=1),
    ] = None,
    piece: Annotated[
        str | None,
        typer.Option(
            help="Length of the pieces into which a long flow's load is divided. Default: 1s.",
            metavar="TIME",
        ),
    ] = None,
    as_json: tables.AsJson = False,
) -> None:
    """Draw a schedule of flows and write it to a file.

    consistent: flows of random sizes at random times (Algorithm 1 of the thesis). burst: 30 % of
    the bytes in a tenth of the time (Algorithm 2). long: flows like iperf's, from the beginning to
    the end, each at a fixed rate.

    Example: echelon traffic generate consistent --load 20Mbit/s --duration 10s --src h1 --dst h2 -o flows.csv
    """
    from echelon.model.documents import suggestion
    from echelon_lab.traffic import models

    if model not in MODELS:
        fail(f"echelon traffic generate: unknown model '{model}' ({suggestion(model, MODELS)})")
    for name in {name for names in MODELS.values() for name in names} - set(MODELS[model]):
        if context.params[name] is not None:
            known = ", ".join(f"--{option.replace('_', '-')}" for option in MODELS[model])
            fail(f"--{name.replace('_', '-')}: does not go with model '{model}' (it has {known})")
    kind: Any = {of.name: of for of in (models.Consistent, models.Burst, models.Long)}[model]
    with one_line_errors():
        arguments: dict[str, Any] = {}
        if "sizes" in MODELS[model]:
            distribution = _sizes(sizes or "web_search", size_scale or "1", reading or "points")
            arguments = {
                "sizes": distribution,
                "gaps": gaps or "exponential",
                "draw": draw or "matched",
            }
        if burst is not None:
            arguments["burst_us"] = _microseconds("--burst", burst)
        if parallel is not None:
            arguments["parallel"] = parallel
        if piece is not None:
            arguments["window_us"] = _microseconds("--piece", piece)
        load_bps = _load(load)
        made = _model(model, lambda: kind(models.pairs_of(src, dst), load_bps, **arguments))
        _generate(made, duration, seed or 0, out, as_json)


def _load(text: str) -> int:
    from echelon.model.quantities import rate_bps

    return option("--load", rate_bps, text)


def _microseconds(name: str, text: str) -> int:
    from echelon.model.quantities import duration_s

    return round(option(name, duration_s, text) * 10**6)


def _sizes(name: str, scale: str, reading: str) -> SizeDistribution:
    from echelon.model.documents import suggestion
    from echelon.model.quantities import number, shown
    from echelon_lab.traffic.sizes import READINGS, load_sizes

    if reading not in READINGS:
        fail(f"--reading: {shown(reading)} is not known ({suggestion(reading, READINGS)})")
    return option(
        "--size-scale", load_sizes(name, reading).scaled, option("--size-scale", number, scale)
    )


def _model(name: str, make: Callable[[], T]) -> T:
    """Return what `make` makes of the options of a model; report its errors with the model's
    name.
    """
    try:
        return make()
    except ValueError as error:
        fail(f"echelon traffic generate {name}: {error}")


def _generate(model: TrafficModel, duration: str, seed: int, out: Path, as_json: bool) -> None:
    from random import Random

    from echelon_lab.traffic.schedule import Schedule, write_schedule

    duration_us = _microseconds("--duration", duration)
    if not duration_us:
        fail(f"--duration: '{duration}' is too short (give a microsecond or more)")
    with ShownProgress() as progress:
        progress.stage("drawing flows")
        drawn = _model(model.name, lambda: model.schedule(duration_us, Random(seed)))
        schedule = Schedule(drawn.flows, drawn.duration_us, {**drawn.about, "seed": str(seed)})
        progress.stage(f"writing {len(schedule.flows)} flows")
        write_schedule(schedule, out)
    if as_json:
        tables.show_json(
            {
                "file": out,
                "flows": len(schedule.flows),
                "duration_s": schedule.duration_us / 1e6,
                "offered_bps": schedule.offered_bps,
                "asked_bps": model.load_bps,
            }
        )
        return
    typer.echo(
        f"{out}: {len(schedule.flows)} flows in {figures.duration(schedule.duration_us / 1e6)},"
        f" offered load {rate(schedule.offered_bps)}, {schedule.offered_bps / model.load_bps:.2%}"
        f" of {rate(model.load_bps)}"
    )


def rate(bits_per_second: float) -> str:
    """Return a rate to four significant digits."""
    return figures.rate(int(float(f"{bits_per_second:.4g}")))
