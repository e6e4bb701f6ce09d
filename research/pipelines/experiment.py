"""The sweep: every policy at every load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

from echelon_lab.points.store import PointStore
from research.experiment import Selection, Stages
from research.measure import Runner
from research.pipelines.points import POLICIES, PipelinePoint, point_task
from research.settings import ExperimentSettings

LOADS = tuple(Fraction(tenths, 10) for tenths in (0, 2, 4, 6, 8))
MODEL = "vgg-16"
_QUICK_LOADS = (Fraction(0), Fraction(6, 10))


@dataclass(frozen=True, slots=True)
class PipelinesExperiment:
    """The experiment, whose points are all independent of each other."""

    def stages(
        self,
        settings: ExperimentSettings,
        selection: Selection,
        make_runner: Callable[[], Runner],
    ) -> Stages:
        selection.check((MODEL,), POLICIES)
        loads = selection.loads
        if not loads:
            loads = _QUICK_LOADS if settings.quick else LOADS
        wanted = selection.policies or POLICIES
        policies = [policy for policy in POLICIES if policy in wanted]
        tasks = []
        for load, policy in product(loads, policies):
            point = PipelinePoint(load, policy)
            tasks.append(point_task(point, settings, make_runner))
        yield tasks

    def report(
        self,
        store: PointStore,
        settings: ExperimentSettings,
        out: Path,
    ) -> list[Path]:
        from research.pipelines.report import write

        return write(store, settings, out)


PIPELINES = PipelinesExperiment()
