"""The jobs of a service that switches know, followed by polling."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from echelon.controller.client import Client, ClientError
from echelon.controller.resources.jobs import JobResource, JobSummary
from echelon.controller.resources.plan import PlanResource
from echelon.controller.resources.status import EventResource
from echelon.model.documents import parse_document
from echelon.model.jobs import build_job
from echelon.model.jobs.graph import Job
from echelon.model.jobs.spec import JobSpec
from echelon.planning.paths import Paths
from echelon.switches.lowering.at_hosts import HostRule

_POLL_S = 0.5
_SETTLED = {"installed", "unplanned"}


@dataclass(frozen=True, slots=True)
class LivingJob:
    """A job as its workers need it."""

    number: int
    spec: JobSpec
    graph: Job
    paths: Paths
    rules: Sequence[HostRule]
    """The rules by which senders rank; none: switches rank."""


Registry = Mapping[str, LivingJob]
"""The jobs that switches know, by name."""
_Jobs = dict[tuple[str, float], LivingJob | None]
"""The jobs that were installed, by name and time of acceptance; None: one cannot be emulated.

The time tells a job from one of the same name that replaces it.
"""


def registries(client: Client, warn: Callable[[str], None]) -> Iterator[Registry]:
    """Yield the jobs of a service whenever they may be others, for ever.

    A service that does not answer changes nothing. `warn` is called with what cannot be emulated.
    """
    jobs: _Jobs = {}
    # The newest event, unless a job is still on its way.
    seen: Sequence[EventResource] = ()
    while True:
        with suppress(ClientError):  # it is stopped, or busy
            newest = client.events(limit=1)
            if newest != seen:
                summaries = client.jobs()
                jobs = _jobs(client, summaries, jobs, warn)
                yield {name: job for (name, _), job in jobs.items() if job is not None}
                seen = ()
                states = {summary.state for summary in summaries}
                if states <= _SETTLED:
                    seen = newest
        time.sleep(_POLL_S)


def _jobs(
    client: Client,
    summaries: Iterable[JobSummary],
    before: _Jobs,
    warn: Callable[[str], None],
) -> _Jobs:
    """Return the jobs of a service, of which some were there before. Raises `ClientError`."""
    plan = client.plan()
    jobs: _Jobs = {}
    for summary in summaries:
        if summary.state != "installed":
            # Its workers stay while a switch is away, and while another job replaces it.
            for key, job in before.items():
                if key[0] == summary.name:
                    jobs[key] = job
            continue
        resource = client.job(summary.name)
        key = resource.name, resource.accepted_at
        jobs[key] = before.get(key)
        if key not in before:
            try:
                jobs[key] = _living(resource, plan)
            except ValueError as error:
                warn(f"job {resource.name} has no workers: {error}")
    return jobs


def _living(resource: JobResource, plan: PlanResource) -> LivingJob:
    """Return the job of a resource. Raise `ValueError` for one that cannot be emulated."""
    spec = parse_document(JobSpec, resource.spec, "job")
    recognition = resource.spec.get("recognition", {})
    if recognition.get("by") == "agent":
        raise ValueError("they are programs, whose connections agents report")
    graph = build_job(spec)
    if any(flow.among for flow in graph.flows):
        raise ValueError("its flows go over trees of switches")
    paths = {}
    for flow in plan.flows:
        if flow.job == resource.name:
            paths[flow.flow] = flow.path
    rules = tuple(map(HostRule.of_document, resource.ranked_at_hosts))
    return LivingJob(resource.number, spec, graph, paths, rules)
