"""Reports of switches about flows, decoded from digests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from echelon.p4program import constants


@dataclass(frozen=True, slots=True)
class FlowEvent:
    """A flow's first or last packet of an iteration passed a switch (or the only one: both)."""

    switch: str
    job: str
    flow: str
    epoch: int
    """Iteration modulo 256."""
    time_s: Fraction
    """Time by the switch's own clock: never compare it with another switch's."""
    tardiness_s: Fraction
    """Slack of that packet at its arrival; negative while early, 0 for flows that no deadline ranks."""
    started: bool
    finished: bool


def decode_event(switch: str, flows: Mapping[int, tuple[str, str]], data: Mapping[str, int]) -> FlowEvent:
    """Decode the fields of `flow_event_t`; `flows` are those of the intent that the switch runs.

    Raise `KeyError` if the flow is none of them.
    """
    numbers = constants()
    job, flow = flows[data["flow"]]
    return FlowEvent(
        switch,
        job,
        flow,
        data["epoch"],
        Fraction(data["time_us"], 1_000_000),
        Fraction(numbers["SLACK_BIAS"] - data["slack_key"], 1_000_000),
        bool(data["event"] & numbers["EVENT_START"]),
        bool(data["event"] & numbers["EVENT_FINISH"]),
    )
