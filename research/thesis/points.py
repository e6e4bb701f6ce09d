"""One point of a figure of chapter 3: a model trains against cross traffic of one kind and load,
under one policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

from echelon.model.quantities import duration_text, rate_text, size_text
from echelon.switches.targets import DEFAULT_TARGET
from echelon_lab.points.tasks import Task
from research.measure import Runner, measure
from research.settings import ExperimentSettings
from research.thesis.calibration import Calibration, calibrate
from research.thesis.configurations import CONFIGURATIONS, LINK_BPS
from research.thesis.models import FORWARD_PART, MODELS, ThesisModel
from research.thesis.policies import BASELINE, TRAINING_FIRST

CONFIGURATION_OF: Mapping[str, str] = {"iperf": "a", "websearch": "b", "burst": "b"}
"""Generators by kind of cross traffic (sections 3.2 and 3.3)."""
GENERATORS: Mapping[str, Mapping[str, Any]] = {
    "iperf": {"model": "long", "parallel": 8},
    # Gaps as the thesis's generator draws them: see `echelon_lab.traffic.generators`.
    "websearch": {"model": "consistent", "sizes": "web_search", "gaps": "poisson"},
    "burst": {"model": "burst", "sizes": "web_search", "gaps": "poisson"},
}
_SIZED = frozenset({"consistent", "burst"})

WARM_UP = 2
"""Iterations that do not count: queues and windows fill, and cross traffic begins at time 0."""
_QUEUE_S = Fraction(1, 10)
"""Depth of a queue as the time in which the link carries it: a router with deep buffers, so that
RDMA loses nothing.
"""
_WINDOW_PACKETS = 32
_RETRANSMIT_AFTER = "400 ms"
_LONGEST_S = 60
"""Virtual seconds that a point may take, if that leaves at least `_LEAST` iterations."""
_LEAST = 5
_ITERATIONS: Mapping[str, int] = {
    "bert-large": 20,
    "vgg-16": 25,
    "densenet-161": 40,
    "resnet-50": 60,
}
_QUICK_ITERATIONS: Mapping[str, int] = {
    "bert-large": 4,
    "vgg-16": 6,
    "densenet-161": 10,
    "resnet-50": 20,
}
_NUMBERS = {"source_port": 5001, "destination_port": 5002}
_CALIBRATION_ITERATIONS = 2


@dataclass(frozen=True, slots=True)
class Setup:
    """A setup that has a zero-load time of its own."""

    configuration: str
    model: str
    transport: str
    """rdma (emulated by the senders with the shim) or tcp."""


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement."""

    setup: Setup
    traffic: str
    """Kind of cross traffic, a key of `GENERATORS`; none without load."""
    load_gbps: Fraction
    """Requested load of the cross traffic, at the thesis's scale."""
    policy: str

    @property
    def name(self) -> str:
        setup = self.setup
        load = f"{float(self.load_gbps):g}"
        return f"{setup.configuration}-{self.traffic}-{setup.transport}-{setup.model}-{load}-{self.policy}"


def point(
    traffic: str,
    transport: str,
    model: str,
    load_gbps: Fraction,
    policy: str,
) -> Point:
    """Return a point.

    Without load, all kinds of cross traffic of a configuration are the same point.
    """
    setup = Setup(CONFIGURATION_OF[traffic], model, transport)
    return Point(setup, traffic if load_gbps else "none", load_gbps, policy)


def iterations_of(point: Point, settings: ExperimentSettings) -> int:
    """Return how many iterations are measured: fewer if each takes long."""
    by_model = _QUICK_ITERATIONS if settings.quick else _ITERATIONS
    most = by_model[point.setup.model]
    fitting = round(_LONGEST_S / expected_s(point))
    return max(min(most, fitting), min(most, _LEAST))


def fewest_of(point: Point, settings: ExperimentSettings) -> int:
    """Return how many iterations are measured under every policy.

    Where training does not go first they take longest, and so there are fewest.
    """
    return iterations_of(replace(point, policy=BASELINE), settings)


def expected_s(point: Point) -> float:
    """Return roughly what an iteration takes: sending on what is left of the link, computing as
    without load.
    """
    model = MODELS[point.setup.model]
    zero_s = float(model.zero_load_s)
    if point.policy in TRAINING_FIRST:
        return zero_s
    workers = len(CONFIGURATIONS[point.setup.configuration].ring)
    alone_s = float(model.sent_bytes(workers)) * 8 / LINK_BPS
    taken = float(point.load_gbps) * 1e9 / LINK_BPS
    left = max(0.02, 1 - taken)
    return max(zero_s, alone_s / left)


def document(
    point: Point,
    compute_s: Fraction,
    iterations: int,
    settings: ExperimentSettings,
) -> dict[str, Any]:
    """Return the scenario of a point as its file has it, with `iterations` in all."""
    configuration = CONFIGURATIONS[point.setup.configuration]
    link_bps = round(LINK_BPS * settings.scale)
    queue_bytes = round(_QUEUE_S * link_bps / 8)
    traffic = []
    if point.load_gbps:
        src, dst = configuration.cross
        load_bps = round(point.load_gbps * 10**9 * settings.scale)
        cross: dict[str, Any] = {
            "name": "cross",
            "src": src,
            "dst": dst,
            "load": rate_text(load_bps),
        }
        generator = GENERATORS[point.traffic]
        cross.update(generator)
        if generator["model"] in _SIZED:
            cross["size_scale"] = float(settings.scale)
        traffic.append(cross)
    transport = {
        "packet": size_text(settings.packet_bytes),
        "window": _WINDOW_PACKETS,
        # Like RDMA, which has no slow start.
        "initial_window": _WINDOW_PACKETS,
        "retransmit_after": _RETRANSMIT_AFTER,
    }
    return {
        "scenario": "thesis",
        "description": point.name,
        "fabric": configuration.fabric(link_bps),
        "jobs": [_job(point.setup, compute_s, settings)],
        "policies": [point.policy],
        "iterations": iterations,
        "seed": settings.seed,
        "transport": transport,
        "queue": size_text(queue_bytes),
        "traffic": traffic,
    }


def point_task(
    point: Point,
    compute_s: Fraction,
    settings: ExperimentSettings,
    make_runner: Callable[[], Runner],
) -> Task:
    """Return the measurement of a point whose model computes for `compute_s`."""
    iterations = iterations_of(point, settings)
    fewest = fewest_of(point, settings)
    identity = {
        "kind": "thesis-point",
        **asdict(point.setup),
        "traffic": point.traffic,
        "load_gbps": str(point.load_gbps),
        "policy": point.policy,
        "iterations": iterations,
        "fewest": fewest,
        "compute_s": str(compute_s),
        "settings": settings.identity(),
    }
    run = partial(_measure_point, point, compute_s, iterations, fewest, settings, make_runner)
    takes_s = iterations * expected_s(point)
    return Task(point.name, identity, run, cost=takes_s * _packets_per_s(point))


def calibration_task(
    setup: Setup,
    settings: ExperimentSettings,
    make_runner: Callable[[], Runner],
) -> Task:
    """Return the task that finds how long a model computes.

    It runs in virtual time, whatever fabric points are measured on.
    """
    name = f"{setup.configuration}-zero-{setup.transport}-{setup.model}"
    virtual = replace(
        settings,
        fabric="virtual",
        target=DEFAULT_TARGET,
        quick=False,
        seed=0,
    )
    identity = {"kind": "thesis-calibration", **asdict(setup), "settings": virtual.identity()}
    run = partial(_measure_calibration, setup, virtual, make_runner)
    model = MODELS[setup.model]
    return Task(name, identity, run, cost=float(model.gradient_bytes))


def calibration_of(result: Mapping[str, Any]) -> Calibration:
    """Return the calibration that the task stored."""
    compute_s = Fraction(result["compute_s"])
    iteration_s = Fraction(result["iteration_s"])
    return Calibration(compute_s, iteration_s, result["runs"])


def _measure_point(
    point: Point,
    compute_s: Fraction,
    iterations: int,
    fewest: int,
    settings: ExperimentSettings,
    make_runner: Callable[[], Runner],
) -> Mapping[str, Any]:
    configuration = CONFIGURATIONS[point.setup.configuration]
    link_bps = round(LINK_BPS * settings.scale)
    bottleneck = configuration.bottleneck(link_bps)
    return measure(
        document(point, compute_s, WARM_UP + iterations, settings),
        point.name,
        warm_up=WARM_UP,
        fewest=WARM_UP + fewest,
        bottlenecks=[bottleneck],
        make_runner=make_runner,
    )


def _measure_calibration(
    setup: Setup,
    settings: ExperimentSettings,
    make_runner: Callable[[], Runner],
) -> Mapping[str, Any]:
    point = Point(setup, "none", Fraction(0), "fifo")

    def iteration_s(compute_s: Fraction) -> Fraction:
        result = _measure_point(
            point,
            compute_s,
            _CALIBRATION_ITERATIONS,
            _CALIBRATION_ITERATIONS,
            settings,
            make_runner,
        )
        times = [Fraction(str(time_s)) for time_s in result["iterations_s"]]
        return sum(times, Fraction(0)) / len(times)

    calibration = calibrate(iteration_s, MODELS[setup.model].zero_load_s)
    return {
        "compute_s": str(calibration.compute_s),
        "iteration_s": str(calibration.iteration_s),
        "runs": calibration.runs,
    }


def _job(
    setup: Setup,
    compute_s: Fraction,
    settings: ExperimentSettings,
) -> dict[str, Any]:
    model: ThesisModel = MODELS[setup.model]
    configuration = CONFIGURATIONS[setup.configuration]
    forward_s = compute_s * FORWARD_PART
    gradient_bytes = round(model.gradient_bytes * settings.scale)
    section = {
        "forward": duration_text(forward_s),
        "backward": duration_text(compute_s - forward_s),
        "buckets": model.buckets,
        "gradient": size_text(gradient_bytes),
    }
    job: dict[str, Any] = {
        "job": "training",
        "parallelism": "data",
        "workers": list(configuration.ring),
        "data": section,
    }
    if setup.transport == "tcp":
        # Half of the time in which a connection is silent for certain: the forward pass.
        gap_s = max(forward_s / 2, Fraction(1, 1000))
        job["recognition"] = {
            "by": "bytes",
            "protocol": "tcp",
            **_NUMBERS,
            "idle_gap": duration_text(gap_s),
        }
    return job


def _packets_per_s(point: Point) -> float:
    """Return a cost in proportion to the packets of a second: the ring's at the rate of the job,
    and the cross traffic's."""
    model = MODELS[point.setup.model]
    ring = 4 * float(model.sent_bytes(4)) * 8e-9
    return float(point.load_gbps) + ring / expected_s(point)
