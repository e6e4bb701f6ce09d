"""`echelon traffic`: draw cross traffic and show it. `sending` sends it over real sockets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    from echelon_lab.traffic.generators import TrafficModel
    from echelon_lab.traffic.schedule import PairLoad, Schedule
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


def option(
    name: str,
    parse: Callable[[Any], T],
    text: object,
) -> T:
    """Return what `parse` makes of an option's value, and report its errors with the option."""
    try:
        return parse(text)
    except ValueError as error:
        fail(f"{name}: {error}", BAD_INPUT)


# -- show, sizes -----------------------------------------------------------------------------------

_PAIRS_SHOWN = 20


FileArgument = Annotated[
    Path,
    typer.Argument(
        help="The schedule.",
        metavar="FILE.csv",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        "--png",
        help="Draw the load and the flows over time into this file: PNG, SVG or PDF.",
        metavar="PICTURE.png",
    ),
]


@app.command()
def show(
    file: FileArgument,
    out: OutOption = None,
    as_json: tables.AsJson = False,
) -> None:
    """Show what a schedule holds: load, sizes, pairs of hosts, bursts.

    Example: echelon traffic show flows.csv
    """
    from echelon_lab.traffic.schedule import burst_share, burst_us, pair_loads

    with one_line_errors():
        schedule = read(file)
        length_us = burst_us(schedule)
        in_bursts = None
        if length_us:
            in_bursts = burst_share(schedule, length_us)
        loads = pair_loads(schedule)
        if out is not None:
            from echelon_lab.plots.inputs import draw_schedule

            draw_file(lambda style: [draw_schedule(schedule, file.name, style)], out)
        if as_json:
            tables.show_json(_plain_schedule(schedule, in_bursts, loads))
            return
        _show_schedule(schedule, in_bursts)
        _show_pairs(loads, schedule.total_bytes or 1)
        if out is not None:
            typer.echo(out)


def _plain_schedule(
    schedule: Schedule,
    in_bursts: float | None,
    loads: Sequence[PairLoad],
) -> dict[str, object]:
    from echelon_lab.traffic.outcome import percentile

    ordered = sorted(flow.size_bytes for flow in schedule.flows)
    return {
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


def _show_schedule(schedule: Schedule, in_bursts: float | None) -> None:
    from echelon_lab.traffic.outcome import percentile

    ordered = sorted(flow.size_bytes for flow in schedule.flows)
    mean = ""
    quantiles = ""
    if ordered:
        mean = figures.size(schedule.total_bytes / len(ordered))
        median = figures.size(percentile(ordered, 50))
        high = figures.size(percentile(ordered, 99))
        quantiles = f"{median}, {high}"
    bursts = ""
    if in_bursts is not None:
        bursts = f"{in_bursts:.2%} of bytes"
    facts = [
        ("flows", str(len(ordered))),
        ("duration", figures.duration(schedule.duration_us / 1e6)),
        ("offered load", rate(schedule.offered_bps)),
        ("mean size", mean),
        ("median, 99 %", quantiles),
        ("in bursts", bursts),
    ]
    tables.pairs([*facts, *schedule.about.items()])


def _show_pairs(loads: Sequence[PairLoad], total_bytes: int) -> None:
    columns = [
        tables.Column("from"),
        tables.Column("to"),
        tables.Column("flows", right=True),
        tables.Column("bytes", right=True),
        tables.Column("load", right=True),
        tables.Column("share", right=True),
    ]
    rows = []
    for load in loads[:_PAIRS_SHOWN]:
        src, dst = load.pair
        size = figures.size(load.total_bytes)
        share = f"{load.total_bytes / total_bytes:.1%}"
        rows.append((src, dst, str(load.flows), size, rate(load.offered_bps), share))
    tables.show(columns, rows, "no flows")
    if len(loads) > _PAIRS_SHOWN:
        typer.echo(f"and {len(loads) - _PAIRS_SHOWN} pairs more")


def read(file: Path) -> Schedule:
    from echelon_lab.traffic.schedule import read_schedule

    with ShownProgress() as progress:
        progress.stage(f"reading {file.name}")
        return read_schedule(file)


NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Show these in full: names or files.",
        metavar="[NAME]...",
    ),
]


@app.command()
def sizes(names: NamesArgument = None, as_json: tables.AsJson = False) -> None:
    """List the distributions of flow sizes that come with Echelon; of those named, show the points and their source.

    Example: echelon traffic sizes web_search
    """
    from echelon_lab.traffic.sizes import READINGS, builtin_sizes, load_sizes

    with one_line_errors():
        listed = names or builtin_sizes()
        if as_json:
            tables.show_json([_plain_sizes(name) for name in listed])
            return
        columns = [
            tables.Column("name"),
            *(tables.Column(f"mean ({reading})", right=True) for reading in READINGS),
            tables.Column("median", right=True),
            tables.Column("largest", right=True),
        ]
        tables.show(columns, [_sizes_row(name) for name in listed], "none")
        for name in names or ():
            distribution = load_sizes(name)
            typer.echo(f"\n{distribution.about}" if distribution.about else "")
            points = [(str(size), f"{float(share):g}") for size, share in distribution.points]
            columns = [tables.Column("bytes", right=True), tables.Column("share", right=True)]
            tables.show(columns, points, "none")


def _sizes_row(name: str) -> tuple[str, ...]:
    from echelon_lab.traffic.sizes import READINGS, load_sizes

    means = (figures.size(float(load_sizes(name, reading).mean_bytes)) for reading in READINGS)
    distribution = load_sizes(name)
    median = figures.size(distribution.quantile(_HALF))
    largest, _ = distribution.points[-1]
    return (name, *means, median, figures.size(largest))


def _plain_sizes(name: str) -> dict[str, object]:
    from echelon_lab.traffic.sizes import READINGS, load_sizes

    distribution = load_sizes(name)
    means = {reading: float(load_sizes(name, reading).mean_bytes) for reading in READINGS}
    points = [{"bytes": size, "share": share} for size, share in distribution.points]
    return {"name": name, "about": distribution.about, "mean_bytes": means, "points": points}


_HALF = math.nextafter(0.5, 0)
"""Just below a half, so that a size that exactly half of all flows do not exceed is the median."""


# -- generate --------------------------------------------------------------------------------------

_DRAWN = ("sizes", "size_scale", "reading", "gaps", "draw", "seed")
MODELS = {"consistent": _DRAWN, "burst": (*_DRAWN, "burst"), "long": ("parallel", "piece")}
"""The options of each model, besides those that all have."""


ModelArgument = Annotated[
    str,
    typer.Argument(
        help=f"The model: {', '.join(MODELS)}.",
        metavar="MODEL",
    ),
]
LoadOption = Annotated[
    str,
    typer.Option(
        help="Payload of all flows together, e.g. 20Mbit/s.",
        metavar="RATE",
    ),
]
DurationOption = Annotated[
    str,
    typer.Option(
        help="Length of the schedule, e.g. 10s.",
        metavar="TIME",
    ),
]
GenerateOutOption = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        help="The file to write.",
        metavar="FILE.csv",
    ),
]
SrcOption = Annotated[
    list[str],
    typer.Option(
        "--src", help="A host that sends; repeatable. Every source sends to every destination."
    ),
]
DstOption = Annotated[list[str], typer.Option("--dst", help="A host that receives; repeatable.")]
SizesOption = Annotated[
    str | None,
    typer.Option(
        help=(
            "Distribution of sizes: a name (see echelon traffic sizes)"
            " or a file. Default: web_search."
        ),
        metavar="NAME",
    ),
]
SizeScaleOption = Annotated[
    str | None,
    typer.Option(
        help="Factor of all sizes, e.g. 0.01 or 1/100. Default: 1.",
        metavar="FACTOR",
    ),
]
ReadingOption = Annotated[
    str | None,
    typer.Option(
        help=(
            "How to read the distribution: points (only sizes in its table; the default) or"
            " linear (also sizes "
            "between them)."
        )
    ),
]
GapsOption = Annotated[
    str | None,
    typer.Option(
        help=(
            "Distribution of the gaps between starts: exponential (the default), or poisson as"
            " printed in the "
            "thesis."
        )
    ),
]
DrawOption = Annotated[
    str | None,
    typer.Option(
        "--draw",
        help=(
            "matched (the default): the schedule has the requested load; printed: as in the"
            " thesis, where the "
            "load is random."
        ),
    ),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        help="Seed for all random choices. The same seed gives the same schedule. Default: 0.",
        min=0,
    ),
]
BurstOption = Annotated[
    str | None,
    typer.Option(
        help="Length of a burst; the period is ten times as long. Default: 1ms.",
        metavar="TIME",
    ),
]
ParallelOption = Annotated[
    int | None,
    typer.Option(
        help="Total number of long flows; they share the load. Default: 4.",
        min=1,
    ),
]
PieceOption = Annotated[
    str | None,
    typer.Option(
        help="Length of the pieces into which a long flow's load is divided. Default: 1s.",
        metavar="TIME",
    ),
]


@app.command()
def generate(
    context: typer.Context,
    model: ModelArgument,
    load: LoadOption,
    duration: DurationOption,
    out: GenerateOutOption,
    src: SrcOption,
    dst: DstOption,
    sizes: SizesOption = None,
    size_scale: SizeScaleOption = None,
    reading: ReadingOption = None,
    gaps: GapsOption = None,
    draw: DrawOption = None,
    seed: SeedOption = None,
    burst: BurstOption = None,
    parallel: ParallelOption = None,
    piece: PieceOption = None,
    as_json: tables.AsJson = False,
) -> None:
    """Draw a schedule of flows and write it to a file.

    consistent: flows of random sizes at random times (Algorithm 1 of the thesis). burst: 30 % of
    the bytes in a tenth of the time (Algorithm 2). long: flows like iperf's, from the beginning to
    the end, each at a fixed rate.

    Example: echelon traffic generate consistent --load 20Mbit/s --duration 10s --src h1 --dst h2 -o flows.csv
    """
    from echelon.model.documents import suggestion
    from echelon_lab.traffic import generators

    if model not in MODELS:
        fail(f"echelon traffic generate: unknown model '{model}' ({suggestion(model, MODELS)})")
    _refuse_other_options(model, context.params)
    kinds: tuple[Any, ...] = (generators.Consistent, generators.Burst, generators.Long)
    kind = {candidate.name: candidate for candidate in kinds}[model]

    with one_line_errors():
        arguments: dict[str, Any] = {}
        if "sizes" in MODELS[model]:
            arguments = {
                "sizes": _sizes(sizes or "web_search", size_scale or "1", reading or "points"),
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
        pairs = generators.pairs_of(src, dst)
        traffic = _model(model, lambda: kind(pairs, load_bps, **arguments))
        _generate(traffic, duration, seed or 0, out, as_json)


def _refuse_other_options(model: str, values: Mapping[str, object]) -> None:
    """Fail if an option is given that only other models have."""
    options = MODELS[model]
    for name in {name for names in MODELS.values() for name in names}:
        if name in options or values[name] is None:
            continue
        allowed = ", ".join(_flag(option) for option in options)
        fail(f"{_flag(name)}: does not go with model '{model}' (it has {allowed})")


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _load(text: str) -> int:
    from echelon.model.quantities import rate_bps

    return option("--load", rate_bps, text)


def _microseconds(name: str, text: str) -> int:
    from echelon.model.quantities import duration_s

    return round(option(name, duration_s, text) * 10**6)


def _sizes(
    name: str,
    scale: str,
    reading: str,
) -> SizeDistribution:
    from echelon.model.documents import suggestion
    from echelon.model.quantities import excerpt, number
    from echelon_lab.traffic.sizes import READINGS, load_sizes

    if reading not in READINGS:
        fail(f"--reading: {excerpt(reading)} is not known ({suggestion(reading, READINGS)})")
    distribution = load_sizes(name, reading)
    factor = option("--size-scale", number, scale)
    return option("--size-scale", distribution.scaled, factor)


def _model(name: str, make: Callable[[], T]) -> T:
    """Return what `make` makes of the options of a model, and report its errors with the model."""
    try:
        return make()
    except ValueError as error:
        fail(f"echelon traffic generate {name}: {error}")


def _generate(
    model: TrafficModel,
    duration: str,
    seed: int,
    out: Path,
    as_json: bool,
) -> None:
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
    length = figures.duration(schedule.duration_us / 1e6)
    share = schedule.offered_bps / model.load_bps
    typer.echo(
        f"{out}: {len(schedule.flows)} flows in {length},"
        f" offered load {rate(schedule.offered_bps)}, {share:.2%} of {rate(model.load_bps)}"
    )


def rate(bits_per_second: float) -> str:
    """Return a rate to four significant digits."""
    rounded = float(f"{bits_per_second:.4g}")
    return figures.rate(int(rounded))
