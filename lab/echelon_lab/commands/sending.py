"""`echelon traffic send` and `receive`: schedules over real sockets."""

from __future__ import annotations

import ipaddress
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from echelon.cli import figures, tables
from echelon.cli.progress import ShownProgress
from echelon.cli.usage import FAILED, fail
from echelon.model.fabric.load import load_fabric
from echelon.model.progress import CommandProgress
from echelon.model.quantities import duration_s, rate_bps, shown
from echelon_lab.commands.traffic import one_line_errors, option, rate, read
from echelon_lab.traffic import replay as replays
from echelon_lab.traffic.outcome import TrafficSummary, percentile, write_outcomes
from echelon_lab.traffic.replay import DEFAULT_PROCESSES, HOW, Replay, SendOptions, asks_for_ecn
from echelon_lab.traffic.schedule import DEFAULT_PORT
from echelon_lab.traffic.sender import SocketOptions

_MOST_S = 1e9
_MOST_INTERVALS = 10**5

Processes = Annotated[
    int | None, typer.Option(help="Number of processes that share the work.", min=1, max=256)
]


def receive(
    listen: Annotated[
        str, typer.Option(help="Address to receive at.", metavar="ADDRESS[:PORT]")
    ] = "0.0.0.0",
    processes: Processes = None,
    as_json: tables.AsJson = False,
) -> None:
    """Receive what `echelon traffic send` sends, until interrupted (Ctrl-C or SIGTERM).

    Example: echelon traffic receive
    """
    with one_line_errors(), _interruptible() as going:
        address, port = _address("--listen", listen)

        def ready(port: int) -> None:
            typer.echo(f"receiving at {address}:{port}", err=as_json)
            sys.stdout.flush()

        seen = replays.receive(address, port, processes or DEFAULT_PROCESSES, ready, going)
        if as_json:
            tables.show_json(seen)
            return
        if seen.broken:
            broken = f", {seen.broken} connections ended early"
        else:
            broken = ""
        typer.echo(f"received {seen.transfers} flows, {figures.size(seen.total_bytes)}{broken}")


def send(
    file: Annotated[Path, typer.Argument(help="The schedule.", metavar="FILE.csv")],
    sources: Annotated[
        list[str],
        typer.Option(
            "--from",
            help=(
                "Send the flows of this host, which must be the one that runs the command;"
                " repeatable."
            ),
        ),
    ],
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="Address of a host of the schedule; repeatable.", metavar="NAME=ADDRESS[:PORT]"
        ),
    ] = None,
    fabric: Annotated[
        Path | None, typer.Option(help="Take addresses of hosts from this fabric file.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Write the outcome of every flow to this file.",
            metavar="OUTCOMES.csv",
        ),
    ] = None,
    processes: Processes = None,
    wait: Annotated[
        str,
        typer.Option(
            help="How long flows may continue after the end of the schedule.", metavar="TIME"
        ),
    ] = "10s",
    begin: Annotated[
        float | None,
        typer.Option(
            help=(
                "Time 0, in seconds of this machine's monotonic clock; without, as soon as"
                " possible."
            )
        ),
    ] = None,
    interval: Annotated[
        str, typer.Option(help="Report the load by intervals of this length.", metavar="TIME")
    ] = "1s",
    capacity: Annotated[
        str | None,
        typer.Option(
            help="Capacity of the bottleneck: report by how much longer flows took than alone.",
            metavar="RATE",
        ),
    ] = None,
    ecn: Annotated[
        bool,
        typer.Option(
            "--ecn", help="Check that the system asks for ECN, and count flows that have it."
        ),
    ] = False,
    congestion: Annotated[
        str | None,
        typer.Option(help="The system's congestion control to use, e.g. reno.", metavar="NAME"),
    ] = None,
    dscp: Annotated[
        int | None, typer.Option(help="DSCP of all packets sent.", min=0, max=63)
    ] = None,
    as_json: tables.AsJson = False,
) -> None:
    """Send a schedule's flows over TCP, each when it is due, and report offered against achieved load.

    Status 1 means that flows failed. If interrupted (Ctrl-C or SIGTERM), it reports what was sent
    by then.

    Example: echelon traffic send flows.csv --from h1
    """

    with one_line_errors(), _interruptible() as going:
        length_s = float(option("--interval", duration_s, interval))
        if not length_s:
            fail("--interval: '0' is too short (write for example 1s)")
        if capacity is None:
            capacity_bps = None
        else:
            capacity_bps = option("--capacity", rate_bps, capacity)
        if capacity_bps == 0:
            fail("--capacity: '0' carries nothing (write for example 10Mbit/s)")
        if begin is not None and not 0 <= begin <= _MOST_S:
            fail(
                f"--begin: {begin:g} is not a time of the monotonic clock (give seconds, from 0 on)"
            )
        _check_ecn(ecn)
        addresses = _addresses(fabric, host or [])
        schedule = read(file)
        if schedule.duration_us > _MOST_INTERVALS * length_s * 1e6:
            fail(
                f"--interval: {interval} makes more than {_MOST_INTERVALS} lines (give a longer"
                " one)"
            )
        if out is not None:
            _check_writable(out)
        options = SendOptions(
            processes or DEFAULT_PROCESSES,
            SocketOptions(dscp, congestion),
            None if begin is None else round(begin * 1e9),
            float(option("--wait", duration_s, wait)),
        )
        with ShownProgress() as progress:
            tell = _teller(progress, schedule.duration_us / 1e6, going)
            replay = replays.send(schedule, sources, addresses, options, tell)
        if out is not None:
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
            # Not sooner: the processes have been forked by now, so a thread that shows it does no
            # harm.
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
    """Check the file before an hour's sending. It is not created: a file that exists means that
    outcomes were written."""
    try:
        if out.exists():
            out.open("a").close()
        else:
            out.touch(exist_ok=False)
            out.unlink()
    except OSError as error:
        fail(f"--out: {out}: {error.strerror or error} (name a file that can be written)")


def _check_ecn(wanted: bool) -> None:

    if wanted and not asks_for_ecn():
        fail(f"--ecn: this system does not ask for ECN ({HOW})", FAILED)


def _addresses(fabric: Path | None, hosts: Sequence[str]) -> dict[str, tuple[str, int]]:

    addresses: dict[str, tuple[str, int]] = {}
    if fabric is not None:
        addresses = {
            name: (host.ipv4, DEFAULT_PORT) for name, host in load_fabric(fabric).hosts.items()
        }
    for text in hosts:
        name, equals, address = text.partition("=")
        if not equals or not name:
            fail(f"--host: {shown(text)} is not a host (write NAME=ADDRESS)")
        addresses[name] = _address("--host", address)
    return addresses


def _address(option: str, text: str) -> tuple[str, int]:

    address, colon, port = text.partition(":")
    try:
        number = int(port) if colon else DEFAULT_PORT
        if not 0 <= number <= 65535:
            raise ValueError
        return str(ipaddress.IPv4Address(address)), number
    except ValueError:
        fail(
            f"{option}: {shown(text)} is not an address (write it as 10.0.0.1 or"
            f" 10.0.0.1:{DEFAULT_PORT})"
        )


def _report(replay: Replay, length_s: float, capacity_bps: int | None, ecn: bool) -> None:
    whole = replay.summary(capacity_bps)
    late = replay.lateness_s
    reasons = Counter(outcome.failed for outcome in replay.outcomes if outcome.failed)

    times = (
        f"mean {figures.duration(whole.mean_completion_s)}, median"
        f" {figures.duration(whole.p50_completion_s)}"
    )
    tables.pairs(
        [
            ("offered load", rate(whole.offered_bps)),
            ("achieved load", f"{rate(whole.achieved_bps)}, {_share(whole)}"),
            ("flows", str(whole.flows)),
            ("unfinished", str(whole.unfinished) if whole.unfinished else ""),
            ("failed", ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())),
            (
                "left out",
                f"{replay.not_due} (stopped before their start)" if replay.not_due else "",
            ),
            ("with ECN", str(replay.ecn_flows) if ecn or replay.ecn_flows else ""),
            ("completion time", f"{times}, 99 % {figures.duration(whole.p99_completion_s)}"),
            ("slowdown", f"{whole.mean_slowdown:.3g} in the mean" if whole.mean_slowdown else ""),
            (
                "started late by",
                (
                    f"median {figures.duration(percentile(late, 50))}, 99 %"
                    f" {figures.duration(percentile(late, 99))}, at most"
                    f" {figures.duration(late[-1])}"
                    if late
                    else ""
                ),
            ),
        ]
    )
    columns = [
        tables.Column(title, right=True)
        for title in ("from", "flows", "offered", "achieved", "mean time")
    ]
    tables.show(
        columns,
        [
            (
                figures.duration(from_s),
                str(part.flows),
                rate(part.offered_bps),
                rate(part.achieved_bps),
                figures.duration(part.mean_completion_s),
            )
            for from_s, part in replay.intervals(length_s)
        ],
        "",
    )


def _share(summary: TrafficSummary) -> str:
    if summary.offered_bps:
        return f"{summary.achieved_bps / summary.offered_bps:.2%} of it"
    return "of nothing"


def _report_json(replay: Replay, length_s: float, capacity_bps: int | None, ecn: bool) -> None:

    late = replay.lateness_s
    document = {
        **asdict(replay.summary(capacity_bps)),
        "duration_s": replay.until_s,
        "not_due": replay.not_due,
        "ecn_flows": replay.ecn_flows,
        "failures": Counter(outcome.failed for outcome in replay.outcomes if outcome.failed),
        "lateness_s": {
            "p50": percentile(late, 50),
            "p99": percentile(late, 99),
            "max": late[-1] if late else None,
        },
        "intervals": [
            {"from_s": from_s, **asdict(part)} for from_s, part in replay.intervals(length_s)
        ],
    }
    tables.show_json(document)
