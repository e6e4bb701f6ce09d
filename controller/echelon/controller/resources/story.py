"""The story of a job."""

from __future__ import annotations

from echelon.controller.resources.base import Resource


class StoryRecordResource(Resource):
    time_s: float
    """The last time that it happened."""
    kind: str
    """The name of the event, effect or fact, as `JobInstalled`."""
    text: str
    """One line about the job, its switches or all jobs."""
    times: int
    """The number of times that it happened in a row."""


class StoryResource(Resource):
    """The last events and effects that concern a job, oldest first.

    Those of its switches and of all jobs are among them. The story of a job that was removed ends
    with that.
    """

    job: str
    records: tuple[StoryRecordResource, ...]
