"""`echelon traffic`: draw cross traffic, show it, send it over real sockets."""

from __future__ import annotations

import math
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from echelon.cli import figures, tables
from echelon.cli.plots import draw_file
from echelon.cli.progress import ShownProgress
from echelon.cli.usage import BAD_INPUT, FAILED, CommandGroup, fail

if TYPE_CHECKING:
    from echelon.lab.traffic.models import TrafficModel
    from echelon.lab.traffic.outcome import TrafficSummary
    from echelon.lab.traffic.replay import Replay
    from echelon.lab.traffic.schedule import Schedule
    from echelon.lab.traffic.sizes import SizeDistribution
    from echelon.progress import CommandProgress

app = typer.Typer(
    help="Cross traffic: draw it, look at it, send it over real sockets.", cls=CommandGroup, no_args_is_help=True
)

_MOST_S = 1e9
_MOST_INTERVALS = 10**5

T = TypeVar("T")


@contextmanager
def _one_line_errors() -> Iterator[None]:
    from echelon.documents import DocumentError
    from echelon.lab.traffic.replay import ReplayError

    try:
        yield
    except DocumentError as error:
        fail(str(error), BAD_INPUT)
    except ReplayError as error:
        fail(str(error), FAILED)


def _option(name: str, parse: Callable[[Any], T], text: object) -> T:
    """Return what `parse` makes of the value of an option; report its errors with the option's name."""
    try:
        return parse(text)
    except ValueError as error:
        fail(f"{name}: {error}", BAD_INPUT)


# --- show, sizes ---------------------------------------------------------------------------------------------------

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
    from echelon.lab.traffic.outcome import percentile
    from echelon.lab.traffic.schedule import burst_share, burst_us, pair_loads

    with _one_line_errors():
        schedule = _read(file)
        ordered = sorted(flow.size_bytes for flow in schedule.flows)
        length_us = burst_us(schedule)
        in_bursts = burst_share(schedule, length_us) if length_us else None
        loads = pair_loads(schedule)
        if out is not None:
            from echelon.lab.plots.others import draw_schedule

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
            ("offered load", _rate(schedule.offered_bps)),
            ("mean size", figures.size(schedule.total_bytes / len(ordered)) if ordered else ""),
            (
                "median, 99 %",
                f"{figures.size(percentile(ordered, 50))}, {figures.size(percentile(ordered, 99))}" if ordered else "",
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
            tables.Column("load", lambda of: _rate(of.offered_bps), right=True),
            tables.Column("share", lambda of: f"{of.total_bytes / total:.1%}", right=True),
        )
        tables.show_all(columns, loads[:_PAIRS_SHOWN], "no flows")
        if len(loads) > _PAIRS_SHOWN:
            typer.echo(f"and {len(loads) - _PAIRS_SHOWN} pairs more")
        if out is not None:
            typer.echo(out)


def _read(file: Path) -> Schedule:
    from echelon.lab.traffic.schedule import read_schedule

    with ShownProgress() as progress:
        progress.stage(f"reading {file.name}")
        return read_schedule(file)


@app.command()
def sizes(
    names: Annotated[
        list[str] | None, typer.Argument(help="Show these in full: names or files.", metavar="[NAME]...")
    ] = None,
    as_json: tables.AsJson = False,
) -> None:
    """List the distributions of flow sizes that come with Echelon; of those named, show the points and their source.

    Example: echelon traffic sizes web_search
    """
    from echelon.lab.traffic.sizes import READINGS, builtin_sizes, load_sizes

    def row(name: str) -> tuple[str, ...]:
        means = (figures.size(float(load_sizes(name, reading).mean_bytes)) for reading in READINGS)
        points = load_sizes(name).points
        return name, *means, figures.size(load_sizes(name).quantile(_HALF)), figures.size(points[-1][0])

    with _one_line_errors():
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
            tables.show([tables.Column("bytes", right=True), tables.Column("share", right=True)], points, "none")


def _plain_sizes(name: str) -> dict[str, object]:
    from echelon.lab.traffic.sizes import READINGS, load_sizes

    known = load_sizes(name)
    means = {reading: float(load_sizes(name, reading).mean_bytes) for reading in READINGS}
    points = [{"bytes": size, "share": share} for size, share in known.points]
    return {"name": name, "about": known.about, "mean_bytes": means, "points": points}


_HALF = math.nextafter(0.5, 0)
"""Just below a half, so that a size that exactly half of all flows do not exceed is the median."""


# --- receive, send -------------------------------------------------------------------------------------------------

Processes = Annotated[int | None, typer.Option(help="Number of processes that share the work.", min=1, max=256)]


@app.command()
def receive(
    listen: Annotated[str, typer.Option(help="Address to receive at.", metavar="ADDRESS[:PORT]")] = "0.0.0.0",
    processes: Processes = None,
    as_json: tables.AsJson = False,
) -> None:
    """Receive what `echelon traffic send` sends, until interrupted (Ctrl-C or SIGTERM).

    Example: echelon traffic receive
    """
    from echelon.lab.traffic.replay import DEFAULT_PROCESSES
    from echelon.lab.traffic.replay import receive as receive_flows

    with _one_line_errors(), _interruptible() as going:
        address, port = _address("--listen", listen)

        def ready(port: int) -> None:
            typer.echo(f"receiving at {address}:{port}", err=as_json)
            sys.stdout.flush()

        seen = receive_flows(address, port, processes or DEFAULT_PROCESSES, ready, going)
        if as_json:
            tables.show_json(seen)
            return
        broken = f", {seen.broken} connections ended early" if seen.broken else ""
        typer.echo(f"received {seen.transfers} flows, {figures.size(seen.total_bytes)}{broken}")


@app.command()
def send(
    file: Annotated[Path, typer.Argument(help="The schedule.", metavar="FILE.csv")],
    sources: Annotated[
        list[str],
        typer.Option(
            "--from", help="Send the flows of this host, which must be the one that runs the command; repeatable."
        ),
    ],
    host: Annotated[
        list[str] | None,
        typer.Option(help="Address of a host of the schedule; repeatable.", metavar="NAME=ADDRESS[:PORT]"),
    ] = None,
    fabric: Annotated[Path | None, typer.Option(help="Take addresses of hosts from this fabric file.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the outcome of every flow to this file.", metavar="OUTCOMES.csv"),
    ] = None,
    processes: Processes = None,
    wait: Annotated[
        str, typer.Option(help="How long flows may continue after the end of the schedule.", metavar="TIME")
    ] = "10s",
    begin: Annotated[
        float | None,
        typer.Option(help="Time 0, in seconds of this machine's monotonic clock; without, as soon as possible."),
    ] = None,
    interval: Annotated[str, typer.Option(help="Report the load by intervals of this length.", metavar="TIME")] = "1s",
    capacity: Annotated[
        str | None,
        typer.Option(
            help="Capacity of the bottleneck: report by how much longer flows took than alone.", metavar="RATE"
        ),
    ] = None,
    ecn: Annotated[
        bool, typer.Option("--ecn", help="Check that the system asks for ECN, and count flows that have it.")
    ] = False,
    congestion: Annotated[
        str | None, typer.Option(help="The system's congestion control to use, e.g. reno.", metavar="NAME")
    ] = None,
    dscp: Annotated[int | None, typer.Option(help="DSCP of all packets sent.", min=0, max=63)] = None,
    as_json: tables.AsJson = False,
) -> None:
    """Send a schedule's flows over TCP, each when it is due, and report offered against achieved load.

    Status 1 means that flows failed. If interrupted (Ctrl-C or SIGTERM), it reports what was sent by then.

    Example: echelon traffic send flows.csv --from h1
    """
    from echelon.lab.traffic.replay import DEFAULT_PROCESSES, SendOptions
    from echelon.lab.traffic.replay import send as send_flows
    from echelon.lab.traffic.sender import SocketOptions
    from echelon.quantities import duration_s, rate_bps

    with _one_line_errors(), _interruptible() as going:
        length_s = float(_option("--interval", duration_s, interval))
        if not length_s:
            fail("--interval: '0' is too short (write for example 1s)")
        capacity_bps = None if capacity is None else _option("--capacity", rate_bps, capacity)
        if capacity_bps == 0:
            fail("--capacity: '0' carries nothing (write for example 10Mbit/s)")
        if begin is not None and not 0 <= begin <= _MOST_S:
            fail(f"--begin: {begin:g} is not a time of the monotonic clock (give seconds, from 0 on)")
        _check_ecn(ecn)
        addresses = _addresses(fabric, host or [])
        schedule = _read(file)
        if schedule.duration_us > _MOST_INTERVALS * length_s * 1e6:
            fail(f"--interval: {interval} makes more than {_MOST_INTERVALS} lines (give a longer one)")
        if out is not None:
            _check_writable(out)
        options = SendOptions(
            processes or DEFAULT_PROCESSES,
            SocketOptions(dscp, congestion),
            None if begin is None else round(begin * 1e9),
            float(_option("--wait", duration_s, wait)),
        )
        with ShownProgress() as progress:
            tell = _teller(progress, schedule.duration_us / 1e6, going)
            replay = send_flows(schedule, sources, addresses, options, tell)
        if out is not None:
            from echelon.lab.traffic.outcome import write_outcomes

            write_outcomes(replay.outcomes, out)
        (_report_json if as_json else _report)(replay, length_s, capacity_bps, ecn)
        if any(outcome.failed for outcome in replay.outcomes):
            raise typer.Exit(FAILED)


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether to go on; SIGINT and SIGTERM make its answer no."""
    stopped: list[int] = []

    def stop(number: int, frame: object) -> None:
        stopped.append(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: not stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _teller(
    progress: CommandProgress, duration_s: float, going: Callable[[], bool]
) -> Callable[[float, int, int], bool]:
    """Return a function that tells `progress` how far a replay is, and returns whether to go on."""
    told_s: float | None = None

    def tell(elapsed_s: float, finished: int, failed: int) -> bool:
        nonlocal told_s
        if told_s is None:
            # Not sooner: the processes have been forked by now, so a thread that shows it does no harm.
            progress.stage("sending", duration_s, "seconds of the schedule")
            told_s = 0.0
        failures = f", {failed} failed" if failed else ""
        progress.doing(f"{finished} flows sent{failures}")
        now_s = max(min(elapsed_s, duration_s), 0.0)
        progress.done(now_s - told_s)
        told_s = now_s
        return going()

    return tell


def _check_writable(out: Path) -> None:
    """Check the file before an hour's sending. It is not created: a file that exists means that outcomes were
    written."""
    try:
        if out.exists():
            out.open("a").close()
        else:
            out.touch(exist_ok=False)
            out.unlink()
    except OSError as error:
        fail(f"--out: {out}: {error.strerror or error} (name a file that can be written)")


def _check_ecn(wanted: bool) -> None:
    from echelon.lab.traffic.replay import HOW, asks_for_ecn

    if wanted and not asks_for_ecn():
        fail(f"--ecn: this system does not ask for ECN ({HOW})", FAILED)


def _addresses(fabric: Path | None, hosts: Sequence[str]) -> dict[str, tuple[str, int]]:
    from echelon.lab.traffic.wire import DEFAULT_PORT
    from echelon.quantities import shown

    addresses: dict[str, tuple[str, int]] = {}
    if fabric is not None:
        from echelon.fabric.load import load_fabric

        addresses = {name: (host.ipv4, DEFAULT_PORT) for name, host in load_fabric(fabric).hosts.items()}
    for text in hosts:
        name, equals, address = text.partition("=")
        if not equals or not name:
            fail(f"--host: {shown(text)} is not a host (write NAME=ADDRESS)")
        addresses[name] = _address("--host", address)
    return addresses


def _address(option: str, text: str) -> tuple[str, int]:
    import ipaddress

    from echelon.lab.traffic.wire import DEFAULT_PORT
    from echelon.quantities import shown

    address, colon, port = text.partition(":")
    try:
        number = int(port) if colon else DEFAULT_PORT
        if not 0 <= number <= 65535:
            raise ValueError
        return str(ipaddress.IPv4Address(address)), number
    except ValueError:
        fail(f"{option}: {shown(text)} is not an address (write it as 10.0.0.1 or 10.0.0.1:{DEFAULT_PORT})")


def _report(replay: Replay, length_s: float, capacity_bps: int | None, ecn: bool) -> None:
    whole = replay.summary(capacity_bps)
    late = replay.lateness_s
    reasons = Counter(outcome.failed for outcome in replay.outcomes if outcome.failed)
    from echelon.lab.traffic.outcome import percentile

    times = f"mean {figures.duration(whole.mean_completion_s)}, median {figures.duration(whole.p50_completion_s)}"
    tables.pairs(
        [
            ("offered load", _rate(whole.offered_bps)),
            ("achieved load", f"{_rate(whole.achieved_bps)}, {_share(whole)}"),
            ("flows", str(whole.flows)),
            ("unfinished", str(whole.unfinished) if whole.unfinished else ""),
            ("failed", ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())),
            ("left out", f"{replay.not_due} (stopped before their start)" if replay.not_due else ""),
            ("with ECN", str(replay.ecn_flows) if ecn or replay.ecn_flows else ""),
            ("completion time", f"{times}, 99 % {figures.duration(whole.p99_completion_s)}"),
            ("slowdown", f"{whole.mean_slowdown:.3g} in the mean" if whole.mean_slowdown else ""),
            (
                "started late by",
                f"median {figures.duration(percentile(late, 50))}, 99 % {figures.duration(percentile(late, 99))},"
                f" at most {figures.duration(late[-1])}"
                if late
                else "",
            ),
        ]
    )
    columns = [tables.Column(title, right=True) for title in ("from", "flows", "offered", "achieved", "mean time")]
    tables.show(
        columns,
        [
            (
                figures.duration(from_s),
                str(part.flows),
                _rate(part.offered_bps),
                _rate(part.achieved_bps),
                figures.duration(part.mean_completion_s),
            )
            for from_s, part in replay.intervals(length_s)
        ],
        "",
    )


def _share(summary: TrafficSummary) -> str:
    return f"{summary.achieved_bps / summary.offered_bps:.2%} of it" if summary.offered_bps else "of nothing"


def _report_json(replay: Replay, length_s: float, capacity_bps: int | None, ecn: bool) -> None:
    from echelon.lab.traffic.outcome import percentile

    late = replay.lateness_s
    document = {
        **asdict(replay.summary(capacity_bps)),
        "duration_s": replay.until_s,
        "not_due": replay.not_due,
        "ecn_flows": replay.ecn_flows,
        "failures": Counter(outcome.failed for outcome in replay.outcomes if outcome.failed),
        "lateness_s": {"p50": percentile(late, 50), "p99": percentile(late, 99), "max": late[-1] if late else None},
        "intervals": [{"from_s": from_s, **asdict(part)} for from_s, part in replay.intervals(length_s)],
    }
    tables.show_json(document)


# --- generate ------------------------------------------------------------------------------------------------------

_OF_SIZES = ("sizes", "size_scale", "reading", "gaps", "draw", "seed")
MODELS = {"consistent": _OF_SIZES, "burst": (*_OF_SIZES, "burst"), "long": ("parallel", "piece")}
"""The options of each model, besides those that all have."""


@app.command()
def generate(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help=f"The model: {', '.join(MODELS)}.", metavar="MODEL")],
    load: Annotated[str, typer.Option(help="Payload of all flows together, e.g. 20Mbit/s.", metavar="RATE")],
    duration: Annotated[str, typer.Option(help="Length of the schedule, e.g. 10s.", metavar="TIME")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.", metavar="FILE.csv")],
    src: Annotated[
        list[str],
        typer.Option("--src", help="A host that sends; repeatable. Every source sends to every destination."),
    ],
    dst: Annotated[list[str], typer.Option("--dst", help="A host that receives; repeatable.")],
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Distribution of sizes: a name (see echelon traffic sizes) or a file. Default: web_search.",
            metavar="NAME",
        ),
    ] = None,
    size_scale: Annotated[
        str | None, typer.Option(help="Factor of all sizes, e.g. 0.01 or 1/100. Default: 1.", metavar="FACTOR")
    ] = None,
    reading: Annotated[
        str | None,
        typer.Option(
            help="How to read the distribution: points (only sizes in its table; the default) or linear (also sizes "
            "between them)."
        ),
    ] = None,
    gaps: Annotated[
        str | None,
        typer.Option(
            help="Distribution of the gaps between starts: exponential (the default), or poisson as printed in the "
            "thesis."
        ),
    ] = None,
    draw: Annotated[
        str | None,
        typer.Option(
            "--draw",
            help="matched (the default): the schedule has the requested load; printed: as in the thesis, where the "
            "load is random.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed for all random choices. The same seed gives the same schedule. Default: 0.", min=0),
    ] = None,
    burst: Annotated[
        str | None,
        typer.Option(help="Length of a burst; the period is ten times as long. Default: 1ms.", metavar="TIME"),
    ] = None,
    parallel: Annotated[
        int | None, typer.Option(help="Total number of long flows; they share the load. Default: 4.", min=1)
    ] = None,
    piece: Annotated[
        str | None,
        typer.Option(
            help="Length of the pieces into which a long flow's load is divided. Default: 1s.", metavar="TIME"
        ),
    ] = None,
    as_json: tables.AsJson = False,
) -> None:
    """Draw a schedule of flows and write it to a file.

    consistent: flows of random sizes at random times (Algorithm 1 of the thesis). burst: 30 % of the bytes in a tenth
    of the time (Algorithm 2). long: flows like iperf's, from the beginning to the end, each at a fixed rate.

    Example: echelon traffic generate consistent --load 20Mbit/s --duration 10s --src h1 --dst h2 -o flows.csv
    """
    from echelon.documents import suggestion
    from echelon.lab.traffic import models

    if model not in MODELS:
        fail(f"echelon traffic generate: unknown model '{model}' ({suggestion(model, MODELS)})")
    for name in {name for names in MODELS.values() for name in names} - set(MODELS[model]):
        if context.params[name] is not None:
            known = ", ".join(f"--{option.replace('_', '-')}" for option in MODELS[model])
            fail(f"--{name.replace('_', '-')}: does not go with model '{model}' (it has {known})")
    kind: Any = {of.name: of for of in (models.Consistent, models.Burst, models.Long)}[model]
    with _one_line_errors():
        arguments: dict[str, Any] = {}
        if "sizes" in MODELS[model]:
            distribution = _sizes(sizes or "web_search", size_scale or "1", reading or "points")
            arguments = {"sizes": distribution, "gaps": gaps or "exponential", "draw": draw or "matched"}
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
    from echelon.quantities import rate_bps

    return _option("--load", rate_bps, text)


def _microseconds(name: str, text: str) -> int:
    from echelon.quantities import duration_s

    return round(_option(name, duration_s, text) * 10**6)


def _sizes(name: str, scale: str, reading: str) -> SizeDistribution:
    from echelon.documents import suggestion
    from echelon.lab.traffic.sizes import READINGS, load_sizes
    from echelon.quantities import number, shown

    if reading not in READINGS:
        fail(f"--reading: {shown(reading)} is not known ({suggestion(reading, READINGS)})")
    return _option("--size-scale", load_sizes(name, reading).scaled, _option("--size-scale", number, scale))


def _model(name: str, make: Callable[[], T]) -> T:
    """Return what `make` makes of the options of a model; report its errors with the model's name."""
    try:
        return make()
    except ValueError as error:
        fail(f"echelon traffic generate {name}: {error}")


def _generate(model: TrafficModel, duration: str, seed: int, out: Path, as_json: bool) -> None:
    from random import Random

    from echelon.lab.traffic.schedule import Schedule, write_schedule

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
        f"{out}: {len(schedule.flows)} flows in {figures.duration(schedule.duration_us / 1e6)}, offered load"
        f" {_rate(schedule.offered_bps)}, {schedule.offered_bps / model.load_bps:.2%} of {_rate(model.load_bps)}"
    )


def _rate(bits_per_second: float) -> str:
    """Return a rate to four significant digits."""
    return figures.rate(int(float(f"{bits_per_second:.4g}")))
