"""The interface of a target: its options, capabilities, queues, and launchers for test beds.

Each target is an entry point of the group `echelon.targets`, under its own name. Listing the names
imports no target. A distribution adds a target by an entry point that names a subclass of
`Target`::

    [project.entry-points."echelon.targets"]
    stub = "my_package.stub:Stub"
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from echelon.model.documents import Section
    from echelon.model.p4program import P4Program
    from echelon.switches.lowering.capabilities import Capabilities
    from echelon.switches.southbound.queues import QueueDriver
    from echelon.switches.southbound.session import SessionFactory
    from echelon.switches.targets.launching import SwitchLauncher
    from echelon.switches.targets.rates import QueueRates
    from echelon.switches.targets.virtual import VirtualFabricFactory

O = TypeVar("O", bound="Section")  # noqa: E741

GROUP = "echelon.targets"

DEFAULT_TARGET = "softswitch"
"""The target where none is named."""
UNRANKED_TARGET = "dscp"
"""The same where hosts rank."""


@dataclass(frozen=True, slots=True)
class Site:
    """A switch of the fabric, as far as its queues are concerned."""

    switch: str
    port_rates_bps: Mapping[int, int]
    """The rate of every egress port that the fabric uses, in bits per second, by port."""


class Target(ABC, Generic[O]):
    """A kind of switch.

    Subclasses must be quick to import: they import what they need when it is needed.
    """

    name: ClassVar[str]
    """The name of the entry point, as a switch's entry in the service's configuration gives it."""
    ranks: ClassVar[bool] = True
    """Whether its switches rank packets; if not, hosts do."""
    needs_address: ClassVar[bool] = True
    """Whether its switches must be reached; others may be configured by other means."""
    limits: ClassVar[str] = ""
    """The limits that runs should name beforehand."""
    architecture: ClassVar[str] = "v1model"
    """The P4 architecture that the program is compiled for."""
    options: type[O]
    """The keys of a switch's entry in the configuration besides address, target and TLS. Validators
    find the switch's port numbers in the validation context under `ports`, where the caller knows
    them."""

    @abstractmethod
    def capabilities(self, options: O) -> Capabilities:
        """Return what a switch with these options can carry."""

    @abstractmethod
    def queue_driver(self, options: O, site: Site) -> QueueDriver:
        """Return the driver of one switch's queues, for the switch's whole life.

        It connects to nothing yet.
        """

    def session_factory(self, options: O) -> SessionFactory:
        """Return the maker of sessions with such a switch: over P4Runtime, unless overridden."""
        from echelon.switches.southbound.session import SwitchSession

        return SwitchSession

    def program(self, options: O | None = None) -> P4Program:
        """Return the P4 program for a switch with these options.

        Raise FileNotFoundError if it was not compiled.
        """
        from echelon.model.p4program import program
        from echelon.switches.targets.programs import RANKING, find_program

        extended = find_program(getattr(options, "program", RANKING))
        if extended is None:
            return program(self.architecture)
        return program(self.architecture, extended.builds / self.architecture)

    def aggregating(self) -> O | None:
        """Return the options of a switch whose program adds up flows; None: no program does.

        The switch is in virtual time.
        """
        if "program" not in self.options.model_fields:
            return None
        from echelon.switches.targets.programs import program_names

        for name in program_names():
            options = self.options.model_validate({"program": name})
            if self.capabilities(options).trees is not None:
                return options
        return None

    def launcher(self) -> SwitchLauncher | None:
        """Return the launcher of switches as processes on interfaces; None: there is none."""
        return None

    def virtual_fabric(self) -> VirtualFabricFactory | None:
        """Return the builder of a fabric of such switches in virtual time; None: there is none."""
        return None

    def virtual_packets_per_s(self) -> int:
        """Return about how many packets switches in virtual time handle in a second of real time.

        End hosts are included. One packet counts at each switch on its way.
        """
        return 20_000

    def queue_rates(self, entry: Mapping[str, object]) -> QueueRates:
        """Return the rates of queues of the running switch with this entry, for PTF tests."""
        from echelon.switches.targets.rates import QueueRates

        return QueueRates()


class Registry(Mapping[str, Target[Any]]):
    """The targets by name, in the order of their names.

    A target is loaded when it is first asked for.
    """

    def __init__(self) -> None:
        self._loaded: dict[str, Target[Any]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._registered)

    def __len__(self) -> int:
        return len(self._registered)

    def __getitem__(self, name: str) -> Target[Any]:
        """Return the target of that name.

        Raise `KeyError` if there is none, and `DocumentError` for one that cannot be loaded.
        """
        if name not in self._loaded:
            self._loaded[name] = _load(self._registered[name])
        return self._loaded[name]

    @cached_property
    def _registered(self) -> dict[str, EntryPoint]:
        # Imported here because it takes longer than the rest of `echelon --help`.
        from importlib.metadata import entry_points

        by_name: dict[str, EntryPoint] = {}
        for entry in sorted(entry_points(group=GROUP)):
            first = by_name.setdefault(entry.name, entry)
            if first.value != entry.value:
                from echelon.model.documents import DocumentError

                reason = (
                    f"two distributions register it: {first.value} and {entry.value} (remove one)"
                )
                raise DocumentError(f"target {entry.name}", "", reason)
        return by_name


def _load(entry: EntryPoint) -> Target[Any]:
    from echelon.model.documents import DocumentError
    from echelon.switches.targets.loading import load_entry

    where = f"target {entry.name}"
    kind = load_entry(entry, where)
    if not (isinstance(kind, type) and issubclass(kind, Target) and kind.name == entry.name):
        reason = (
            f"{entry.value} is not a Target of that name (subclass echelon.switches.targets.Target,"
            " and set its `name`)"
        )
        raise DocumentError(where, "", reason)
    return kind()


TARGETS = Registry()
"""All targets that installed distributions register."""


def find_target(
    name: object,
    file: str,
    path: str = "",
    targets: Mapping[str, Target[Any]] = TARGETS,
) -> Target[Any]:
    """Return the target `name` that `file` asks for at the key `path`.

    Raise `DocumentError` for an unknown one, with the names that there are.
    """
    from echelon.model.documents import DocumentError, suggestion
    from echelon.model.extras import plug_in
    from echelon.model.quantities import excerpt

    if isinstance(name, str) and name in targets:
        return targets[name]
    if DEFAULT_TARGET not in targets:
        reason = (
            "Echelon's own targets are not registered (run: python -m pip install --editable .)"
        )
        raise DocumentError(file, path, reason)
    reason = (
        plug_in(GROUP, str(name))
        or f"unknown target {excerpt(name)} ({suggestion(str(name), targets)})"
    )
    raise DocumentError(file, path, reason, code="unknown-target")
