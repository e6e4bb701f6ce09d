"""Random and mutated packets through compiled programs with random entries: no exception, every
packet accounted for.

A first part of a program's packets is traced step by step; those that reach a part of the program
that none before them did become the corpus from which most later packets are made, by changing
them. The others are made by walking the program's parser, half of them with the values of an
entry's key. While packets pass, entries change, time goes on, and queues are now short, now long.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from softswitch import Queued, Switch
from softswitch.v1model import RESUBMIT_LIMIT
from tests.differential.walk import packets as walk
from tests.soak.aiming import Aim
from tests.soak.configuration import Configuration
from tests.soak.coverage import Reach
from tests.soak.memory import FLAT, LEAK, growth, objects, resident_bytes
from tests.soak.mutation import Corpus, with_ipv4_checksum
from tests.soak.specimens import Specimen, specimens

TRACED = 0.4
"""Share of a program's packets that are traced to find the corpus."""
WARM = 0.4
"""Share of a program's packets after which its memory is taken as what it needs."""
MUTATED = 0.55
"""Share of packets that are made from the corpus."""
_BATCH = 50


class FuzzError(AssertionError):
    """A packet showed a fault of the switch; the message says how to make it again."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a program's packets."""

    program: str
    packets: int = 0
    copies: int = 0
    """packets that the switch made itself: clones, multicast, what recirculation added"""
    sent: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """by reason; a packet may be dropped after its clone was made"""
    reached: float = 0.0
    """share of the program's parts that ran at least once while packets were traced"""
    corpus: int = 0
    memory_before: int = 0
    """bytes, after `WARM` of the packets"""
    memory_after: int = 0
    kept: float = 0.0
    """objects that exist after the last packet and did not after `WARM` of them, per packet
    between
    """

    @property
    def grown(self) -> float:
        return growth(self.memory_before, self.memory_after)


class Driver:
    """A driver that passes packets through a switch, in and out of its queues, and keeps account of
    them.
    """

    def __init__(self, switch: Switch, rng: random.Random) -> None:
        self._switch = switch
        self._rng = rng
        self.now_ns = 0
        self.packets = self.copies = self.sent = self.refused = 0

    def pass_through(self, port: int, data: bytes) -> None:
        """Pass one packet, and all that comes of it.

        Raises FuzzError if something of it vanishes uncounted.
        """
        switch, rng = self._switch, self._rng
        self.packets += 1
        self.now_ns += rng.choice((0, 1, 999, 1000, 10**6, 10**9, 1 << 45))
        waiting = self._ingress(lambda: switch.ingress(port, data, self.now_ns))
        passes = 0
        while waiting:
            passes += 1
            following: list[Queued] = []
            for queued in waiting:
                if passes > RESUBMIT_LIMIT:
                    self.refused += 1
                else:
                    following += self._egress(queued)
            waiting = following

    def _ingress(self, call: Callable[[], list[Queued]]) -> Sequence[Queued]:
        dropped = self._dropped()
        queued = call()
        if not queued and self._dropped() == dropped:
            raise FuzzError("a packet ended in ingress and no drop was counted")
        self.copies += max(0, len(queued) - 1)
        return queued

    def _egress(self, queued: Queued) -> list[Queued]:
        switch, rng = self._switch, self._rng
        begin_ns = self.now_ns
        self.now_ns += rng.choice((0, 1000, 10**7, 1 << 43))
        dropped = self._dropped()
        left = 0
        following: list[Queued] = []
        for departure in switch.egress(
            queued, begin_ns, self.now_ns, rng.randrange(70), rng.choice((0, 3, 1 << 20))
        ):
            if departure.packet is not None:
                if (
                    not isinstance(departure.packet, bytes)
                    or not 0 <= departure.port <= switch.max_port
                ):
                    raise FuzzError(f"{departure!r} left")
                left += 1
            following += departure.requeue
        self.sent += left
        made = left + len(following)
        if not made and self._dropped() == dropped:
            raise FuzzError("a packet ended in egress and no drop was counted")
        self.copies += max(0, made - 1)
        return following

    def _dropped(self) -> int:
        return sum(self._switch.stats.dropped.values())

    def check(self) -> None:
        """Check that the switch's own counts and ours agree."""
        stats = self._switch.stats
        outside = stats.dropped.get("ingress port out of range", 0)
        if (stats.packets_in + outside, stats.packets_out) != (self.packets, self.sent):
            raise FuzzError(
                f"the switch counts {stats.packets_in} packets in and {stats.packets_out} out, "
                f"there were {self.packets - outside} and {self.sent}"
            )


def fuzz(
    specimen: Specimen, count: int, seed: int, advance: Callable[[int], None] = lambda _done: None
) -> Outcome:
    """Put `count` packets through a program; `advance(packets)` is called now and then with what
    was done since.

    Raises FuzzError, with the program, the seed, the packet and its number, for the first fault.
    """
    rng = random.Random(f"{seed} {specimen.name}")
    program = specimen.load()
    reach = Reach(program.ir)
    switch = Switch(program, seed=seed, tracer=reach)
    vocabulary = Aim(program.ir, rng)
    configuration = Configuration(switch, vocabulary, rng)
    configuration.write()
    fresh = walk(program.ir, vocabulary, rng)
    driver, corpus = Driver(switch, rng), Corpus(rng)
    outcome = Outcome(specimen.name)
    thought_of = specimen.packets()
    traced, warm, held = int(count * TRACED), int(count * WARM), 0
    for number in range(count):
        if number == traced:
            switch.ingress = partial(program.interpreter.ingress, switch, None)
            switch.egress = partial(program.interpreter.egress, switch, None)
        if number == warm:
            outcome.memory_before, held = resident_bytes(), objects()
        if number % _BATCH == _BATCH - 1:
            configuration.change()
            advance(_BATCH)
        if number < len(thought_of):
            data = thought_of[number]
        else:
            if len(corpus) and rng.random() < MUTATED:
                data = corpus.mutated()
            else:
                if rng.random() < 0.5:
                    vocabulary.at_any_entry(switch)
                else:
                    vocabulary.at_nothing()
                data = next(fresh)
            if rng.random() < 0.8:
                data = with_ipv4_checksum(data)
        port = _port(rng, switch.max_port)
        try:
            if number >= traced:
                driver.pass_through(port, data)
            elif reach.is_new(lambda port=port, data=data: driver.pass_through(port, data)):  # type: ignore[misc]
                corpus.add(data)
        except Exception as error:
            what = error if isinstance(error, FuzzError) else f"{type(error).__name__}: {error}"
            raise FuzzError(
                f"{specimen.name}: {what}\n(packet {number} of seed {seed}, to port {port}:"
                f" {data.hex() or 'no bytes'})"
            ) from error
    driver.check()
    advance(count % _BATCH)
    outcome.memory_after, outcome.kept = resident_bytes(), (objects() - held) / max(1, count - warm)
    outcome.packets, outcome.copies, outcome.sent = driver.packets, driver.copies, driver.sent
    outcome.dropped = dict(sorted(switch.stats.dropped.items()))
    if driver.refused:
        outcome.dropped["recirculated too often"] = driver.refused
    outcome.reached, outcome.corpus = reach.share, len(corpus)
    return outcome


def _port(rng: random.Random, highest: int) -> int:
    return (
        rng.choice((0, 1, 2, 3, highest))
        if rng.random() < 0.99
        else rng.choice((-1, highest + 1, 1 << 20))
    )


# -- the command -----------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--packets", type=int, default=100_000, metavar="N", help="in all (default %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="of packets and entries (default %(default)s)"
    )
    parser.add_argument(
        "--program", action="append", metavar="NAME", help="only this one; may be repeated"
    )


def run(options: argparse.Namespace) -> int:
    """Print the table; 0 if there is no fault and memory stays flat, else 1."""
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table as Printed

    known = {specimen.name: specimen for specimen in specimens()}
    for name in options.program or ():
        if name not in known:
            print(f"--program: there is no {name!r}; there are {', '.join(known)}", file=sys.stderr)
            return 1
    chosen = [
        specimen
        for name, specimen in known.items()
        if not options.program or name in options.program
    ]
    table = Printed(
        "program", "in", "copies", "out", "dropped, by reason", "parts reached", "memory before", "after",
        "objects kept per packet",
        title=f"packet fuzz, seed {options.seed}",
    )  # fmt: skip
    share, rest = divmod(options.packets, len(chosen))
    outcomes: list[Outcome] = []
    try:
        with Progress(console=Console(stderr=True)) as progress:
            task = progress.add_task("packets", total=options.packets)
            for number, specimen in enumerate(chosen):
                progress.update(task, description=specimen.name)
                count = share + (number < rest)
                outcomes.append(
                    fuzz(specimen, count, options.seed, lambda done: progress.advance(task, done))
                )
    except FuzzError as error:
        print(error, file=sys.stderr)
        return 1
    for outcome in outcomes:
        table.add_row(*_row(outcome))
    worst = max(outcomes, key=lambda outcome: outcome.grown)
    leakiest = max(outcomes, key=lambda outcome: outcome.kept)
    table.add_section()
    table.add_row("all", f"{sum(o.packets for o in outcomes):,}", f"{sum(o.copies for o in outcomes):,}",
                  f"{sum(o.sent for o in outcomes):,}", "", "", "", "", "")  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 132).print(table)
    print(
        f"memory grew by at most {worst.grown:+.1%} ({worst.program}), "
        f"objects by at most {leakiest.kept:.3f} per packet ({leakiest.program})"
    )
    return int(worst.grown > FLAT or leakiest.kept > LEAK)


def _row(outcome: Outcome) -> list[str]:
    return [
        outcome.program,
        f"{outcome.packets:,}",
        f"{outcome.copies:,}",
        f"{outcome.sent:,}",
        "\n".join(f"{reason}: {count:,}" for reason, count in outcome.dropped.items()),
        f"{outcome.reached:.0%}",
        f"{outcome.memory_before / 1e6:.1f} MB",
        f"{outcome.memory_after / 1e6:.1f} MB ({outcome.grown:+.1%})",
        f"{outcome.kept:.3f}",
    ]
