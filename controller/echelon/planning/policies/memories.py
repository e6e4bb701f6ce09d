"""The memory of past iterations, learnt by a scheduler that sees all flows under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echelon.planning.allocation import ActiveFlow, Number
from echelon.planning.policies.orders import JobFacts
from echelon.planning.rankings.deadline import Memory


class Memories:
    """The memories of all jobs during one run.

    A scheduler is not told when a flow finishes. It knows when it will at its present rate, and the
    last such time is right.
    """

    def __init__(self) -> None:
        self._memories: dict[str, Memory] = {}
        self._expected: dict[str, dict[str, Number]] = {}
        """The expected e - d of each flow in the present iteration, by job and flow."""

    def observe(self, jobs: Mapping[str, JobFacts], flows: Sequence[ActiveFlow]) -> None:
        """Take note of iterations that have begun. Called before flows are ranked."""
        for flow in flows:
            memory = self._memories.setdefault(flow.job, Memory())
            if flow.iteration > memory.iteration:
                expected = self._expected.pop(flow.job, {})
                for late_s in expected.values():
                    memory.finish(late_s)
                memory.begin(flow.iteration, jobs[flow.job].latest_alone_s)

    def expect(
        self,
        now_s: Number,
        flows: Sequence[ActiveFlow],
        deadlines_s: Sequence[Number],
        rates_Bps: Sequence[Number],  # noqa: N803
    ) -> None:
        """Take note of the rates that flows have from now on."""
        for flow, deadline_s, rate in zip(flows, deadlines_s, rates_Bps, strict=True):
            if rate:
                finish_s = now_s + flow.remaining_bytes / rate
                expected = self._expected.setdefault(flow.job, {})
                expected[flow.flow] = finish_s - deadline_s

    def delay_s(self, job: str) -> Number:
        """Return E of a job that has been observed, in seconds."""
        return self._memories[job].delay_s
