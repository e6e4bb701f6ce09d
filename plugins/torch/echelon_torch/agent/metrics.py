"""The metrics of the agent, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from echelon_torch.agent.connection import AgentError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from echelon_torch.agent.watching import Agent

PREFIX = "echelon_agent"


def serve(agent: Agent, address: str, port: int) -> None:
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
        seen = self._agent.connections
        counters: dict[str, tuple[str, float]] = {
            "reports": ("Reports that the service acknowledged", agent.reporter.counts.reports),
            "report_failures": (
                "Reports that failed and were repeated",
                agent.reporter.counts.failures,
            ),
        }
        gauges: dict[str, tuple[str, float]] = {}
        if seen is not None:
            totals = seen.totals
            gauges["connections"] = (
                "Open connections with other hosts of the job",
                sum(map(seen.is_counted, seen.open)),
            )
            gauges["control_connections"] = (
                (
                    "Open connections that are to stores or carry little beside others, and are not"
                    " reported"
                ),
                len(seen.control),
            )
            gauges["ebpf"] = (
                "1: the kernel tells of connections; 0: they are polled",
                seen.program is not None,
            )
            counters |= {
                "sent_bytes": ("Bytes sent, each counted once", totals.sent_bytes),
                "retransmitted_bytes": ("Bytes sent again", totals.retransmitted_bytes),
                "retransmissions": ("Segments sent again", totals.retransmissions),
                "busy_seconds": ("Time with data to send, over all connections", totals.busy_s),
                "stalled_seconds": (
                    "Time of it in which the send buffer was too small",
                    totals.stalled_s,
                ),
                "marked_connections": ("Connections that opened with the mark", seen.marked),
            }
        if agent.meter is not None:
            counters["iterations"] = ("Iterations that have begun", agent.meter.detector.begun)
        if agent.last_iteration is not None:
            last = agent.last_iteration.seen
            gauges["iteration_seconds"] = ("Duration of the last whole iteration", last.duration_s)
            gauges["iteration_bytes"] = ("Bytes sent in the last whole iteration", last.sent_bytes)
        for name, (words, value) in counters.items():
            yield CounterMetricFamily(f"{PREFIX}_{name}", words, value)
        for name, (words, value) in gauges.items():
            yield GaugeMetricFamily(f"{PREFIX}_{name}", words, value)
