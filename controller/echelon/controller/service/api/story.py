"""The story of a job: the last events and effects that concern it, since this controller leads."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from echelon.controller.service.api.settings import Resource

if TYPE_CHECKING:
    from fastapi import APIRouter

    from echelon.controller.machine.story import StoryRecord


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

    @classmethod
    def read(cls, job: str, records: Sequence["StoryRecord"]) -> "StoryResource":
        """Return the story of a job."""
        return cls.model_validate({"job": job, "records": records}, from_attributes=True)


def routes() -> "APIRouter":
    """Return the endpoint."""
    from echelon.controller.service.api.answers import errors
    from echelon.controller.service.api.routing import TheService, router

    out = router("jobs")

    @out.get("/jobs/{name}/story", responses=errors(404))
    async def show_story(service: TheService, name: str) -> StoryResource:
        """Return the last events and effects that concern a job, also after its removal.

        They are kept in memory, in 30 MB at most.
        """
        records = service.machine.story(name)
        if not records:
            service.machine.jobs.known(name)
        return StoryResource.read(name, records)

    return out
