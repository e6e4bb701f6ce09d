"""The queues of a recorder: settings are appended to a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.switches.lowering.intent import QueueSetting
from echelon.switches.southbound.errors import SouthboundError

if TYPE_CHECKING:
    from finsy import GNMIClient


class RecordedQueues:
    """A `QueueDriver` that keeps settings in memory and appends each to `record` as a line of
    JSON.
    """

    def __init__(self, switch: str, record: Path | None) -> None:
        self._switch = switch
        self._record = record
        self._settings: dict[tuple[int, int], QueueSetting] = {}

    async def open(self, gnmi: GNMIClient | None) -> None:
        # Finds out now whether the file can be written.
        self._append("")

    async def read(self) -> Mapping[tuple[int, int], QueueSetting]:
        return dict(self._settings)

    async def write(self, settings: Sequence[QueueSetting]) -> None:
        self._append("".join(f"{json.dumps({'queue': asdict(setting)})}\n" for setting in settings))
        self._settings.update({(setting.port, setting.queue): setting for setting in settings})

    def _append(self, lines: str) -> None:
        if self._record is None:
            return
        try:
            with self._record.open("a") as file:
                file.write(lines)
        except OSError as error:
            reason = (
                f"cannot record queues in {self._record}: {error.strerror} (correct `record` in its"
                " entry)"
            )
            raise SouthboundError(f"switch {self._switch}: {reason}") from None
