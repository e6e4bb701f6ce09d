"""The story of a job: the last events and effects that concern it, since this controller leads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from echelon.controller.resources.story import StoryResource
from echelon.controller.service.api.answers import errors
from echelon.controller.service.api.routing import TheService, router

if TYPE_CHECKING:
    from echelon.controller.machine.story import StoryRecord


def story_resource(job: str, records: Sequence[StoryRecord]) -> StoryResource:
    """Return the story of a job."""
    return StoryResource.model_validate({"job": job, "records": records}, from_attributes=True)


routes = router("jobs")


@routes.get("/jobs/{name}/story", responses=errors(404))
async def show_story(service: TheService, name: str) -> StoryResource:
    """Return the last events and effects that concern a job, also after its removal.

    They are kept in memory, in 30 MB at most.
    """
    records = service.machine.story(name)
    if not records:
        service.machine.jobs.find(name)
    return story_resource(name, records)
