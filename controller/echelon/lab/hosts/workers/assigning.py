"""The assignment of each host, from a scenario and the numbers that the controller gave its jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon.errors import RunError
from echelon.fabric.model import Fabric
from echelon.jobs.graph import Job
from echelon.jobs.spec import JobSpec, RecognitionSpec
from echelon.lab.hosts.workers.assignment import (
    Assignment,
    Carriage,
    ConstantRate,
    ShimCarriage,
    TcpCarriage,
    WorkerJob,
)
from echelon.lab.scenarios.scenario import Scenario
from echelon.lab.traffic.wire import DEFAULT_PORT

_BACKGROUND_PORTS = 0x8000
_ETHERNET_BYTES = 14
_MTU_BYTES = 1500

Numbers = Mapping[str, tuple[int, Mapping[str, int]]]
"""The number of each job in the shim header, and the numbers of its flows."""


def mtu_bytes(scenario: Scenario) -> int:
    """Return the MTU of the links that the scenario needs."""
    frames = [scenario.transport.packet_bytes, *(traffic.packet_bytes for traffic in scenario.background)]
    return max(_MTU_BYTES, *(frame - _ETHERNET_BYTES for frame in frames))


def emulated(scenario: Scenario) -> Sequence[Job]:
    """Return the jobs whose workers are not programs."""
    return [job for job in scenario.jobs if job.name not in scenario.commands]


def participants(scenario: Scenario) -> list[str]:
    """Return the hosts that emulate a job, or send or receive background traffic, in the order of the fabric."""
    busy = {worker for job in emulated(scenario) for worker in job.workers}
    busy |= {end for traffic in scenario.background for end in (traffic.src, traffic.dst)}
    return [name for name in scenario.fabric.hosts if name in busy]


def check_senders(scenario: Scenario) -> None:
    """Raise `RunError` for a job whose flows no sender here can send."""
    for job in emulated(scenario):
        carriage = _carriage(scenario.specs[job.name], 0, {})
        if scenario.traffic and isinstance(carriage, TcpCarriage) and carriage.destination_port == DEFAULT_PORT:
            # Both would listen, and the kernel would spread connections over the two.
            raise RunError(f"job {job.name}: port {DEFAULT_PORT} is for cross traffic (give the job another port)")


def assign(scenario: Scenario, numbers: Numbers, control: Path) -> dict[str, Assignment]:
    """Return the assignments by host. `control` is the coordinator's socket.

    Raises `RunError` for a job whose flows no sender here can send.
    """
    jobs = emulated(scenario)
    carriages = {job.name: _carriage(scenario.specs[job.name], *numbers[job.name]) for job in jobs}
    transport = scenario.transport
    return {
        host: Assignment(
            host=host,
            control=str(control),
            addresses={name: of.ipv4 for name, of in scenario.fabric.hosts.items()},
            jobs=tuple(
                WorkerJob(
                    job,
                    {d.iteration: d.delay_s for d in scenario.delays if (d.job, d.worker) == (job.name, host)},
                    carriages[job.name],
                )
                for job in jobs
                if host in job.workers
            ),
            rate_bps=_rate_bps(scenario.fabric, host, transport.host_rate_bps),
            packet_bytes=transport.packet_bytes,
            window_packets=transport.window_packets,
            initial_window_packets=transport.initial_window_packets,
            retransmit_after_ns=max(1, round(transport.retransmit_after_s * 1_000_000_000)),
            tcp_window_bytes=transport.receive_window_bytes,
            ecn=transport.ecn,
            computing=scenario.compute,
            sends=tuple(
                ConstantRate(traffic.dst, traffic.rate_bps, traffic.packet_bytes, _BACKGROUND_PORTS + index)
                for index, traffic in enumerate(scenario.background)
                if traffic.src == host
            ),
            discards=any(traffic.dst == host for traffic in scenario.background),
        )
        for host in participants(scenario)
    }


def _rate_bps(fabric: Fabric, host: str, host_rate_bps: int | None) -> int:
    (switch,) = fabric.ports[host].values()
    link_bps = fabric.rate_bps[host, switch]
    return link_bps if host_rate_bps is None else min(link_bps, host_rate_bps)


def _carriage(spec: JobSpec, number: int, flows: Mapping[str, int]) -> Carriage:
    recognition = spec.recognition
    return _CARRIAGES[recognition.by, recognition.protocol or "tcp"](spec.job, recognition, number, flows)


def _shim(_job: str, _recognition: RecognitionSpec, number: int, flows: Mapping[str, int]) -> Carriage:
    return ShimCarriage(number, flows)


def _tcp(job: str, recognition: RecognitionSpec, _number: int, _flows: Mapping[str, int]) -> Carriage:
    source, destination = recognition.source_port, recognition.destination_port
    assert source is not None  # checked where the file was read
    assert destination is not None
    if source == destination:
        raise RunError(
            f"job {job}: source and destination port are both {source}: workers that send to each other would have "
            "one connection for both (give them different ports)"
        )
    return TcpCarriage(source, destination)


def _plain_udp(job: str, _recognition: RecognitionSpec, _number: int, _flows: Mapping[str, int]) -> Carriage:
    raise RunError(f"job {job}: workers cannot send plain UDP (recognise the job by shim, or by bytes over tcp)")


_CARRIAGES = {("shim", "tcp"): _shim, ("bytes", "tcp"): _tcp, ("bytes", "udp"): _plain_udp}
"""Makers of carriages by `by` and `protocol` of the job's recognition."""
