"""Digests -> flow events, while the numbers by which a switch reports flows are handed out and come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from echelon.lowering.intent import Intent
from echelon.telemetry.events import FlowEvent, decode_event

SETTLING_S = 2.0
"""After a number was given to another flow its reports are not told apart for so long: a switch keeps a list of digests
back for up to 0.1 s, and then it has to arrive."""


@dataclass(frozen=True, slots=True)
class Decoded:
    events: tuple[FlowEvent, ...]
    unknown: int
    """Reports of a flow that no intent knows (from before this controller, say), or that may be of either of two."""


@dataclass(slots=True)
class _Numbers:
    """Of one switch. What has left keeps its meaning until its number is given to something else."""

    parts: frozenset[int] = frozenset()
    intent: Intent | None = None
    flows: dict[int, tuple[str, str]] = field(default_factory=dict)
    unsettled_until: dict[int, float] = field(default_factory=dict)


class Decoder:
    """Knows what the flow numbers of each switch mean. `clock` gives seconds that only grow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._switches: dict[str, _Numbers] = {}

    def hold(self, intent: Intent) -> None:
        """The switch is being brought to that intent. Call it before the intent is handed on. Costs in proportion to
        the parts, and to the flows of those that are new."""
        numbers = self._switches.setdefault(intent.switch, _Numbers())
        now = self._clock()
        for number in [one for one, until in numbers.unsettled_until.items() if until <= now]:
            del numbers.unsettled_until[number]
        for part in intent.parts:
            if id(part) in numbers.parts:
                continue
            for known in part.known:
                meaning = (known.job, known.flow)
                if numbers.flows.setdefault(known.number, meaning) != meaning:
                    numbers.flows[known.number] = meaning
                    numbers.unsettled_until[known.number] = now + SETTLING_S
        # The intent is kept so that its parts live, and no other object can have the id of one.
        numbers.intent, numbers.parts = intent, frozenset(map(id, intent.parts))

    def forget(self, switch: str) -> None:
        self._switches.pop(switch, None)

    def decode(self, switch: str, reports: Sequence[Mapping[str, int]]) -> Decoded:
        """`reports` are the fields of `flow_event_t`, in the switch's order."""
        numbers = self._switches.get(switch, _Numbers())
        now = self._clock()
        events: list[FlowEvent] = []
        for report in reports:
            number = report["flow"]
            if number in numbers.flows and numbers.unsettled_until.get(number, now) <= now:
                events.append(decode_event(switch, numbers.flows, report))
        return Decoded(tuple(events), len(reports) - len(events))
