"""The outcome of a change that is neither stored nor written."""

from __future__ import annotations

from echelon.controller.resources.base import Resource
from echelon.controller.resources.switches import EntryResource, QueueResource


class QueueChange(Resource):
    before: QueueResource
    after: QueueResource


class SwitchChange(Resource):
    """The entries and queues that a change writes to one switch."""

    switch: str
    inserts: tuple[EntryResource, ...]
    modifies: tuple[EntryResource, ...]
    """Entries that get another action, with that action."""
    deletes: tuple[EntryResource, ...]
    queues: tuple[QueueChange, ...]


class JobForecast(Resource):
    """The predicted slowdowns of one job, before and after a change."""

    job: str
    before: float | None
    """Slowdown before the change: mean time of an iteration over that of the job alone.

    It is that of the fluid model, on the whole fabric. None: the job is in no plan, or was not
    simulated.
    """
    after: float | None
    """Slowdown after the change."""
    problem: str | None = None
    """The reason why the job is in no plan after the change."""


class DryRunResource(Resource):
    """The outcome of a change that was neither stored nor written."""

    switches: tuple[SwitchChange, ...]
    """The switches that are written to."""
    jobs: tuple[JobForecast, ...]
    """The jobs that change, and those that share links with them, directly or through others."""
    unpredicted: str | None = None
    """The reason why there are no slowdowns."""
