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
from echelon.model.quantities import duration_s, excerpt, rate_bps
from echelon_lab.commands.traffic import one_line_errors, option, rate, read
from echelon_lab.traffic import replay as replays
from echelon_lab.traffic.outcome import TrafficSummary, percentile, write_outcomes
from echelon_lab.traffic.replay import DEFAULT_PROCESSES, HOW, Replay, SendOptions, asks_for_ecn
from echelon_lab.traffic.schedule import DEFAULT_PORT
from echelon_lab.traffic.sender import SocketOptions

_MOST_S = 1e9
_MOST_INTERVALS = 10**5

Processes = Annotated[
    int | None,
    typer.Option(
        help="Number of processes that share the work.",
        min=1,
        max=256,
    ),
]


ListenOption = Annotated[
    str,
    typer.Option(
        help="Address to receive at.",
        metavar="ADDRESS[:PORT]",
    ),
]


def receive(
    listen: ListenOption = "0.0.0.0",
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


FileArgument = Annotated[
    Path,
    typer.Argument(
        help="The schedule.",
        metavar="FILE.csv",
    ),
]
SourcesOption = Annotated[
    list[str],
    typer.Option(
        "--from",
        help=(
            "Send the flows of this host, which must be the one that runs the command; repeatable."
        ),
    ),
]
HostOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Address of a host of the schedule; repeatable.",
        metavar="NAME=ADDRESS[:PORT]",
    ),
]
FabricOption = Annotated[
    Path | None, typer.Option(help="Take addresses of hosts from this fabric file.")
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Write the outcome of every flow to this file.",
        metavar="OUTCOMES.csv",
    ),
]
WaitOption = Annotated[
    str,
    typer.Option(
        help="How long flows may continue after the end of the schedule.",
        metavar="TIME",
    ),
]
BeginOption = Annotated[
    float | None,
    typer.Option(
        help=("Time 0, in seconds of this machine's monotonic clock; without, as soon as possible.")
    ),
]
IntervalOption = Annotated[
    str,
    typer.Option(
        help="Report the load by intervals of this length.",
        metavar="TIME",
    ),
]
CapacityOption = Annotated[
    str | None,
    typer.Option(
        help="Capacity of the bottleneck: report by how much longer flows took than alone.",
        metavar="RATE",
    ),
]
EcnOption = Annotated[
    bool,
    typer.Option("--ecn", help="Check that the system asks for ECN, and count flows that have it."),
]
CongestionOption = Annotated[
    str | None,
    typer.Option(
        help="The system's congestion control to use, e.g. reno.",
        metavar="NAME",
    ),
]
DscpOption = Annotated[
    int | None,
    typer.Option(
        help="DSCP of all packets sent.",
        min=0,
        max=63,
    ),
]


def send(
    file: FileArgument,
    sources: SourcesOption,
    host: HostOption = None,
    fabric: FabricOption = None,
    out: OutOption = None,
    processes: Processes = None,
    wait: WaitOption = "10s",
    begin: BeginOption = None,
    interval: IntervalOption = "1s",
    capacity: CapacityOption = None,
    ecn: EcnOption = False,
    congestion: CongestionOption = None,
    dscp: DscpOption = None,
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
                f"--interval: {interval} makes more than {_MOST_INTERVALS} lines"
                " (give a longer one)"
            )
        if out is not None:
            _check_writable(out)
        begin_ns = None
        if begin is not None:
            begin_ns = round(begin * 1e9)
        options = SendOptions(
            processes or DEFAULT_PROCESSES,
            SocketOptions(dscp, congestion),
            begin_ns,
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
    progress: CommandProgress,
    duration_s: float,
    going: Callable[[], bool],
) -> Callable[[float, int, int], bool]:
    """Return a function that tells `progress` how far a replay is, and returns whether to go on."""
    told_s: float | None = None

    def tell(
        elapsed_s: float,
        finished: int,
        failed: int,
    ) -> bool:
        nonlocal told_s
        if told_s is None:
            # Not sooner: the processes have been forked by now,
            # so a thread that shows it does no harm.
            progress.stage("sending", duration_s, "seconds of the schedule")
            told_s = 0.0
        failures = ""
        if failed:
            failures = f", {failed} failed"
        progress.doing(f"{finished} flows sent{failures}")
        now_s = max(min(elapsed_s, duration_s), 0.0)
        progress.done(now_s - told_s)
        told_s = now_s
        return going()

    return tell


def _check_writable(out: Path) -> None:
    """Check the file before an hour's sending.

    It is not created: a file that exists means that outcomes were written.
    """
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
        for name, host in load_fabric(fabric).hosts.items():
            addresses[name] = host.ipv4, DEFAULT_PORT
    for text in hosts:
        name, equals, address = text.partition("=")
        if not equals or not name:
            fail(f"--host: {excerpt(text)} is not a host (write NAME=ADDRESS)")
        addresses[name] = _address("--host", address)
    return addresses


def _address(option: str, text: str) -> tuple[str, int]:

    address, colon, port = text.partition(":")
    try:
        number = DEFAULT_PORT
        if colon:
            number = int(port)
        if not 0 <= number <= 65535:
            raise ValueError
        return str(ipaddress.IPv4Address(address)), number
    except ValueError:
        fail(
            f"{option}: {excerpt(text)} is not an address"
            f" (write it as 10.0.0.1 or 10.0.0.1:{DEFAULT_PORT})"
        )


def _report(
    replay: Replay,
    length_s: float,
    capacity_bps: int | None,
    ecn: bool,
) -> None:
    tables.pairs(_facts(replay, replay.summary(capacity_bps), ecn))
    titles = ("from", "flows", "offered", "achieved", "mean time")
    rows = []
    for from_s, part in replay.intervals(length_s):
        row = (
            figures.duration(from_s),
            str(part.flows),
            rate(part.offered_bps),
            rate(part.achieved_bps),
            figures.duration(part.mean_completion_s),
        )
        rows.append(row)
    tables.show([tables.Column(title, right=True) for title in titles], rows, "")


def _facts(
    replay: Replay,
    summary: TrafficSummary,
    ecn: bool,
) -> Iterator[tuple[str, str]]:
    yield "offered load", rate(summary.offered_bps)
    yield "achieved load", f"{rate(summary.achieved_bps)}, {_share(summary)}"
    yield "flows", str(summary.flows)
    if summary.unfinished:
        yield "unfinished", str(summary.unfinished)
    reasons = Counter(outcome.failed for outcome in replay.outcomes if outcome.failed)
    yield "failed", ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    if replay.not_due:
        yield "left out", f"{replay.not_due} (stopped before their start)"
    if ecn or replay.ecn_flows:
        yield "with ECN", str(replay.ecn_flows)

    mean = figures.duration(summary.mean_completion_s)
    median = figures.duration(summary.p50_completion_s)
    high = figures.duration(summary.p99_completion_s)
    yield "completion time", f"mean {mean}, median {median}, 99 % {high}"
    if summary.mean_slowdown:
        yield "slowdown", f"{summary.mean_slowdown:.3g} in the mean"

    late_s = replay.lateness_s
    if late_s:
        median = figures.duration(percentile(late_s, 50))
        high = figures.duration(percentile(late_s, 99))
        most = figures.duration(late_s[-1])
        yield "started late by", f"median {median}, 99 % {high}, at most {most}"


def _share(summary: TrafficSummary) -> str:
    if summary.offered_bps:
        return f"{summary.achieved_bps / summary.offered_bps:.2%} of it"
    return "of nothing"


def _report_json(
    replay: Replay,
    length_s: float,
    capacity_bps: int | None,
    ecn: bool,
) -> None:

    late = replay.lateness_s
    intervals = []
    for from_s, part in replay.intervals(length_s):
        intervals.append({"from_s": from_s, **asdict(part)})
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
        "intervals": intervals,
    }
    tables.show_json(document)
