"""The way from packets to figures of the API and of /metrics: real switch, real daemon, the
sender's times as bounds.
"""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from prometheus_client.parser import text_string_to_metric_families

from echelon.controller.client import Client
from echelon_lab.endhosts.shim import DataSegment, FlowAddress, ShimFrames
from tests.echelon.service.conftest import Service
from tests.echelon.service.lab import Host, Lab, settle, until

pytestmark = pytest.mark.xdist_group("daemon")

PIPELINE = {
    "job": "p",
    "parallelism": "pipeline",
    "workers": ["h1", "h2"],
    "pipeline": {"micro_batches": 2, "forward": "20 ms", "activation": "1 kB"},
}
FRAME_BYTES = 200


class Sender:
    """Worker h1 of the pipeline: of each flow a first and a last packet, each sent when the one
    before has arrived.
    """

    def __init__(self, lab: Lab, client: Client, source: Host, sink: Host) -> None:
        self._source, self._sink = source, sink
        job = client.job("p")
        one, other = (lab.fabric.hosts[name] for name in ("h1", "h2"))
        self._addresses = {
            flow.name: FlowAddress(
                one.mac, other.mac, one.ipv4, other.ipv4, 0xC000, job.number, flow.number
            )
            for flow in job.flows
        }

    def iterate(self, epoch: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the bounds (earliest, latest) of the times when the switch saw the head flow's
        first packet, and the last packet of all.
        """
        passed = []
        for name in sorted(self._addresses):
            frames = ShimFrames(self._addresses[name], epoch, FRAME_BYTES)
            for segment in (
                DataSegment(FRAME_BYTES, 2 * FRAME_BYTES),
                DataSegment(FRAME_BYTES, FRAME_BYTES, last=True),
            ):
                sent_at = time.monotonic()
                self._source.send(frames.data(segment))
                self._sink.receive()
                passed.append((sent_at, time.monotonic()))
        return passed[0], passed[-1]


def gauge(client: Client, name: str) -> dict[str, float]:
    """Return the value for each job."""
    found = text_string_to_metric_families(client.metrics())
    return {
        sample.labels["training_job"]: sample.value
        for one in found
        for sample in one.samples
        if sample.name == name
    }


def test_iterations_are_timed_by_the_switch(line: Service) -> None:
    lab = line.lab
    with lab.client(line.daemon) as client, lab.host("h1") as source, lab.host("h2") as sink:
        client.register_job(PIPELINE)
        settle(client)
        sender = Sender(lab, client, source, sink)
        epochs = [
            *range(250, 256),
            *range(4),
            *range(5, 9),
        ]  # over the wrap; the fifth after it is missed
        bounds = {epoch: sender.iterate(epoch) for epoch in epochs}
        # None from 250 to 251: the switch may have begun to follow the flow in its middle. None
        # across the gap.
        timed = [(a, b) for a, b in pairwise(epochs[1:]) if (b - a) % 256 == 1]
        until(
            lambda: len(client.job("p").iteration_times_s) >= len(timed),
            "not all iterations were reported",
        )
        until(
            lambda: len(client.job("p").echelonflows[0].tardiness_s) >= len(epochs),
            "not all flows were reported",
        )
        job = client.job("p")
        assert len(job.iteration_times_s) == len(timed)
        for (before, after), took_s in zip(timed, job.iteration_times_s, strict=True):
            (earliest, latest), _ = bounds[before]
            (next_earliest, next_latest), _ = bounds[after]
            assert next_earliest - latest - 1e-5 <= took_s <= next_latest - earliest + 1e-5
        # The second flow's last packet should pass 20 ms after the head flow's first.
        for epoch, late_s in zip(epochs, job.echelonflows[0].tardiness_s, strict=True):
            (began_earliest, began_latest), (ended_earliest, ended_latest) = bounds[epoch]
            head_latest_s = ended_latest - began_earliest
            assert (
                ended_earliest - began_latest - 0.02 - 1e-5
                <= late_s
                <= max(head_latest_s, 0) + 1e-5
            )
        assert job.echelonflows[0].observed_distances_s is not None
        until(
            lambda: client.jobs()[0].alone_tardiness_s is not None,
            "the job alone was not simulated",
        )
        (summary,) = client.jobs()
        # Alone, each flow has the link of 1 Gbit/s for itself when it starts, and should finish
        # then: 1 kB late.
        assert summary.alone_tardiness_s == pytest.approx(1000 * 8 / 1e9)
        assert summary.waiting_for == ()
        assert summary.last_iteration_s == job.iteration_times_s[-1]
        assert gauge(client, "echelon_job_iteration_seconds") == {"p": job.iteration_times_s[-1]}
        assert gauge(client, "echelon_job_iterations_total") == {"p": len(timed)}
        assert gauge(client, "echelon_job_tardiness_seconds") == {"p": summary.last_tardiness_s}
        client.remove_job("p")
        settle(client)
        assert gauge(client, "echelon_job_iteration_seconds") == {}
