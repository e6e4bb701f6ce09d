"""The story of a job."""

from __future__ import annotations

from echelon.controller.resources.base import Resource


class StoryRecordResource(Resource):
    time_s: float
    """When it happened last."""
    kind: str
    """The name of the event, effect or fact, as `JobInstalled`."""
    text: str
    """What happened to the job, or to its switches or all jobs, in one line."""
    times: int
    """How often it happened with nothing else between."""


class StoryResource(Resource):
    """The last events and effects that concern a job, oldest first. Those of its switches and of
    all jobs are among them. The story of a job that was removed ends with that."""

    job: str
    records: tuple[StoryRecordResource, ...]
