"""The answer to every change with `dry_run`: what it would do.

The change is neither stored nor written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from echelon.controller.machine.events import DryRun
from echelon.controller.resources.dryruns import (
    DryRunResource,
    JobForecast,
    QueueChange,
    SwitchChange,
)
from echelon.controller.resources.switches import EntryResource
from echelon.controller.service.api.routing import answer_at_once
from echelon.controller.service.api.switches import entry_resource, queue_resource

if TYPE_CHECKING:
    from fastapi import Response

    from echelon.controller.machine.change import ChangeRequest
    from echelon.controller.machine.effects import Answer
    from echelon.controller.machine.rehearsal import ChangeOutcome
    from echelon.controller.service.leader import Leader
    from echelon.switches.lowering.difference import IntentDifference, OwnedEntry


def dry_run_resource(outcome: ChangeOutcome) -> DryRunResource:
    """Return what a change would do."""
    forecasts = [
        JobForecast.model_validate(forecast, from_attributes=True) for forecast in outcome.forecasts
    ]
    return DryRunResource(
        switches=tuple(map(_switch_change, outcome.differences)),
        jobs=tuple(forecasts),
        unpredicted=outcome.unpredicted,
    )


def _switch_change(difference: IntentDifference) -> SwitchChange:
    queues = []
    for before, after in difference.queues:
        change = QueueChange(
            before=queue_resource(before),
            after=queue_resource(after),
        )
        queues.append(change)
    return SwitchChange(
        switch=difference.switch,
        inserts=_entry_resources(difference.added),
        modifies=_entry_resources(difference.changed),
        deletes=_entry_resources(difference.removed),
        queues=tuple(queues),
    )


def _entry_resources(entries: Iterable[OwnedEntry]) -> tuple[EntryResource, ...]:
    return tuple(entry_resource(entry, owner) for owner, entry in entries)


async def rehearse_change(leader: Leader, make: Callable[[int], ChangeRequest]) -> Response:
    """Return what a change would do, a `DryRunResource`.

    `make` returns the change for the number of a request. It is checked and planned, and nothing
    else.
    """

    def make_dry_run(request: int) -> DryRun:
        return DryRun(request, make(request))

    def render(answer: Answer) -> ChangeOutcome:
        outcome: ChangeOutcome = answer.value
        return outcome

    outcome = await leader.ask(make_dry_run, render)
    # A policy may change every entry of the fabric.
    return await asyncio.to_thread(_answer, outcome)


def _answer(outcome: ChangeOutcome) -> Response:
    return answer_at_once(dry_run_resource(outcome))
