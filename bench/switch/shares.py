"""Port rate, strict levels and weights in real time: what leaves a port of 10 Mbit/s, by the clock
of the kernel.

Traffic of several classes is offered above the port's rate for some seconds. What each class must
get is computed here from rate, levels and weights alone; what it got is counted in a window of the
kernel's timestamps, so that neither a late sink nor a busy machine counts.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from echelon.switches.lowering.intent import QueueSetting
from echelon.switches.southbound.session import SwitchSession
from echelon.switches.targets.softswitch.queues import GnmiQueues

from .generator import BURST_FRAMES, Cycle, Generator
from .network import received_frames
from .sink import Arrival, Capture
from .speed import EGRESS_INTERFACE, GENERATOR_INTERFACE, INGRESS_INTERFACE, SINK_INTERFACE
from .targets import DEVICE_ID, QUEUES, SOFTSWITCH, RunningSwitch
from .workloads import EGRESS_PORT, INGRESS_PORT, class_frame, router

PORT_RATE_BPS = 10_000_000
RATE_LIMIT = 0.01
"""The largest relative error of the port's rate."""
SHARE_LIMIT = 0.02
"""The largest relative error of a class's share."""
WARM_UP_S = 1.0
"""The time in which every queue that can fill gets packets that wait."""

_MARGIN_S = 0.5
_SETTLE_S = 0.2
_CYCLE_BURSTS = 128
_TOS_AT = 15


class NothingArrivedError(Exception):
    """The error when no frame came out in the window."""


@dataclass(frozen=True, slots=True)
class Class:
    """The traffic of one queue: what is offered, and how the queue is served."""

    queue: int
    offered_bps: int
    frame_bytes: int
    level: int
    weight: int = 1

    @property
    def offered_pps(self) -> Fraction:
        return Fraction(self.offered_bps, 8 * self.frame_bytes)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    classes: tuple[Class, ...]

    @property
    def limit(self) -> float:
        if len(self.classes) == 1:
            return RATE_LIMIT
        return SHARE_LIMIT

    @property
    def expected_bps(self) -> dict[int, Fraction]:
        """The exact rate of each queue: levels from the highest on; inside a level max-min fair by
        weight.
        """
        rates: dict[int, Fraction] = {}
        left = Fraction(PORT_RATE_BPS)
        levels = {traffic.level for traffic in self.classes}
        for level in sorted(levels, reverse=True):
            hungry = [traffic for traffic in self.classes if traffic.level == level]
            while hungry:
                unit = left / sum(traffic.weight for traffic in hungry)
                content = [c for c in hungry if c.offered_bps <= unit * c.weight]
                if content:
                    served = {c.queue: Fraction(c.offered_bps) for c in content}
                else:
                    served = {c.queue: unit * c.weight for c in hungry}
                rates |= served
                left -= sum(served.values())
                hungry = [c for c in hungry if c.queue not in served]
        return rates

    @property
    def cycle(self) -> Cycle:
        """Frames of all classes, evenly mixed, in numbers by what each is to offer."""
        count = _CYCLE_BURSTS * BURST_FRAMES
        rates = [traffic.offered_pps for traffic in self.classes]
        total = sum(rates)
        numbers = [round(count * rate / total) for rate in rates]
        numbers[-1] += count - sum(numbers)
        moments = []
        for traffic, number in zip(self.classes, numbers, strict=True):
            for place in range(number):
                moment = (2 * place + 1) / (2 * number)
                moments.append((moment, traffic.queue, traffic.frame_bytes))
        moments.sort()
        frames = [class_frame(queue, frame_bytes, queue) for _, queue, frame_bytes in moments]
        return Cycle(tuple(frames))

    @property
    def offered_pps(self) -> float:
        rates = [traffic.offered_pps for traffic in self.classes]
        return float(sum(rates))

    @property
    def queues(self) -> tuple[QueueSetting, ...]:
        """Every queue of the port; those without traffic are strict, as at first."""
        settings = {}
        for queue in range(QUEUES):
            settings[queue] = QueueSetting(EGRESS_PORT, queue, queue, 1, 0, None)
        for c in self.classes:
            settings[c.queue] = QueueSetting(EGRESS_PORT, c.queue, c.level, c.weight, 0, None)
        return tuple(settings.values())


@dataclass(frozen=True, slots=True)
class Outcome:
    """The expected and the measured rate of one class."""

    case: str
    queue: int
    frame_bytes: int
    level: int
    weight: int
    offered_bps: int
    expected_bps: float
    measured_bps: float
    limit: float

    @property
    def error(self) -> float:
        """The error relative to the expectation, or to the port's rate if nothing is expected."""
        difference_bps = self.measured_bps - self.expected_bps
        return difference_bps / (self.expected_bps or PORT_RATE_BPS)

    @property
    def holds(self) -> bool:
        return abs(self.error) <= self.limit


def _alone(frame_bytes: int) -> Case:
    return Case(f"port rate, {frame_bytes} bytes", (Class(0, 13_000_000, frame_bytes, level=0),))


CASES: tuple[Case, ...] = (
    *(_alone(frame_bytes) for frame_bytes in (64, 256, 576, 1500)),
    Case(
        "strict, both overloaded",
        (Class(7, 12_000_000, 576, level=7), Class(0, 12_000_000, 576, level=0)),
    ),
    Case(
        "strict, rest for the lowest",
        (
            Class(7, 3_000_000, 256, level=7),
            Class(4, 4_000_000, 576, level=4),
            Class(0, 9_000_000, 1500, level=0),
        ),
    ),
    Case(
        "weights 1 : 2 : 5",
        (
            Class(1, 12_000_000, 576, level=3, weight=1),
            Class(2, 12_000_000, 576, level=3, weight=2),
            Class(3, 12_000_000, 576, level=3, weight=5),
        ),
    ),
    Case(
        "weights 1 : 1 : 3, unequal packets",
        (
            Class(1, 11_000_000, 256, level=3, weight=1),
            Class(2, 11_000_000, 1500, level=3, weight=1),
            Class(3, 11_000_000, 576, level=3, weight=3),
        ),
    ),
    Case(
        "weights 1 : 3 below a level",
        (
            Class(7, 2_000_000, 256, level=7),
            Class(1, 11_000_000, 576, level=2, weight=1),
            Class(2, 11_000_000, 1500, level=2, weight=3),
        ),
    ),
)


def measure(
    cases: Sequence[Case],
    seconds: float,
    progress: Callable[[str], None],
) -> list[Outcome]:
    """Run the cases on softswitch, each over a window of `seconds`.

    Raises TargetError, SouthboundError, CaptureError, NothingArrivedError.
    """
    with Generator(GENERATOR_INTERFACE, SINK_INTERFACE) as generator:
        for case in cases:
            generator.load(case.name, case.cycle)
        interfaces = {INGRESS_PORT: INGRESS_INTERFACE, EGRESS_PORT: EGRESS_INTERFACE}
        rates = {EGRESS_PORT: f"{PORT_RATE_BPS // 10**6}Mbit"}
        with RunningSwitch(SOFTSWITCH, interfaces, port_rates=rates) as switch:
            return asyncio.run(_measure(switch, generator, cases, seconds, progress))


async def _measure(
    switch: RunningSwitch,
    generator: Generator,
    cases: Sequence[Case],
    seconds: float,
    progress: Callable[[str], None],
) -> list[Outcome]:
    workload = router()
    outcomes: list[Outcome] = []
    queues = GnmiQueues("softswitch")
    session = SwitchSession(
        "softswitch", switch.address, DEVICE_ID, workload.program, queues=queues
    )
    async with session:
        for case in cases:
            progress(case.name)
            intent = replace(workload.intent, queues=case.queues)
            await session.reconcile(intent)
            outcomes += await asyncio.to_thread(run, case, generator, seconds)
    return outcomes


def run(
    case: Case,
    generator: Generator,
    seconds: float,
) -> list[Outcome]:
    """Offer the traffic of a case, which the generator has loaded, and measure the rates behind the
    switch for `seconds`.

    Raises CaptureError, NothingArrivedError.
    """
    with Capture(SINK_INTERFACE, _TOS_AT + 1) as capture:
        generator.run(case.name, case.offered_pps, WARM_UP_S + seconds + _MARGIN_S)
        _wait_quiet()
    measured = _rates(case, capture.arrivals, seconds)
    expected = case.expected_bps
    return [
        Outcome(
            case.name,
            c.queue,
            c.frame_bytes,
            c.level,
            c.weight,
            c.offered_bps,
            float(expected[c.queue]),
            measured[c.queue],
            case.limit,
        )
        for c in case.classes
    ]


def _rates(
    case: Case,
    arrivals: Sequence[Arrival],
    seconds: float,
) -> dict[int, float]:
    """Return the bits per second of each queue between the first and last frame of the window."""
    if not arrivals:
        raise NothingArrivedError(f"{case.name}: nothing came out of the switch")
    start_ns = arrivals[0].time_ns + round(WARM_UP_S * 1e9)
    end_ns = start_ns + seconds * 1e9
    window = [arrival for arrival in arrivals if start_ns <= arrival.time_ns <= end_ns]
    if len(window) < 2:
        raise NothingArrivedError(f"{case.name}: nothing came out of the switch for {seconds:g} s")
    sizes: Counter[int] = Counter()
    # A frame takes the line from its own time to the next one's: the last one's is outside.
    for arrival in window[:-1]:
        sizes[arrival.head[_TOS_AT] >> 5] += arrival.length_bytes
    elapsed_s = (window[-1].time_ns - window[0].time_ns) / 1e9
    rates = {}
    for traffic in case.classes:
        rates[traffic.queue] = sizes[traffic.queue] * 8 / elapsed_s
    return rates


def _wait_quiet() -> None:
    """Wait until the queues have emptied."""
    seen = -1
    while (now := received_frames(SINK_INTERFACE)) != seen:
        seen = now
        time.sleep(_SETTLE_S)
