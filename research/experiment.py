"""The interface of an experiment: measurements in stages, then a report of all of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Protocol

from echelon.model.documents import DocumentError, suggestion
from echelon_lab.points.store import PointStore, Stored
from echelon_lab.points.tasks import Task
from research.measure import Runner
from research.settings import ExperimentSettings


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of an experiment to run; empty: all that it has."""

    models: tuple[str, ...] = ()
    loads: tuple[Fraction, ...] = ()
    """Loads, as parts of the bottleneck's capacity."""
    policies: tuple[str, ...] = ()

    def check(self, models: Iterable[str], policies: Iterable[str]) -> None:
        """Raise `DocumentError` for a model or policy that an experiment does not have, or an
        impossible load.
        """
        _check_names("--model", self.models, list(models))
        _check_names("--policy", self.policies, list(policies))
        for load in self.loads:
            if not 0 <= load < 1:
                raise DocumentError(
                    "--load",
                    "",
                    f"{load} is not a share of the link (give a number from 0 to below 1, such as"
                    " 0.8)",
                )


def _check_names(option: str, names: Iterable[str], present: Sequence[str]) -> None:
    for name in names:
        if name not in present:
            reason = f"the experiment has no '{name}' ({suggestion(name, present)})"
            raise DocumentError(option, "", reason)


Stages = Generator[Sequence[Task], Mapping[str, Stored], None]
"""A generator that yields tasks, receives what they measured (by name), and yields what can be
measured then.
"""


class Experiment(Protocol):
    """One entry of `registry`."""

    def stages(
        self,
        settings: ExperimentSettings,
        selection: Selection,
        make_runner: Callable[[], Runner],
    ) -> Stages:
        """Return the measurements.

        Raise `DocumentError` for a selection that the experiment does not have.
        """

    def report(
        self,
        store: PointStore,
        settings: ExperimentSettings,
        out: Path,
    ) -> list[Path]:
        """Draw and write what `store` has into the directory `out`.

        Return the files, the report first.
        """
