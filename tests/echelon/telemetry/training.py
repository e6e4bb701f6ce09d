"""A training job as switches report it: flows of iterations, the registers that decide what is
first, lossy digests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from echelon.switches.telemetry.events import FlowEvent


@dataclass(frozen=True)
class Passage:
    """A flow passes a switch in one iteration, from its first packet to its last."""

    switch: str
    flow: str
    start_s: Fraction
    finish_s: Fraction
    tardiness_s: Fraction = Fraction(0)


@dataclass
class ReportingSwitch:
    """A switch that reports epochs as `promotion.p4` does: up to 16 behind is silent, the same is
    no start, all else is one.
    """

    clock_s: Fraction = Fraction(0)
    """The time that its clock shows at time 0."""
    epochs: dict[str, int] = field(default_factory=dict)

    def report(
        self, passage: Passage, job: str, epoch: int
    ) -> Iterator[tuple[Fraction, FlowEvent]]:
        """Yield events with their true times."""
        known = self.epochs.get(passage.flow)
        if known is not None and (epoch - known) % 256 >= 240:
            return
        moments = []
        if known != epoch:
            moments.append((passage.start_s, Fraction(0), True))
        self.epochs[passage.flow] = epoch
        moments.append((passage.finish_s, passage.tardiness_s, False))
        for time_s, tardiness_s, started in moments:
            yield (
                time_s,
                FlowEvent(
                    passage.switch,
                    job,
                    passage.flow,
                    epoch,
                    time_s + self.clock_s,
                    tardiness_s,
                    started,
                    not started,
                ),
            )


def reports(
    iterations: Sequence[tuple[int, Sequence[Passage]]],
    clocks_s: Mapping[str, Fraction],
    job: str = "j",
) -> dict[str, list[FlowEvent]]:
    """Return the reports of each switch, in its order, on iterations (epoch, passages) in the order
    of time.
    """
    switches = {name: ReportingSwitch(clock_s) for name, clock_s in clocks_s.items()}
    timed: dict[str, list[tuple[Fraction, FlowEvent]]] = {name: [] for name in clocks_s}
    for epoch, passages in iterations:
        for passage in passages:
            timed[passage.switch] += switches[passage.switch].report(passage, job, epoch)
    return {
        name: [event for _, event in sorted(events, key=lambda one: one[0])]
        for name, events in timed.items()
    }
