"""A day of virtual time: ten million packets through switches that change all the while, every one
accounted for.

Two leaves and a spine, six hosts that send bursts, queues of a few kilobytes with levels, weights
and rates, multicast, clones of both kinds, recirculation, resubmission, policers; once a virtual
minute a route, a queue, a port's rate or a whole pipeline is changed. Ten times an hour the books
are compared: those of the fabric (in + made = out + dropped + queued, for each switch and over
all), of the queues, and those that the P4 programs keep in counters and registers.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from softswitch.virtual import Conservation
from tests.soak.carriers import SECOND_NS, Carriers
from tests.soak.memory import FLAT, growth, objects, resident_bytes

HOUR_NS = 3600 * SECOND_NS
CHANGE_NS = 60 * SECOND_NS
CHECK_NS = HOUR_NS // 10
WARM = 0.1
"""Share of the time after which memory is taken as what the run needs."""


class SoakError(AssertionError):
    """The error when something does not add up; the message says when, and what."""


@dataclass(frozen=True)
class Report:
    """The result of a run, once all queues are empty."""

    end: Conservation
    handed_in: int
    """packets given to hosts to send"""
    checks: int
    swaps: int
    changes: int
    most_queued: int
    """packets in queues at a check"""
    memory_before: int
    """bytes"""
    memory_after: int
    objects_before: int
    objects_after: int
    """blocks of memory that Python objects hold"""

    @property
    def objects_grown(self) -> float:
        return growth(self.objects_before, self.objects_after)

    @property
    def grown(self) -> float:
        return growth(self.memory_before, self.memory_after)


def soak(
    packets: int,
    duration_ns: int,
    seed: int,
    advance: Callable[[int], None] = lambda _packets: None,
) -> Report:
    """Run `packets` packets spread over `duration_ns`; `advance(packets)` is called with what was
    sent since.

    Raises SoakError at the first check at which something does not add up.
    """
    carriers = Carriers(packets, duration_ns, seed)
    loop = carriers.loop
    checks = most_queued = memory_before = objects_before = 0
    told = 0
    next_check_ns = CHECK_NS
    while loop.now_ns < duration_ns:
        loop.run(until_ns=min(duration_ns, loop.now_ns + CHANGE_NS))
        advance(carriers.handed_in - told)
        told = carriers.handed_in
        carriers.change()
        if loop.now_ns >= next_check_ns:
            next_check_ns += CHECK_NS
            checks += 1
            _run_until_busy(carriers)
            _check(carriers)
            most_queued = max(most_queued, carriers.packets_queued)
            for node in carriers.nodes:
                node.close(loop.now_ns - CHECK_NS)
            # Hourly: in between lies the garbage of swapped pipelines, which Python collects when
            # it likes.
            if checks % 10 == 0 or not memory_before:
                memory, held = resident_bytes(), objects()
                if not memory_before and loop.now_ns >= WARM * duration_ns:
                    memory_before, objects_before = memory, held
    loop.run()
    advance(carriers.handed_in - told)
    _check(carriers)
    end = carriers.fabric.conservation()
    if end.in_flight or any(account.queued for account in end.switches):
        raise SoakError(
            f"at the end {end.in_flight} packets are on wires, and queues are not empty"
        )
    if end.host_sent != carriers.handed_in:
        raise SoakError(f"hosts were given {carriers.handed_in} packets and sent {end.host_sent}")
    return Report(
        end,
        carriers.handed_in,
        checks + 1,
        sum(node.swaps for node in carriers.nodes),
        sum(node.changes for node in carriers.nodes),
        most_queued,
        memory_before,
        resident_bytes(),
        objects_before,
        objects(),
    )


def _run_until_busy(carriers: Carriers) -> None:
    """Go on to where queues are not empty, so that a check sees packets that wait."""
    while (
        carriers.packets_queued < 20
        and carriers.handed_in < carriers.budget
        and carriers.loop.run(max_events=200)
    ):
        pass


def _check(carriers: Carriers) -> None:
    if faults := carriers.faults():
        raise SoakError(f"at {carriers.loop.now_ns / SECOND_NS:g} s: " + "; ".join(faults))


# -- the command -----------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--packets", type=int, default=10_000_000, metavar="N", help="(default %(default)s)"
    )
    parser.add_argument(
        "--hours", type=float, default=24, metavar="H", help="of virtual time (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="(default %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Print the table; 0 if everything adds up and memory stays flat, else 1."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("packets"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    begin = time.monotonic()
    try:
        # Without a thread of its own, which would have memory of its own.
        with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as progress:
            task = progress.add_task("packets", total=options.packets)

            shown = sent_in_all = 0

            def advance(sent: int) -> None:
                # By whole percents: rich keeps what it has laid out, thousands of lines of it.
                nonlocal shown, sent_in_all
                sent_in_all += sent
                if sent_in_all * 100 >= (shown + 1) * options.packets:
                    shown = sent_in_all * 100 // options.packets
                    progress.update(task, completed=sent_in_all, refresh=True)

            report = soak(options.packets, int(options.hours * HOUR_NS), options.seed, advance)
    except SoakError as error:
        print(error, file=sys.stderr)
        return 1
    seconds = time.monotonic() - begin
    _print(report, options, seconds)
    return int(report.grown > FLAT or report.objects_grown > FLAT)


def _print(report: Report, options: argparse.Namespace, seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    end = report.end
    reasons = sorted({reason for account in end.switches for reason in account.dropped})
    table = Table(
        "switch", "in", "made", "out", *reasons, "queued", "missing",
        title=f"{report.handed_in:,} packets in {options.hours:g} hours of virtual time, seed {options.seed}",
    )  # fmt: skip
    for account in end.switches:
        dropped = [f"{account.dropped.get(reason, 0):,}" for reason in reasons]
        table.add_row(
            account.name, f"{account.packets_in:,}", f"{account.replicated:,}", f"{account.packets_out:,}",
            *dropped, f"{account.queued:,}", f"{account.missing:,}",
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 132).print(table)
    made = sum(account.replicated for account in end.switches)
    dropped_packets = sum(account.packets_dropped for account in end.switches)
    hops = sum(account.packets_in for account in end.switches)
    print(
        f"hosts sent {end.host_sent:,} + switches made {made:,} = hosts received"
        f" {end.host_received:,} + dropped {dropped_packets:,} + queued 0"
    )
    print(
        f"{report.checks} checks, {report.swaps} pipelines swapped, {report.changes} other changes,"
        f" at most {report.most_queued:,} packets queued at a check"
    )
    before, after = report.memory_before / 1e6, report.memory_after / 1e6
    print(
        f"memory {before:.1f} MB, at the end {after:.1f} MB ({report.grown:+.1%}); objects"
        f" {report.objects_before:,}, at the end {report.objects_after:,}"
        f" ({report.objects_grown:+.1%})"
    )
    print(f"{seconds:.0f} s, {hops:,} packet-hops, {hops / seconds:,.0f} a second")
