"""The three sweeps of chapter 3."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

from echelon_lab.points.store import PointStore
from research.experiment import Selection, Stages
from research.measure import Runner, virtual_runner
from research.settings import ExperimentSettings
from research.thesis.models import MODELS
from research.thesis.points import Point, calibration_of, calibration_task, point, point_task
from research.thesis.policies import POLICIES
from research.thesis.published import HEAVY, LIGHT, LINK_GBPS

_THOUSANDTHS = (0, 100, 200, 300, 400, 500, 600, 700, 800, 860, 920, 960)
LOADS = tuple(Fraction(thousandths, 1000) for thousandths in _THOUSANDTHS)
"""Loads as parts of the link; 30 % and 80 % are those of figure 3-5."""
_QUICK_MODELS = ("resnet-50",)
_QUICK_LOADS = (
    Fraction(0),
    LIGHT,
    Fraction(5, 10),
    Fraction(6, 10),
    Fraction(7, 10),
    HEAVY,
    Fraction(9, 10),
)


@dataclass(frozen=True, slots=True)
class Series:
    """Curves that have kind of traffic, transport and loads in common."""

    traffic: str
    transport: str
    models: tuple[str, ...] = tuple(MODELS)
    loads: tuple[Fraction, ...] = LOADS
    policies: tuple[str, ...] = POLICIES


@dataclass(frozen=True, slots=True)
class ThesisExperiment:
    """The curves of one section, and those of others that it is compared with."""

    name: str
    series: tuple[Series, ...]

    def points(self, settings: ExperimentSettings, selection: Selection) -> list[Point]:
        """Return the points, each once. Raise as `Selection.check`."""
        selection.check(MODELS, POLICIES)
        quick_models = _QUICK_MODELS if settings.quick else ()
        points: dict[Point, None] = {}
        for series in self.series:
            models = _chosen(series.models, selection.models, quick_models)
            loads = _loads(series, settings, selection)
            policies = _chosen(series.policies, selection.policies, ())
            for model, load, policy in product(models, loads, policies):
                load_gbps = load * Fraction(LINK_GBPS)
                measured_point = point(series.traffic, series.transport, model, load_gbps, policy)
                points[measured_point] = None
        return list(points)

    def stages(
        self,
        settings: ExperimentSettings,
        selection: Selection,
        make_runner: Callable[[], Runner],
    ) -> Stages:
        """Yield the calibration of the models, then the points."""
        points = self.points(settings, selection)
        setups = dict.fromkeys(measured_point.setup for measured_point in points)
        calibrations = {}
        for setup in setups:
            calibrations[setup] = calibration_task(setup, settings, virtual_runner)
        stored = yield list(calibrations.values())

        compute_s = {}
        for setup, calibration in calibrations.items():
            result = stored[calibration.name].result
            compute_s[setup] = calibration_of(result).compute_s
        tasks = []
        for measured_point in points:
            setup_compute_s = compute_s[measured_point.setup]
            task = point_task(measured_point, setup_compute_s, settings, make_runner)
            tasks.append(task)
        yield tasks

    def report(
        self,
        store: PointStore,
        settings: ExperimentSettings,
        out: Path,
    ) -> list[Path]:
        """Report this and the other sweeps of the thesis, as far as they are in the same store."""
        from research.thesis.report import write

        return write(store, settings, out)


def _chosen(
    has: Sequence[str],
    selected: Sequence[str],
    quick: Sequence[str],
) -> list[str]:
    wanted = selected or quick or has
    return [name for name in has if name in wanted]


def _loads(
    series: Series,
    settings: ExperimentSettings,
    selection: Selection,
) -> Sequence[Fraction]:
    """Return the loads; those that the command line gives are run even if no figure has them."""
    if selection.loads:
        return selection.loads
    if settings.quick and series.loads == LOADS:
        return _QUICK_LOADS
    return series.loads


_COMPARED = ("bert-large", "vgg-16", "resnet-50")
"""The models of figure 3-5."""
_COMPARED_LOADS = (Fraction(0), LIGHT, HEAVY)
"""Its loads."""
_TCP_WEBSEARCH = (
    Series("websearch", "tcp", ("bert-large", "resnet-50"), policies=("fifo",)),
    Series("websearch", "tcp", ("vgg-16",), _COMPARED_LOADS, ("fifo",)),
)
IPERF = ThesisExperiment("thesis-iperf", (Series("iperf", "rdma"),))
WEBSEARCH = ThesisExperiment("thesis-websearch", (Series("websearch", "rdma"), *_TCP_WEBSEARCH))
BURST = ThesisExperiment(
    "thesis-burst",
    (
        Series("burst", "tcp"),
        Series("websearch", "tcp", _COMPARED, _COMPARED_LOADS, ("fifo",)),
    ),
)
THESIS: Mapping[str, ThesisExperiment] = {
    experiment.name: experiment for experiment in (IPERF, WEBSEARCH, BURST)
}
