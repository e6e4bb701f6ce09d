"""One point: VGG-16 in four GPipe stages on both sides of a link with web-search traffic, under one
policy.

The stages alternate between the sides of a dumbbell, so that every activation and every gradient
crosses the link of 25 Gbit/s (scaled) in its middle; servers reach their switch four times as fast
(100 Gbit/s). Cross traffic of the same load crosses the link in both directions, between two more
servers.

The pipeline is that of PipeDream's measured profile of VGG-16, mini-batches of 128 (D. Narayanan et
al., SOSP '19; msr-fiddle/pipedream, profiler/image_classification/profiles/vgg16, MIT licence), cut
where the stages' compute times are most equal, in eight micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from echelon.model.fabric.builders import dumbbell
from echelon.model.quantities import duration_text, rate_text, size_text
from echelon_lab.points.tasks import Task
from research.measure import Bottleneck, Runner, measure
from research.settings import ExperimentSettings

BASELINE, SCHEDULED = "fifo", "echelon"
"""The policy without scheduling, and the one that is compared with all others."""
POLICIES = (BASELINE, "fair", "varys", SCHEDULED)
SIDES = ("a1", "a2", "a3"), ("b1", "b2", "b3")
STAGES = ("a1", "b1", "a2", "b2")
CROSS = (("a3", "b3"), ("b3", "a3"))
"""Source and destination, in each direction."""
FORWARD_MS = (90.9, 47.8, 50.3, 62.9)
BACKWARD_MS = (143.5, 106.7, 87.5, 101.0)
ACTIVATION_MB = (1644, 822, 411)
"""Activations of a mini-batch between two stages, in bytes; gradients are as large."""
MICRO_BATCHES = 8
LINK_BPS = 25_000_000_000

WARM_UP = 2
ITERATIONS = 12
QUICK_ITERATIONS = 3
_QUEUE_S = Fraction(1, 5)
"""Depth of a queue as the time in which the link carries it: deep, so that RDMA loses nothing."""
_WINDOW_PACKETS = 16
_NIC = 4


@dataclass(frozen=True, slots=True)
class PipelinePoint:
    """One measurement."""

    load: Fraction
    """Load, as part of each link."""
    policy: str

    @property
    def name(self) -> str:
        return f"pipeline-{float(self.load):g}-{self.policy}"


def document(
    point: PipelinePoint,
    iterations: int,
    settings: ExperimentSettings,
) -> dict[str, Any]:
    """Return the scenario of a point as its file has it, with `iterations` in all."""
    link_bps = round(LINK_BPS * settings.scale)
    queue_bytes = round(_QUEUE_S * link_bps / 8)
    traffic = []
    load_bps = round(point.load * link_bps)
    if load_bps:
        traffic = [_cross(src, dst, load_bps, settings) for src, dst in CROSS]
    transport = {
        "packet": size_text(settings.packet_bytes),
        "window": _WINDOW_PACKETS,
        "initial_window": _WINDOW_PACKETS,
        "retransmit_after": "400 ms",
    }
    return {
        "scenario": "pipelines",
        "description": point.name,
        "fabric": dumbbell(len(SIDES[0]), link_bps, _NIC * link_bps),
        "jobs": [_job(settings)],
        "policies": [point.policy],
        "iterations": iterations,
        "seed": settings.seed,
        "transport": transport,
        "queue": size_text(queue_bytes),
        "traffic": traffic,
    }


def _cross(
    src: str,
    dst: str,
    load_bps: int,
    settings: ExperimentSettings,
) -> dict[str, Any]:
    return {
        "name": f"to-{dst}",
        "model": "consistent",
        "src": src,
        "dst": dst,
        "load": rate_text(load_bps),
        "sizes": "web_search",
        "size_scale": float(settings.scale),
    }


def point_task(
    point: PipelinePoint,
    settings: ExperimentSettings,
    make_runner: Callable[[], Runner],
) -> Task:
    """Return the measurement of a point."""
    if settings.quick:
        iterations = QUICK_ITERATIONS
    else:
        iterations = ITERATIONS
    identity = {
        "kind": "pipeline-point",
        "load": str(point.load),
        "policy": point.policy,
        "iterations": iterations,
        "fewest": iterations,
        "settings": settings.identity(),
    }
    run = partial(_measure, point, iterations, settings, make_runner)
    return Task(point.name, identity, run, cost=1 + float(point.load))


def _measure(
    point: PipelinePoint,
    iterations: int,
    settings: ExperimentSettings,
    make_runner: Callable[[], Runner],
) -> Mapping[str, Any]:
    link_bps = round(LINK_BPS * settings.scale)
    bottlenecks = [Bottleneck("src", side, link_bps) for side in SIDES]
    in_all = WARM_UP + iterations
    return measure(
        document(point, in_all, settings),
        point.name,
        warm_up=WARM_UP,
        fewest=in_all,
        bottlenecks=bottlenecks,
        make_runner=make_runner,
    )


def _job(settings: ExperimentSettings) -> dict[str, Any]:
    def part(milliseconds: float) -> str:
        batch_s = Fraction(str(milliseconds)) / 1000
        return duration_text(batch_s / MICRO_BATCHES)

    def activation(size_mb: int) -> str:
        batch_bytes = size_mb * 10**6 * settings.scale
        return size_text(round(batch_bytes / MICRO_BATCHES))

    section = {
        "micro_batches": MICRO_BATCHES,
        "forward": [part(time_ms) for time_ms in FORWARD_MS],
        "backward": [part(time_ms) for time_ms in BACKWARD_MS],
        "activation": [activation(size_mb) for size_mb in ACTIVATION_MB],
    }
    return {
        "job": "training",
        "parallelism": "pipeline",
        "workers": list(STAGES),
        "pipeline": section,
    }
