"""The configuration of each switch of a fabric, as it is given and as it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from echelon.model.documents import DocumentError
from echelon.model.fabric.model import Fabric
from echelon_site.switch_config.dialects import Config, Dialect, SwitchPorts
from echelon_site.switch_config.files import current_file, read_config
from echelon_site.switch_config.queues import PortQueues, QueueError, QueueServices


@dataclass(frozen=True, slots=True)
class SwitchConfig:
    """The configuration of a switch."""

    switch: str
    current: Config
    """The configuration as it is; empty if that is not known."""
    wanted: Config
    """The configuration as it should be."""


@dataclass(frozen=True, slots=True)
class Switches:
    """The switches of a fabric, and what is known about their ports."""

    fabric: Fabric
    dialect: Dialect
    against: Path | None
    """Their configuration, or a directory with one for each; None: not known."""
    lanes: int
    """The lanes of a port, where no configuration names the ports."""

    def configured(
        self,
        queues: PortQueues,
        services: Callable[[str], QueueServices] | None = None,
    ) -> Iterator[SwitchConfig]:
        """Yield the configuration of each switch with these queues.

        `services` returns how a switch serves them, if not all do it as `queues` says. Raises
        `DocumentError`.
        """
        for switch in self.fabric.switches:
            ports = self._ports(switch)
            try:
                if services is not None:
                    queues = replace(queues, services=services(switch))
                current: Config = {}
                if ports.file:
                    current = read_config(Path(ports.file), self.dialect)
                wanted = self.dialect.configure(queues, ports, current)
            except QueueError as error:
                raise DocumentError("plan", f"switch {switch}", str(error)) from None
            yield SwitchConfig(switch, current, wanted)

    def _ports(self, switch: str) -> SwitchPorts:
        file = ""
        if self.against is not None:
            file = str(current_file(self.against, switch, self.dialect))
        numbers = tuple(sorted(self.fabric.ports[switch]))
        return SwitchPorts(
            switch,
            numbers,
            self.lanes,
            file,
        )
