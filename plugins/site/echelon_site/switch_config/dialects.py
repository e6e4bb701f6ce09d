"""The dialects of switch configurations: the entry points `echelon.switch_configs`.

An entry's name is what `--for` takes. Its object is a class derived from `Dialect`, which is made
without arguments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar

from echelon.cli.usage import load_plug_in
from echelon.model.documents import DocumentError, suggestion
from echelon_site.switch_config.queues import PortQueues

GROUP = "echelon.switch_configs"

Config = Mapping[str, Any]
"""A configuration: mappings in mappings, with the settings as their leaves."""


@dataclass(frozen=True, slots=True)
class SwitchPorts:
    """The ports of a switch, as the fabric file has them."""

    switch: str
    numbers: tuple[int, ...]
    """The numbers of the ports with links, in ascending order."""
    lanes: int
    """The lanes of each port, for names of ports that no configuration gives."""
    file: str = ""
    """The file with the given configuration, as errors name it."""


class Dialect(ABC):
    """A vendor's way to say what queues do. The docstring of a class says what it writes."""

    suffix: ClassVar[str]
    """The suffix of its files, without a dot."""

    @abstractmethod
    def parse(self, text: str, file: str) -> Config:
        """Return the configuration in a text. Raises `DocumentError`."""

    @abstractmethod
    def configure(self, queues: PortQueues, ports: SwitchPorts, current: Config) -> Config:
        """Return a configuration with these queues, which otherwise is as `current`.

        An empty one is of a switch of which nothing is known. Raises `QueueError` for queues that
        these switches do not have, and `DocumentError` for a `current` of another switch.
        """

    @abstractmethod
    def text(self, config: Config) -> str:
        """Return the file of a configuration."""


@cache
def _registered() -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP))}


def load_dialect(name: str) -> Dialect:
    """Return the dialect of that name. Raises `DocumentError` if there is none."""
    entry = _registered().get(name)
    if entry is None:
        reason = f"'{name}' is no kind of switch ({suggestion(name, _registered())})"
        raise DocumentError("--for", "", reason, code="unknown-name")
    dialect: Dialect = load_plug_in(entry)()
    return dialect
