"""Writing the queues of a switch: all ports at once or, where it refuses that, port by port."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain

from echelon.switches.lowering.intent import QueueSetting
from echelon.switches.southbound.errors import (
    NotPrimaryError,
    SouthboundError,
    UnansweredError,
)
from echelon.switches.southbound.outcomes import RefusedSettings
from echelon.switches.southbound.queues import QueueDriver


class QueueWriter:
    """A writer of the queues of one switch.

    Args:
        driver: sets them.
        held: the queues in force, by (port, queue); follows what is set.
        refused: notes what the switch refuses.
        errors: turns what goes wrong in its block into a `SouthboundError`.
    """

    def __init__(
        self,
        driver: QueueDriver,
        held: dict[tuple[int, int], QueueSetting],
        refused: RefusedSettings,
        errors: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._driver = driver
        self._held = held
        self._refused = refused
        self._errors = errors

    async def write(self, settings: Iterable[QueueSetting]) -> int:
        """Set the queues that differ, but for those that were refused; return how many are set."""
        ports = self._to_set(settings)
        if not ports:
            return 0
        everything = list(chain.from_iterable(ports.values()))
        error = await self._set(everything)
        # Any port may be at fault: each by itself, so that the others are served. A switch that
        # does not answer would take as long for each.
        one_by_one = error is not None and len(ports) > 1 and not isinstance(error, UnansweredError)
        count = 0
        for name, queues in ports.items():
            with self._refused.noting(name, queues=queues):
                if one_by_one:
                    error = await self._set(queues)
                if error is not None:
                    raise error
                for setting in queues:
                    self._held[setting.port, setting.queue] = setting
                count += len(queues)
        return count

    def _to_set(self, settings: Iterable[QueueSetting]) -> Mapping[str, Sequence[QueueSetting]]:
        """Return the queues to set by port, each under the name that a refusal has."""
        by_port: dict[int, list[QueueSetting]] = {}
        for setting in changed_queues(self._held, settings):
            by_port.setdefault(setting.port, []).append(setting)
        ports = {}
        for port, queues in by_port.items():
            name = f"queues of port {port}"
            if self._refused.accepts(name, queues):
                ports[name] = queues
        return ports

    async def _set(self, queues: Sequence[QueueSetting]) -> SouthboundError | None:
        """Set queues, and return why the switch refuses that; None: it does not."""
        try:
            with self._errors("setting queues"):
                await self._driver.write(queues)
        except NotPrimaryError:
            raise
        except SouthboundError as error:
            return error
        return None


def changed_queues(
    held: Mapping[tuple[int, int], QueueSetting], wanted: Iterable[QueueSetting]
) -> list[QueueSetting]:
    """Return the wanted settings that are not in force."""
    changed = []
    for setting in wanted:
        held_setting = held.get((setting.port, setting.queue))
        # Mostly it is the same object, which is told sooner.
        if held_setting is not setting and held_setting != setting:
            changed.append(setting)
    return changed
