"""What a change would do, which is neither stored nor written: the answer to every change with
`dry_run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from echelon.controller.service.api.settings import Resource
from echelon.controller.service.api.switches import EntryResource, QueueResource

if TYPE_CHECKING:
    from fastapi import Response

    from echelon.controller.machine import events
    from echelon.controller.machine.rehearsal import ChangeOutcome
    from echelon.controller.service.leader import Leader
    from echelon.switches.lowering.difference import OwnedEntry
    from echelon.switches.lowering.intent import QueueSetting


class QueueChange(Resource):
    before: QueueResource
    after: QueueResource


class SwitchChange(Resource):
    """What a change writes to one switch."""

    switch: str
    inserts: tuple[EntryResource, ...]
    modifies: tuple[EntryResource, ...]
    """Entries that get another action, with that action."""
    deletes: tuple[EntryResource, ...]
    queues: tuple[QueueChange, ...]


class JobForecast(Resource):
    """What a change means for one job."""

    job: str
    before: float | None
    """Slowdown before the change: mean time of an iteration over that of the job alone on the whole
    fabric, in the fluid model. None: the job is in no plan, or was not simulated."""
    after: float | None
    """Slowdown after the change."""
    problem: str | None = None
    """The reason why the job is in no plan after the change."""


class DryRunResource(Resource):
    """What a change would do, which was neither stored nor written."""

    switches: tuple[SwitchChange, ...]
    """The switches that are written to."""
    jobs: tuple[JobForecast, ...]
    """The jobs that change, and those that share links with them, directly or through others."""
    unpredicted: str | None = None
    """The reason why there are no slowdowns."""

    @classmethod
    def of(cls, outcome: ChangeOutcome) -> DryRunResource:
        """Return what a change would do."""
        return cls(
            switches=tuple(
                SwitchChange(
                    switch=one.switch,
                    inserts=_entries(one.added),
                    modifies=_entries(one.changed),
                    deletes=_entries(one.removed),
                    queues=tuple(
                        QueueChange(before=_queue(was), after=_queue(now))
                        for was, now in one.queues
                    ),
                )
                for one in outcome.differences
            ),
            jobs=tuple(
                JobForecast.model_validate(one, from_attributes=True) for one in outcome.forecasts
            ),
            unpredicted=outcome.unpredicted,
        )


def _queue(setting: QueueSetting) -> QueueResource:
    return QueueResource.model_validate(setting, from_attributes=True)


def _entries(entries: Iterable[OwnedEntry]) -> tuple[EntryResource, ...]:
    return tuple(EntryResource.of(one, owner) for owner, one in entries)


async def rehearsed(leader: Leader, make: Callable[[int], events.ChangeRequest]) -> Response:
    """Return what a change would do, a `DryRunResource`. `make` returns the change for the number
    of a request. It is checked and planned, and nothing else."""
    import asyncio

    from echelon.controller.machine.events import DryRun
    from echelon.controller.service.api.routing import whole

    outcome = await leader.ask(
        lambda request: DryRun(request, make(request)),
        lambda answer: cast("ChangeOutcome", answer.value),
    )
    # A policy may change every entry of the fabric.
    return await asyncio.to_thread(lambda: whole(DryRunResource.of(outcome)))
