"""What jobs remember of past iterations, as a scheduler learns it that sees all flows under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from echelon.allocation import ActiveFlow, Allocation
from echelon.policies.orders import JobFacts
from echelon.rankings.deadline import Memory


class Memories:
    """The memories of all jobs during one run.

    A scheduler is not told when a flow finishes. It sees all flows whenever one starts or finishes; between two such
    times rates are constant, so a flow that has gone has finished when its last rate said.
    """

    def __init__(self) -> None:
        self._of: dict[str, Memory] = {}
        self._expected: dict[tuple[str, str, int], tuple[Fraction, Fraction]] = {}
        """The deadline and the expected finish of each flow under way, by job, flow and iteration."""

    def observe(
        self, jobs: Mapping[str, JobFacts], flows: Sequence[ActiveFlow], deadlines_s: Sequence[Fraction]
    ) -> None:
        """Take note of the flows under way, before they are ranked: which have finished, and which iterations began."""
        present = {(flow.job, flow.flow, flow.iteration) for flow in flows}
        for key in [key for key in self._expected if key not in present]:
            deadline_s, finish_s = self._expected.pop(key)
            self._of[key[0]].finish(finish_s - deadline_s)
        for flow, deadline_s in zip(flows, deadlines_s, strict=True):
            memory = self._of.setdefault(flow.job, Memory())
            memory.begin(flow.iteration, jobs[flow.job].latest_alone_s)
            self._expected.setdefault((flow.job, flow.flow, flow.iteration), (deadline_s, deadline_s))

    def expect(self, now_s: Fraction, flows: Sequence[ActiveFlow], allocation: Allocation) -> None:
        """Take note of the rates that flows have from now on."""
        for flow, rate_Bps in zip(flows, allocation.rates_Bps, strict=True):  # noqa: N806
            key = flow.job, flow.flow, flow.iteration
            if rate_Bps and key in self._expected:
                deadline_s, _ = self._expected[key]
                self._expected[key] = deadline_s, now_s + flow.remaining_bytes / rate_Bps

    def delay_s(self, job: str) -> Fraction | int:
        """Return E of a job that has been observed, in seconds."""
        return self._of[job].delay_s
