"""Writes beside traffic: whether packets are lost while a controller changes a table as fast as is
asked for.

The router forwards at a share of its lossless rate. Meanwhile, a client modifies entries of its
table of routes, none of which the traffic needs, in batches of 1000 at their instants. And the
filling of one table with a million routes: the rate, and the memory of the switch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from finsy.proto import p4r

from bench.p4runtime_load import Load, Rate
from tests.reference.table_updates import load_p4info, updates

from .generator import Generator
from .lossless import LOSS_LIMIT, Search, Trial, lossless_rate
from .speed import (
    EGRESS_INTERFACE,
    GENERATOR_INTERFACE,
    INGRESS_INTERFACE,
    SINK_INTERFACE,
    Placement,
    Progress,
    trial,
    with_controller,
)
from .targets import DEVICE_ID, RunningSwitch, Target
from .workloads import router

ROUTES = 2000
"""Routes that are modified again and again; the table has room for 4096."""
SHARE = 0.8
"""Part of the lossless rate at which the router forwards meanwhile."""
MILLION = 1_000_000
"""Routes, in a table that has room for them."""
_FRAME_BYTES = 64
_GUESS_PPS = 200_000.0
_ELECTION_ID = 1 << 40


@dataclass(frozen=True, slots=True)
class Beside:
    """Traffic beside writes: what came out, and how fast was written."""

    lossless_pps: float
    trial: Trial
    writes: Rate
    asked_per_s: float


def writes_beside_traffic(
    target: Target,
    placement: Placement,
    per_second: float,
    seconds: float,
    report: Progress,
) -> Beside:
    """Return what a router at 80 % of its lossless rate loses while entries are modified
    `per_second`.
    """
    workload = router()
    cycle = workload.make_cycle(_FRAME_BYTES)
    interfaces = {workload.ingress_port: INGRESS_INTERFACE, workload.egress_port: EGRESS_INTERFACE}
    with Generator(GENERATOR_INTERFACE, SINK_INTERFACE) as generator:
        generator.load("router", cycle)
        generator.place(placement.generator)
        with RunningSwitch(target, interfaces, cpus=placement.switch) as switch:
            asyncio.run(with_controller(switch, workload, lambda: None))
            search = Search(confirmations=2, resolution=0.05)
            try_rate = partial(trial, generator, "router")
            rate = lossless_rate(try_rate, _GUESS_PPS, search)
            report(f"{target.name}, {placement.name}: {rate:,.0f} packets/s without writes")
            p4info = load_p4info(workload.program.p4info)
            with Load(
                switch.address,
                p4info,
                device_id=DEVICE_ID,
                election_id=_ELECTION_ID,
            ) as client:
                client.write(updates(p4info, "ipv4_lpm", ROUTES))
                requests = client.requests(_modified(p4info, int(per_second * seconds)))
                with ThreadPoolExecutor(1) as writer:
                    writing = writer.submit(client.send, requests, per_second=per_second)
                    done = trial(generator, "router", SHARE * rate, seconds)
                    return Beside(rate, done, writing.result(), per_second)


def _modified(p4info: object, count: int) -> Iterator[p4r.Update]:
    routes = list(updates(p4info, "ipv4_lpm", ROUTES, p4r.Update.MODIFY))  # type: ignore[arg-type]
    for number in range(count):
        yield routes[number % ROUTES]


@dataclass(frozen=True, slots=True)
class Filled:
    """A table with many routes."""

    rate: Rate
    before_bytes: int
    after_bytes: int
    """resident memory of the switch"""


def fill(
    target: Target,
    p4info_file: Path,
    program: Path,
    count: int = MILLION,
) -> Filled:
    """Return the rate and memory of filling the table `lpm` of `program`."""
    p4info = load_p4info(p4info_file)
    with (
        RunningSwitch(target, {}) as switch,
        Load(switch.address, p4info, device_id=DEVICE_ID) as client,
    ):
        client.push(program.read_bytes())
        before = switch.resident_bytes()
        rate = client.write(updates(p4info, "lpm", count))
        return Filled(rate, before, switch.resident_bytes())


def in_words(measured: Beside) -> str:
    """Return one line about writes beside traffic."""
    done = measured.trial
    if done.carried >= done.offered:
        verdict = "none lost"
    else:
        verdict = f"{done.loss:.3%} lost"
    return (
        f"{done.rate_pps:,.0f} packets/s of {measured.lossless_pps:,.0f} beside"
        f" {measured.writes.per_second:,.0f} writes/s of {measured.asked_per_s:,.0f} asked for:"
        f" {verdict} of {done.offered:,} (limit of a lossless rate: {LOSS_LIMIT:.1%})"
    )
