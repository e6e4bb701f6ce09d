"""A stub switch that accepts everything and forwards nothing: it records what it is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from echelon.model.documents import Section
from echelon.switches.targets import Site, Target

if TYPE_CHECKING:
    from echelon.switches.lowering.capabilities import Capabilities
    from echelon.switches.southbound.queues import QueueDriver
    from echelon.switches.targets.launching import SwitchLauncher


class RecorderOptions(Section):
    """The options of a recorder."""

    record: Annotated[
        Path | None,
        Field(
            description=(
                "the file to append queue settings to; it may be the switch's own record; default:"
                " none"
            )
        ),
    ] = None


class Recorder(Target[RecorderOptions]):
    """The target `recorder`."""

    name = "recorder"
    options = RecorderOptions

    def capabilities(self, options: RecorderOptions) -> Capabilities:
        from echelon.switches.lowering.capabilities import QueueDepthMarks
        from echelon.switches.targets.v1model import v1model_capabilities

        return v1model_capabilities(self.name, QueueDepthMarks(packets=64))

    def queue_driver(self, options: RecorderOptions, site: Site) -> QueueDriver:
        from echelon_example_plugins.recorder.queues import RecordedQueues

        return RecordedQueues(site.switch, options.record)

    def launcher(self) -> SwitchLauncher:
        from echelon_example_plugins.recorder.launcher import RecorderLauncher

        return RecorderLauncher()
