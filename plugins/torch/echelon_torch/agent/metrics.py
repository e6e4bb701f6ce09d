"""The metrics of the agent, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from echelon_torch.agent.connection import AgentError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from echelon_torch.agent.watching import Agent

PREFIX = "echelon_agent"
_DESCRIPTIONS = {
    "reports": "Reports that the service acknowledged",
    "report_failures": "Reports that failed and were repeated",
    "connections": "Open connections with other hosts of the job",
    "control_connections": (
        "Open connections that are to stores or carry little beside others, and are not reported"
    ),
    "ebpf": "1: the kernel tells of connections; 0: they are polled",
    "sent_bytes": "Bytes sent, each counted once",
    "retransmitted_bytes": "Bytes sent again",
    "retransmissions": "Segments sent again",
    "busy_seconds": "Time with data to send, over all connections",
    "stalled_seconds": "Time of it in which the send buffer was too small",
    "marked_connections": "Connections that opened with the mark",
    "iterations": "Iterations that have begun",
    "iteration_seconds": "Duration of the last whole iteration",
    "iteration_bytes": "Bytes sent in the last whole iteration",
}


def serve(
    agent: Agent,
    address: str,
    port: int,
) -> None:
    """Answer Prometheus at that address, in threads of their own. Raise `AgentError`."""
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(_Collector(agent))
    try:
        start_http_server(port, address, registry)
    except OSError as error:
        raise AgentError(
            f"--metrics: cannot listen on {address}:{port}: {error.strerror}"
        ) from None


class _Collector:
    """A reader of the agent's state at the moment of each question."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        agent = self._agent
        counts = agent.reporter.counts
        counters: dict[str, float] = {
            "reports": counts.reports,
            "report_failures": counts.failures,
        }
        gauges: dict[str, float] = {}
        seen = agent.connections
        if seen is not None:
            totals = seen.totals
            gauges["connections"] = sum(map(seen.is_counted, seen.open))
            gauges["control_connections"] = len(seen.control)
            gauges["ebpf"] = seen.program is not None
            counters["sent_bytes"] = totals.sent_bytes
            counters["retransmitted_bytes"] = totals.retransmitted_bytes
            counters["retransmissions"] = totals.retransmissions
            counters["busy_seconds"] = totals.busy_s
            counters["stalled_seconds"] = totals.stalled_s
            counters["marked_connections"] = seen.marked
        if agent.meter is not None:
            counters["iterations"] = agent.meter.detector.begun
        if agent.last_iteration is not None:
            last = agent.last_iteration.seen
            gauges["iteration_seconds"] = last.duration_s
            gauges["iteration_bytes"] = last.sent_bytes

        for name, value in counters.items():
            yield CounterMetricFamily(f"{PREFIX}_{name}", _DESCRIPTIONS[name], value)
        for name, value in gauges.items():
            yield GaugeMetricFamily(f"{PREFIX}_{name}", _DESCRIPTIONS[name], value)
