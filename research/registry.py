"""The experiments by name. Nothing is imported before it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from research.experiment import Experiment


@dataclass(frozen=True, slots=True)
class Entry:
    """The place of an experiment."""

    about: str
    """One line, for lists."""
    module: str
    attribute: str

    def load(self) -> Experiment:
        return cast("Experiment", getattr(import_module(self.module), self.attribute))


EXPERIMENTS: Mapping[str, Entry] = {
    "thesis-iperf": Entry(
        "Salamy's thesis, section 3.2: four models against long flows out of a server's interface",
        "research.thesis.experiments",
        "IPERF",
    ),
    "thesis-websearch": Entry(
        "Salamy's thesis, section 3.3.1: the models against web-search traffic into a server's"
        " link",
        "research.thesis.experiments",
        "WEBSEARCH",
    ),
    "thesis-burst": Entry(
        "Salamy's thesis, section 3.3.2: the models against bursts of web-search traffic",
        "research.thesis.experiments",
        "BURST",
    ),
    "pipelines": Entry(
        "A four-stage GPipe job against web-search traffic on its links, under four policies",
        "research.pipelines.experiment",
        "PIPELINES",
    ),
}
