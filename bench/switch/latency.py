"""One-way latency: how long packets take from the generator's hand to the far end of the switch.

One packet of each burst is followed, each place in the burst in turn. It is sent at the instant at
which the generator hands its burst to the kernel, and arrives when the kernel takes it from the far
end of the line. Both are times of the same clock, that of the machine. So the time includes the
veth pairs and waiting behind up to 15 others of the same burst, with every switch alike. The kernel
filters the other packets out, and nobody reads the rest before the run is over, so that the
measurement takes little from what it measures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .generator import BURST_FRAMES, INDEX_AT, ROUND_AT, Generator, Sent
from .network import received_frames
from .sink import Arrival, Capture, CaptureError, Instruction

_KEPT_BYTES = ROUND_AT.stop
_GRACE_S = 0.1

# Burst n of a cycle is frames 16 n to 16 n + 15; of it, frame n modulo 16 is followed. Numbers of
# classic BPF: include/uapi/linux/bpf_common.h and filter.h.
FOLLOWED = (
    Instruction(0x28, 0, 0, INDEX_AT.start),  # A = the index, two bytes
    Instruction(0x07, 0, 0, 0),  # X = A
    Instruction(0x74, 0, 0, BURST_FRAMES.bit_length() - 1),  # A >>= 4
    Instruction(0xAC, 0, 0, 0),  # A ^= X
    Instruction(0x54, 0, 0, BURST_FRAMES - 1),  # A &= 15
    Instruction(0x15, 0, 1, 0),  # if A = 0
    Instruction(0x06, 0, 0, _KEPT_BYTES),  # keep the head
    Instruction(0x06, 0, 0, 0),  # else nothing
)


@dataclass(frozen=True, slots=True)
class Latency:
    """The percentiles of one run, in nanoseconds."""

    p50_ns: int
    p99_ns: int
    followed: int
    """packets that arrived of those that were followed"""


def measure(
    generator: Generator,
    name: str,
    rate_pps: float,
    duration_s: float,
    far_end: str,
) -> Latency:
    """Return the latency of the frames of `name` at a rate. Raise CaptureError if none arrives."""
    with Capture(far_end, _KEPT_BYTES, FOLLOWED) as capture:
        sent = generator.run(name, rate_pps, duration_s, _GRACE_S, timed=True)
    times_ns = sorted(latencies_ns(sent, capture.arrivals))
    if not times_ns:
        raise CaptureError(
            f"of the packets that were followed, none arrived ({received_frames(far_end)} of all)"
        )
    count = len(times_ns)
    median_ns = times_ns[count // 2]
    p99_ns = times_ns[count * 99 // 100]
    return Latency(median_ns, p99_ns, count)


def latencies_ns(sent: Sent, arrivals: Iterable[Arrival]) -> list[int]:
    """Return the time that each frame took, by the numbers in it."""
    bursts_in_cycle = sent.cycle_frames // BURST_FRAMES
    times_ns = []
    for arrival in arrivals:
        index = int.from_bytes(arrival.head[INDEX_AT], "big")
        turn = int.from_bytes(arrival.head[ROUND_AT], "big") - sent.first_turn & 0xFFFF
        burst = turn * bursts_in_cycle + index // BURST_FRAMES
        if burst < len(sent.handed_ns):  # not a late one of the run before
            times_ns.append(arrival.time_ns - sent.handed_ns[burst])
    return times_ns
