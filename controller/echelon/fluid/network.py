"""The flows under way and the rates at which they drain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon.allocation import ActiveFlow, Link, Number
from echelon.errors import Code, CodedError
from echelon.fluid.rounding import Rounding
from echelon.jobs.graph import FlowKey

_ZERO = Fraction(0)


class FluidError(CodedError, RuntimeError):
    """A run cannot go on because of the policy's answer: no rates, the wrong number of them, or for no time."""

    code: Code = "run-failed"


@dataclass(slots=True, eq=False)
class FlowUnderWay(ActiveFlow):
    """A flow in the network; `remaining_bytes` and `rate_Bps` are as of the last allocation."""

    rate_Bps: Number = _ZERO  # noqa: N815
    finish_s: Number | None = None
    """Finish time at the present rate; None: it never finishes."""


class FluidNetwork:
    """The flows under way, which drain at constant rates from one allocation to the next.

    New rates are due when `changed` is true: a flow has started or finished since they were set.
    """

    def __init__(self, rounding: Rounding) -> None:
        self.changed = False
        self._rounding = rounding
        self._flows: dict[FlowKey, FlowUnderWay] = {}
        self._started = 0
        self._allocated_s = _ZERO

    @property
    def idle(self) -> bool:
        return not self._flows

    def start(
        self,
        key: FlowKey,
        iteration: int,
        echelonflow: str | None,
        links: tuple[Link, ...],
        size_bytes: int,
        now_s: Fraction,
        ideal_finish_s: Fraction,
        max_rate_Bps: Fraction | None = None,  # noqa: N803
    ) -> None:
        """Put a flow into the network. Without bytes or links to cross, it is finished at once."""
        self._flows[key] = FlowUnderWay(
            job=key[0],
            flow=key[1],
            iteration=iteration,
            echelonflow=echelonflow,
            links=links,
            size_bytes=size_bytes,
            start_s=now_s,
            ideal_finish_s=ideal_finish_s,
            max_rate_Bps=max_rate_Bps,
            sequence=self._started,
            remaining_bytes=Fraction(size_bytes),
            finish_s=None if size_bytes and links else now_s,
        )
        self._started += 1
        self.changed = True

    def take_finished(self, now_s: Fraction) -> list[FlowKey]:
        """Remove the flows that have finished by now, in order of their start."""
        done = [key for key, flow in self._flows.items() if flow.finish_s is not None and flow.finish_s <= now_s]
        for key in done:
            del self._flows[key]
        self.changed = self.changed or bool(done)
        return done

    def next_finish_s(self) -> Number | None:
        """Return when the next flow finishes at the present rates; None if none does."""
        return min((flow.finish_s for flow in self._flows.values() if flow.finish_s is not None), default=None)

    def advance(self, now_s: Fraction) -> list[ActiveFlow]:
        """Drain all flows until now, at the present rates. Return the remaining flows, in order of their start."""
        elapsed = now_s - self._allocated_s
        for flow in self._flows.values():
            if flow.rate_Bps:
                flow.remaining_bytes = self._rounding.bytes(flow.remaining_bytes - flow.rate_Bps * elapsed)
        self._allocated_s = now_s
        return list(self._flows.values())

    def set_rates(self, rates_Bps: Sequence[Number]) -> None:  # noqa: N803
        """Set new rates from the time of the last `advance` on, for the flows in the order that it returned."""
        if len(rates_Bps) != len(self._flows):
            raise FluidError(f"the policy answers with {len(rates_Bps)} rates for {len(self._flows)} flows")
        for flow, rate in zip(self._flows.values(), rates_Bps, strict=True):
            flow.rate_Bps = rate
            flow.finish_s = self._allocated_s + flow.remaining_bytes / rate if rate else None
        self.changed = False
