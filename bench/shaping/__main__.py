"""`python -m bench.shaping`: what leaves a port of BMv2 that the target `bmv2` shapes by an HTB
tree.

Port rate, strict levels, weights, minimum and maximum rates, each overloaded for some seconds, in
real time; by the kernel's timestamps. Beside each share stands what it must be, computed from the
settings alone.

Needs root, for a network namespace of its own, and simple_switch_grpc.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from operator import attrgetter

from rich.console import Console
from rich.table import Table

from bench.switch import network
from bench.switch.generator import Generator
from bench.switch.shares import CASES, PORT_RATE_BPS, Case, Class, NothingArrivedError, Outcome, run
from bench.switch.sink import CaptureError
from bench.switch.speed import (
    EGRESS_INTERFACE,
    GENERATOR_INTERFACE,
    INGRESS_INTERFACE,
    PAIRS,
    SINK_INTERFACE,
)
from bench.switch.targets import BMV2, DEVICE_ID, RunningSwitch, TargetError
from bench.switch.workloads import EGRESS_PORT, INGRESS_PORT, router
from echelon.switches.lowering.intent import QueueSetting
from echelon.switches.southbound.errors import SouthboundError
from echelon.switches.southbound.session import SwitchSession
from echelon.switches.targets import TARGETS, Site

_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class RatedCase(Case):
    """Queues of different levels, some with a least or largest rate (bits per second, by queue)."""

    minimum: Mapping[int, int] = field(default_factory=dict)
    maximum: Mapping[int, int] = field(default_factory=dict)

    @property
    def expected_bps(self) -> dict[int, Fraction]:
        """The exact rates: minimum rates first, then levels from the highest on."""
        wanted = {}
        rates = {}
        for traffic in self.classes:
            queue = traffic.queue
            most = self.maximum.get(queue, traffic.offered_bps)
            wanted[queue] = min(traffic.offered_bps, most)
            least = self.minimum.get(queue, 0)
            rates[queue] = Fraction(min(wanted[queue], least))
        left = PORT_RATE_BPS - sum(rates.values())
        by_level = sorted(self.classes, key=attrgetter("level"), reverse=True)
        for traffic in by_level:
            queue = traffic.queue
            more = min(left, wanted[queue] - rates[queue])
            rates[queue] += more
            left -= more
        return rates

    @property
    def queues(self) -> tuple[QueueSetting, ...]:
        # Not super(): a dataclass with slots is another class than the one that the compiler knows.
        without_rates = Case(self.name, self.classes)
        settings = []
        for setting in without_rates.queues:
            least = self.minimum.get(setting.queue, 0)
            most = self.maximum.get(setting.queue)
            with_rates = replace(setting, min_rate_bps=least, max_rate_bps=most)
            settings.append(with_rates)
        return tuple(settings)


_OVERLOAD = tuple(Class(queue, 12_000_000, 576, level=queue) for queue in (7, 4, 0))
SHAPING_CASES: tuple[Case, ...] = (
    *CASES,
    RatedCase(
        "minimum rates 5 % and 1 % below a full level", _OVERLOAD, minimum={4: 500_000, 0: 100_000}
    ),
    RatedCase(
        "maximum rates 30 % and 50 % of the upper levels",
        _OVERLOAD,
        maximum={7: 3_000_000, 4: 5_000_000},
    ),
    RatedCase(
        "minimum and maximum",
        _OVERLOAD,
        minimum={0: 1_000_000},
        maximum={7: 4_000_000},
    ),
)


def measure(
    cases: Sequence[Case],
    seconds: float,
    progress: Callable[[str], None],
) -> list[Outcome]:
    """Run the cases on BMv2, in this namespace.

    Raises TargetError, SouthboundError, CaptureError, NothingArrivedError.
    """
    with Generator(GENERATOR_INTERFACE, SINK_INTERFACE) as generator:
        for case in cases:
            generator.load(case.name, case.cycle)
        interfaces = {INGRESS_PORT: INGRESS_INTERFACE, EGRESS_PORT: EGRESS_INTERFACE}
        with RunningSwitch(BMV2, interfaces) as switch:
            return asyncio.run(_measure(switch, generator, cases, seconds, progress))


async def _measure(
    switch: RunningSwitch,
    generator: Generator,
    cases: Sequence[Case],
    seconds: float,
    progress: Callable[[str], None],
) -> list[Outcome]:
    workload = router()
    target = TARGETS["bmv2"]
    document = {
        "interfaces": {str(EGRESS_PORT): EGRESS_INTERFACE},
        "thrift": f"127.0.0.1:{switch.thrift_port}",
    }
    options = target.options.model_validate(document)
    site = Site("bmv2", {EGRESS_PORT: PORT_RATE_BPS})
    queues = target.queue_driver(options, site)
    session = SwitchSession("bmv2", switch.address, DEVICE_ID, workload.program, queues=queues)
    outcomes: list[Outcome] = []
    async with session:
        for case in cases:
            progress(case.name)
            # Each case on a tree of its own: a queue that was starved without a minimum rate has
            # debts (queues/htb.py).
            subprocess.run(
                ["tc", "qdisc", "del", "dev", EGRESS_INTERFACE, "root"],
                capture_output=True,
                check=False,
            )
            intent = replace(workload.intent, queues=case.queues)
            await session.reconcile(intent)
            outcomes += await asyncio.to_thread(run, case, generator, seconds)
    return outcomes


def main() -> int:
    options = _options()
    try:
        if not network.is_private():
            return network.run_private(["-m", "bench.shaping", *sys.argv[1:]])
        network.make_pairs(PAIRS)
        cases = SHAPING_CASES
        if options.case:
            cases = tuple(case for case in SHAPING_CASES if case.name in options.case)
        with Console(stderr=True).status("starting") as status:

            def show(name: str) -> None:
                status.update(f"measuring {name}")

            outcomes = measure(cases, options.seconds, show)
    except (
        network.NetworkError,
        TargetError,
        SouthboundError,
        CaptureError,
        NothingArrivedError,
    ) as error:
        print(f"shaping: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(list(_rows(outcomes))))
    else:
        Console().print(_table(outcomes))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.shaping",
        description=(__doc__ or "").split("\n")[0],
    )
    names = [case.name for case in SHAPING_CASES]
    parser.add_argument(
        "--case",
        action="append",
        choices=names,
        help="only this (may be repeated)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=_SECONDS,
        help=f"of each case (default {_SECONDS:g})",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON instead of a table",
    )
    return parser.parse_args()


def _rows(outcomes: Sequence[Outcome]) -> Iterator[dict[str, object]]:
    for outcome in outcomes:
        yield {
            "case": outcome.case,
            "queue": outcome.queue,
            "expected_bps": outcome.expected_bps,
            "measured_bps": outcome.measured_bps,
            "error": outcome.error,
        }


def _table(outcomes: Sequence[Outcome]) -> Table:
    title = f"BMv2 behind an HTB tree, port of {PORT_RATE_BPS / 1e6:g} Mbit/s"
    table = Table(
        "case",
        "queue",
        "level",
        "weight",
        "frame",
        "offered",
        "expected",
        "measured Mbit/s",
        "error %",
        title=title,
    )
    for index, o in enumerate(outcomes):
        first = index == 0 or outcomes[index - 1].case != o.case
        table.add_row(
            o.case if first else "",
            str(o.queue),
            str(o.level),
            str(o.weight),
            str(o.frame_bytes),
            f"{o.offered_bps / 1e6:g}",
            f"{o.expected_bps / 1e6:.4g}",
            f"{o.measured_bps / 1e6:.4f}",
            f"{100 * o.error:+.2f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
