"""The interface of a target: its options, its capabilities, its queues, and its launchers for test beds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from echelon.documents import Section
    from echelon.lowering.capabilities import Capabilities
    from echelon.p4program import P4Program
    from echelon.southbound.queues import QueueDriver
    from echelon.southbound.session import SessionFactory
    from echelon.targets.launching import SwitchLauncher
    from echelon.targets.rates import QueueRates
    from echelon.targets.virtual import VirtualFabricFactory

O = TypeVar("O", bound="Section")  # noqa: E741

DEFAULT_TARGET = "softswitch"
"""The target where none is named."""


@dataclass(frozen=True, slots=True)
class Site:
    """One switch of the fabric, as far as its queues are concerned."""

    switch: str
    port_rates_bps: Mapping[int, int]
    """The rate of every egress port that the fabric uses, in bits per second, by port."""


class Target(ABC, Generic[O]):
    """A kind of switch. Subclasses must be quick to import: they import what they need when it is needed."""

    name: ClassVar[str]
    """The name of the entry point, as a switch's entry in the service's configuration gives it."""
    architecture: ClassVar[str] = "v1model"
    """The P4 architecture that the program is compiled for."""
    options: type[O]
    """The keys of a switch's entry in the configuration besides address, target and TLS. Validators find the switch's
    port numbers in the validation context under `ports`, where the caller knows them."""

    @abstractmethod
    def capabilities(self, options: O) -> Capabilities:
        """Return what a switch with these options can carry."""

    @abstractmethod
    def queue_driver(self, options: O, site: Site) -> QueueDriver:
        """Return the driver of one switch's queues, for the switch's whole life. It connects to nothing yet."""

    def session_factory(self, options: O) -> SessionFactory:
        """Return what makes sessions with such a switch: over P4Runtime, unless a target has another channel."""
        from echelon.southbound.session import SwitchSession

        return SwitchSession

    def program(self) -> P4Program:
        """Return the P4 program for this target. Raises FileNotFoundError if it was not compiled."""
        from echelon.p4program import program

        return program(self.architecture)

    def launcher(self) -> SwitchLauncher | None:
        """Return what starts a switch as a process on interfaces, or None if this target cannot run so."""
        return None

    def virtual_fabric(self) -> VirtualFabricFactory | None:
        """Return what builds a fabric of such switches in virtual time, or None if this target cannot run so."""
        return None

    def queue_rates(self, entry: Mapping[str, object]) -> QueueRates:
        """Return what slows down the queues of the running switch with this configuration entry, for PTF tests."""
        from echelon.targets.rates import NoRates

        return NoRates()
