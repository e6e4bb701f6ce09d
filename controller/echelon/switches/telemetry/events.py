"""Reports of switches about flows, decoded from digests.

A switch gives one number to one flow after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import compress
from operator import not_

from echelon.model.p4program import constants
from echelon.switches.lowering.intent import Intent

SETTLING_S = 2.0
"""The time for which reports of a number are ambiguous after it was given to another flow.

A switch holds a list of digests for up to 0.1 s, and then the list has to arrive.
"""
_US_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class FlowEvent:
    """A report of the first or last packet of a flow in an iteration; an only packet is both."""

    switch: str
    job: str
    flow: str
    epoch: int
    """Iteration modulo 256."""
    time_s: Fraction
    """Time by the switch's own clock: never compare it with another switch's."""
    tardiness_s: Fraction
    """Slack of that packet at its arrival: negative while early, 0 if no deadline ranks it."""
    started: bool
    finished: bool


def decode_event(
    switch: str,
    flows: Mapping[int, tuple[str, str]],
    data: Mapping[str, int],
) -> FlowEvent:
    """Return the event of the fields of `flow_event_t`.

    `flows` are those of the intent that the switch runs. Raise `KeyError` if the flow is none of
    them.
    """
    numbers = constants()
    job, flow = flows[data["flow"]]
    kinds = data["event"]
    return FlowEvent(
        switch=switch,
        job=job,
        flow=flow,
        epoch=data["epoch"],
        time_s=Fraction(data["time_us"], _US_PER_S),
        tardiness_s=Fraction(numbers["SLACK_BIAS"] - data["slack_key"], _US_PER_S),
        started=bool(kinds & numbers["EVENT_START"]),
        finished=bool(kinds & numbers["EVENT_FINISH"]),
    )


@dataclass(frozen=True, slots=True)
class Decoded:
    """A list of reports, decoded."""

    events: tuple[FlowEvent, ...]
    unknown: int
    """Number of reports whose flow number means nothing, or either of two flows for the moment.

    A number that means nothing may be from before this controller.
    """


@dataclass(slots=True)
class _Numbers:
    """The flow numbers of one switch.

    A number whose flow has left keeps its meaning until another flow has it.
    """

    parts: frozenset[int] = frozenset()
    intent: Intent | None = None
    flows: dict[int, tuple[str, str]] = field(default_factory=dict)
    unsettled_until: dict[int, float] = field(default_factory=dict)


class Decoder:
    """The meaning of each switch's flow numbers.

    The times of all calls are seconds of one clock that only grows.
    """

    def __init__(self) -> None:
        self._switches: dict[str, _Numbers] = {}

    def hold(self, intent: Intent, now_s: float) -> None:
        """Learn the numbers of an intent, before it is handed to the switch.

        The cost of another intent than before grows with its parts, and with the flows of those
        that are new.
        """
        numbers = self._switches.setdefault(intent.switch, _Numbers())
        for number, until_s in list(numbers.unsettled_until.items()):
            if until_s <= now_s:
                del numbers.unsettled_until[number]
        if intent is numbers.intent:
            return
        is_known = map(numbers.parts.__contains__, map(id, intent.parts))
        for part in compress(intent.parts, map(not_, is_known)):
            for numbered in part.flows:
                meaning = (numbered.job, numbered.flow)
                if numbers.flows.setdefault(numbered.number, meaning) != meaning:
                    numbers.flows[numbered.number] = meaning
                    numbers.unsettled_until[numbered.number] = now_s + SETTLING_S
        # The intent is kept so that its parts live, and no other object can have the id of one.
        numbers.intent = intent
        numbers.parts = frozenset(map(id, intent.parts))

    def forget(self, switch: str) -> None:
        """Forget all numbers of a switch."""
        self._switches.pop(switch, None)

    def decode(
        self,
        switch: str,
        reports: Sequence[Mapping[str, int]],
        now_s: float,
    ) -> Decoded:
        """Return the events of reports, in the switch's order.

        Reports are the fields of `flow_event_t`.
        """
        numbers = self._switches.get(switch, _Numbers())
        events: list[FlowEvent] = []
        for report in reports:
            number = report["flow"]
            is_settled = numbers.unsettled_until.get(number, now_s) <= now_s
            if number in numbers.flows and is_settled:
                events.append(decode_event(switch, numbers.flows, report))
        return Decoded(tuple(events), len(reports) - len(events))
