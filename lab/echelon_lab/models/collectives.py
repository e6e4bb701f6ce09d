"""What NCCL needs for a collective inside a host.

It is a ring: latencies of its steps, and the bytes at the bandwidth of the bus. Latencies are in
NVIDIA/nccl, src/graph/tuning.cc, of releases with NVLS, in microseconds: the protocol Simple
needs 8.4, and 3.4 for a step over NVLink or 14 over a network; LL128 needs 14, 1.9 and 4, and
carries 120 bytes of 128. NCCL takes the faster one.

NCCL has one set of latencies for all of NVIDIA's GPUs; they are carried over to those of AMD and
Google. The bandwidth of the bus is in `execution`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from echelon_lab.models.launches import US


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol of NCCL."""

    base_us: Fraction
    step_us: Fraction
    network_step_us: Fraction
    carried: Fraction
    """The part of the bus that carries data."""


SIMPLE = Protocol(Fraction("8.4"), Fraction("3.4"), Fraction(14), Fraction(1))
LL128 = Protocol(Fraction(14), Fraction("1.9"), Fraction(4), Fraction(120, 128))


@dataclass(frozen=True, slots=True)
class Bus:
    """The way of a ring: its bytes a second, and the hosts that it passes."""

    bytes_per_s: Fraction
    hosts: int = 1


def all_reduce_s(
    bus: Bus,
    ranks: int,
    size_bytes: int,
) -> Fraction:
    """Return the seconds of an all-reduce: two rounds."""
    return _ring_s(bus, ranks, size_bytes, rounds=2)


def round_s(
    bus: Bus,
    ranks: int,
    size_bytes: int,
) -> Fraction:
    """Return the seconds of an all-gather, a reduce-scatter or an all-to-all of so many bytes."""
    return _ring_s(bus, ranks, size_bytes, rounds=1)


def _ring_s(
    bus: Bus,
    ranks: int,
    size_bytes: int,
    *,
    rounds: int,
) -> Fraction:
    if ranks == 1 or size_bytes == 0:
        return Fraction(0)
    steps = rounds * (ranks - 1)
    network_steps = rounds * (bus.hosts - 1)
    moved = Fraction(steps * size_bytes, ranks)
    by_protocol = []
    for protocol in (SIMPLE, LL128):
        latency_us = protocol.base_us
        latency_us += (steps - network_steps) * protocol.step_us
        latency_us += network_steps * protocol.network_step_us
        carried_per_s = bus.bytes_per_s * protocol.carried
        by_protocol.append(latency_us * US + moved / carried_per_s)
    return min(by_protocol)
