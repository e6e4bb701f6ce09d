"""`make bench-switch`: lossless rate, latency and entries per second of softswitch and BMv2.

    python -m bench.switch                 both columns; ours alone where BMv2 is not installed
    python -m bench.switch --quick         one round instead of three
    python -m bench.switch --check         only whether what we forward is right: a few seconds
    python -m bench.switch --writes        what is lost while a controller writes, and a million routes
    python -m bench.switch --shares        port rate, strict levels and weights of softswitch in real time

Needs root, for a network namespace of its own. Figures of different machines do not compare: look
at the ratio.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from echelon.switches.southbound.errors import SouthboundError

from . import network, shares, speed, writing
from .lossless import GRACE_S, LOSS_LIMIT, GeneratorLimitError, Search
from .sink import CaptureError
from .targets import BMV2, TARGETS, Target, TargetError

_ROUNDS = 3
_SHARE_SECONDS = 5.0
_WRITES_PER_S = (10_000.0, 50_000.0, 100_000.0)
_PROGRAMS = Path(__file__).parents[1] / "programs"
_ENTRIES = 50_000
_FILE_COLUMNS = 150
_ERRORS = (
    network.NetworkError,
    TargetError,
    SouthboundError,
    speed.WrongForwardingError,
    GeneratorLimitError,
    CaptureError,
    shares.NothingArrivedError,
)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    try:
        if not network.is_private():
            if arguments is None:
                words = sys.argv[1:]
            else:
                words = arguments
            return network.run_private(["-m", "bench.switch", *words])
        network.make_pairs(speed.PAIRS)
        if options.writes:
            return _writes(options)
        if options.shares:
            return _shares(options)
        return _speed(options)
    except _ERRORS as error:
        print(f"bench-switch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.switch",
        description=(__doc__ or "").split("\n")[0],
    )
    names = [target.name for target in TARGETS]
    parser.add_argument(
        "--target",
        action="append",
        choices=names,
        help="only this one (may be repeated)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=_ROUNDS,
        help=f"searches of each rate (default {_ROUNDS})",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one round, and a coarser search",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="no search: look at what comes out of ours, and its cost",
    )
    parser.add_argument(
        "--shares",
        action="store_true",
        help="measure port rate and shares instead of speed",
    )
    parser.add_argument(
        "--writes",
        action="store_true",
        help="measure writes beside traffic, and a million routes",
    )
    parser.add_argument(
        "--case",
        action="append",
        choices=[c.name for c in shares.CASES],
        help="of --shares: only this",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=_SHARE_SECONDS,
        help=f"of --shares: of each case (default {_SHARE_SECONDS:g})",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON instead of a table",
    )
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds and --seconds must be above zero")
    return options


@contextmanager
def _progress(steps: int) -> Iterator[tuple[Callable[[str], None], Callable[[str], None]]]:
    """Show a bar on the terminal's standard error that moves on at each call of the first yielded
    function. The second prints a line above it, also where there is no terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("starting", total=steps)
        done = -1

        def step(label: str) -> None:
            nonlocal done
            done += 1
            bar.update(
                task,
                description=label,
                completed=done,
            )

        yield (
            step,
            partial(
                bar.console.print,
                highlight=False,
                soft_wrap=True,
            ),
        )


def _console() -> Console:
    """Return a console on standard output, wide enough for the tables if that is a file."""
    return Console(width=None if sys.stdout.isatty() else _FILE_COLUMNS)


# -- speed -----------------------------------------------------------------------------------------


def _speed(options: argparse.Namespace) -> int:
    if options.target:
        wanted = [target for target in TARGETS if target.name in options.target]
    elif options.check:
        wanted = [target for target in TARGETS if target is not BMV2]
    else:
        wanted = list(TARGETS)
    targets = [target for target in wanted if target.path() is not None]
    missing = [target for target in wanted if target not in targets]
    if not targets:
        executables = ", ".join(target.executable for target in missing)
        raise TargetError(f"{executables}: not installed")
    if options.quick:
        search = Search(confirmations=2, resolution=0.05)
    else:
        search = Search()
    if options.check:
        return _check(targets)
    tables = speed.EntryLoad(
        _PROGRAMS / "tables.p4info.txtpb",
        _PROGRAMS / "tables.json",
        speed.LOAD_TABLES,
        _ENTRIES,
    )
    if options.quick:
        rounds = 1
    else:
        rounds = options.rounds
    bench = speed.Speed(targets, rounds, search, tables)
    workloads = speed.default_workloads()
    with _progress(bench.steps(workloads)) as (progress, report):
        results = bench.run(workloads, progress, report)
    if options.json:
        print(json.dumps(_plain(results)))
    else:
        print_speed(results, targets, missing)
    return 0


def _check(targets: Sequence[Target]) -> int:
    """Print the cost of a packet in each case.

    Raise WrongForwardingError if one comes out wrong.
    """
    bench = speed.Speed(targets, 1, None, None)
    workloads = speed.default_workloads()
    with _progress(bench.steps(workloads)) as (progress, _):
        bench.run(workloads, progress, partial(print, flush=True))
    return 0


def _plain(results: speed.Results) -> dict[str, object]:
    return {
        "lossless_pps": [
            {
                **dataclasses.asdict(point),
                "target": target,
                "placement": placement.name,
                "rounds": rates,
            }
            for point, by_target in results.searched.items()
            for target, by_placement in by_target.items()
            for placement, rates in by_placement.items()
        ],
        "processor_ns": [
            {**dataclasses.asdict(point), "target": target, "measured": costs}
            for point, by_target in results.processor_ns.items()
            for target, costs in by_target.items()
        ],
        "latency": [
            {
                **dataclasses.asdict(point),
                "target": target,
                "placement": placement.name,
                **dataclasses.asdict(measured),
            }
            for point, by_target in results.latencies.items()
            for target, by_placement in by_target.items()
            for placement, rounds in by_placement.items()
            for measured in rounds
        ],
        "entries_per_s": [
            {"table": table, "target": target, "rounds": rates}
            for table, by_target in results.entries_per_s.items()
            for target, rates in by_target.items()
        ],
        "settings": results.settings,
        "limits": results.limits,
    }


def print_speed(
    results: speed.Results,
    targets: Sequence[Target],
    missing: Sequence[Target],
) -> None:
    names = [target.name for target in targets]
    console = _console()
    table = Table(
        "program", "packet bytes", title=f"Lossless rate, packets/s (loss ≤ {LOSS_LIMIT:.1%})"
    )
    _add_columns(table, names)
    for point in results.searched:
        rates = {name: results.best(point, name)[1] for name in names}
        table.add_row(point.program, str(point.frame_bytes), *_cells(rates, names))
    console.print(table)
    _print_placements(results, names, console)
    table = Table(
        "program", "packet bytes", title="Processor time per packet at half of that rate, ns"
    )
    _add_columns(table, names)
    for point, by_target in results.processor_ns.items():
        table.add_row(point.program, str(point.frame_bytes), *_cells(by_target, names))
    console.print(table)
    _print_latencies(results, names, console)
    table = Table("table", title="Entries written/s (P4Runtime, batches of 1000)")
    switches = [target.name for target in targets if target.is_switch]
    _add_columns(table, switches)
    for name, by_target in results.entries_per_s.items():
        table.add_row(name, *_cells(by_target, switches))
    if switches:
        console.print(table)
    for name, settings in results.settings.items():
        console.print(f"{name}: {settings}", highlight=False)
    console.print(
        "Median of the rounds (lowest to highest). A packet that leaves more than"
        f" {GRACE_S * 1e3:g} ms after the last one was sent counts as lost.",
        highlight=False,
    )
    for limited in results.limits:
        console.print(f"At least, because the generator sends no more: {limited}", highlight=False)
    for target in missing:
        console.print(f"{target.name}: {target.executable} is not installed", highlight=False)


def _print_placements(
    results: speed.Results,
    names: Sequence[str],
    console: Console,
) -> None:
    """Print the results of each placement; the table above has the better one."""
    placements = speed.placements()
    table = Table(
        "program",
        "packet bytes",
        "switch",
        title="The same by the processors that switch and generator may use",
    )
    for placement in placements:
        table.add_column(placement.name, justify="right")
    for point, by_target in results.searched.items():
        for name in names:
            cells = [
                f"{statistics.median(by_target[name][placement]):,.0f}" for placement in placements
            ]
            table.add_row(point.program, str(point.frame_bytes), name, *cells)
    console.print(table)


def _print_latencies(
    results: speed.Results,
    names: Sequence[str],
    console: Console,
) -> None:
    """Print the medians of each target's percentiles, with the placement that suits it best."""
    table = Table(
        "program", "packet bytes", title="One-way latency at half of that rate, us: p50 / p99"
    )
    for name in names:
        table.add_column(name, justify="right")
    for point, by_target in results.latencies.items():
        cells = []
        for name in names:
            placement, _ = results.best(point, name)
            latencies = by_target[name][placement]
            p50_us = statistics.median(latency.p50_ns for latency in latencies) / 1e3
            p99_us = statistics.median(latency.p99_ns for latency in latencies) / 1e3
            cells.append(f"{p50_us:,.1f} / {p99_us:,.1f}")
        table.add_row(point.program, str(point.frame_bytes), *cells)
    console.print(table)


def _add_columns(table: Table, names: Sequence[str]) -> None:
    first, *rivals = names
    ratios = [f"{first} / {rival}" for rival in rivals]
    for name in (*names, *ratios):
        table.add_column(name, justify="right")


def _cells(by_target: Mapping[str, Sequence[float]], names: Sequence[str]) -> list[str]:
    medians = [statistics.median(by_target[name]) for name in names]
    cells = []
    for name, median in zip(names, medians, strict=True):
        rounds = by_target[name]
        if len(rounds) > 1:
            spread = f" ({min(rounds):,.0f} to {max(rounds):,.0f})"
        else:
            spread = ""
        cells.append(f"{median:,.0f}{spread}")
    first, *rivals = medians
    for median in rivals:
        cells.append(f"{first / median:.2f}" if median else "-")
    return cells


# -- writes ----------------------------------------------------------------------------------------


def _writes(options: argparse.Namespace) -> int:
    for target in TARGETS:
        is_wanted = not options.target or target.name in options.target
        if not target.is_switch or target.path() is None or not is_wanted:
            continue
        for placement in speed.placements():
            for per_second in _WRITES_PER_S:
                measured = writing.writes_beside_traffic(
                    target, placement, per_second, options.seconds, print
                )
                print(f"{target.name}, {placement.name}: {writing.in_words(measured)}", flush=True)
        filled = writing.fill(target, _PROGRAMS / "tables.p4info.txtpb", _PROGRAMS / "tables.json")
        rate = filled.rate
        route_bytes = (filled.after_bytes - filled.before_bytes) / rate.count
        print(
            f"{target.name}: {rate.count:,} routes at {rate.per_second:,.0f} a second,"
            f" {route_bytes:.0f} bytes each",
            flush=True,
        )
    return 0


# -- shares ----------------------------------------------------------------------------------------


def _shares(options: argparse.Namespace) -> int:
    cases = [case for case in shares.CASES if not options.case or case.name in options.case]
    with _progress(len(cases)) as (progress, _):
        outcomes = shares.measure(cases, options.seconds, progress)
    if options.json:
        print(
            json.dumps(
                [{**dataclasses.asdict(o), "error": o.error, "holds": o.holds} for o in outcomes]
            )
        )
    else:
        _print_shares(outcomes, options.seconds)
    if all(outcome.holds for outcome in outcomes):
        return 0
    return 1


def _print_shares(outcomes: Sequence[shares.Outcome], seconds: float) -> None:
    title = (
        f"softswitch, a port of {shares.PORT_RATE_BPS / 1e6:g} Mbit/s, {seconds:g} s each; Mbit/s"
    )
    table = Table("case", "queue", "level", "weight", "packet bytes", title=title)
    for name in ("offered", "expected", "measured", "error", "limit"):
        table.add_column(name, justify="right")
    last = ""
    for o in outcomes:
        if last and o.case != last:
            table.add_section()
        table.add_row(
            o.case if o.case != last else "",
            *map(str, (o.queue, o.level, o.weight, o.frame_bytes)),
            f"{o.offered_bps / 1e6:.3f}",
            f"{o.expected_bps / 1e6:.3f}",
            f"{o.measured_bps / 1e6:.3f}",
            f"{o.error:+.2%}",
            f"{o.limit:.0%}" + ("" if o.holds else " exceeded"),
        )
        last = o.case
    _console().print(table)


if __name__ == "__main__":
    sys.exit(main())
