"""The plan in force: the path and the ranking of each flow, and why it is so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from itertools import chain, islice
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Request, Response

from echelon.controller.machine.errors import UnavailableError, UnknownError
from echelon.controller.machine.planning_turns import mean_slowdown
from echelon.controller.resources.plan import (
    CandidateResource,
    ChoiceResource,
    ClassesResource,
    ClassResource,
    FlowPlanResource,
    PlanResource,
    RankingResource,
)
from echelon.controller.service.api.answers import errors
from echelon.controller.service.api.routing import TheService, answer_in_pieces, next_page, router
from echelon.planning.rankings.fixed import Fixed

if TYPE_CHECKING:
    from echelon.controller.machine.jobs import RegisteredJob
    from echelon.controller.machine.machine import InForce
    from echelon.controller.machine.planning_turns import Chosen, Searches
    from echelon.model.fabric.model import Fabric
    from echelon.planning.plan import FlowPlan, Plan
    from echelon.planning.policies.base import Labelled, Prediction
    from echelon.planning.rankings.base import Ranking


def ranking_resource(ranking: Ranking) -> RankingResource:
    """Return any ranking by its type and fields, with fractions as floating-point numbers."""
    kind = type(ranking).__name__.lower()
    return RankingResource(
        kind=kind,
        parameters=_fields(ranking),
    )


def _fields(dataclass: Any) -> dict[str, Any]:
    values = {}
    for field in fields(dataclass):
        value = getattr(dataclass, field.name)
        values[field.name] = _plain(value)
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    if is_dataclass(value):
        return _fields(value)
    return value


def flow_plan_resource(flow: FlowPlan) -> FlowPlanResource:
    """Return how a flow is planned."""
    return FlowPlanResource(
        job=flow.job,
        flow=flow.flow,
        path=flow.path,
        ranking=ranking_resource(flow.ranking),
    )


def candidate_resource(prediction: Prediction[Labelled]) -> CandidateResource:
    """Return what was predicted for a candidate."""
    mean = None
    worst = None
    score = None
    if prediction.slowdowns:
        mean = mean_slowdown(prediction)
        worst = max(prediction.slowdowns.values())
        score = prediction.score
    by_model = None
    if prediction.by_model:
        by_model = fmean(prediction.by_model.values())
    return CandidateResource(
        plan=prediction.candidate.label,
        mean=mean,
        worst=worst,
        score=score,
        draws=prediction.draws,
        problem=prediction.problem,
        by_model=by_model,
    )


def choice_resource(
    jobs: tuple[str, ...],
    plan: str,
    chosen: Chosen | None,
) -> ChoiceResource:
    """Return why these jobs have that plan; without `chosen` there was no search."""
    if chosen is None:
        return ChoiceResource(
            jobs=jobs,
            plan=plan,
            searched_at=None,
            search_s=None,
            before=None,
            problem=None,
            slowdowns={},
            tried=(),
        )
    best = chosen.choice.best
    return ChoiceResource(
        jobs=jobs,
        plan=plan,
        searched_at=chosen.searched_at,
        search_s=chosen.took_s,
        before=chosen.before,
        problem=chosen.problem,
        slowdowns=dict(best.slowdowns),
        judge=chosen.choice.judge,
        by_model=dict(best.by_model),
        unjudged=chosen.choice.unjudged,
        tried=tuple(map(candidate_resource, chosen.choice.tried)),
    )


def plan_resource(in_force: InForce, problem: str | None) -> PlanResource:
    """Return a plan without its flows."""
    planned = in_force.planned
    return PlanResource(
        number=planned.version,
        made_at=in_force.adopted_at,
        policy=planned.plan.policy,
        jobs=len(planned.registered),
        flows=(),
        problem=problem,
    )


def classes_resource(
    job: RegisteredJob,
    plan: Plan,
    fabric: Fabric,
) -> ClassesResource:
    """Return the classes of a job's EchelonFlows."""
    queues = {}
    for flow in plan.by_job.get(job.name, ()):
        if isinstance(flow.ranking, Fixed):
            queues[flow.flow] = flow.ranking.queue

    classes = []
    for echelonflow in job.job.echelonflows:
        flow_queues = {queues.get(flow) for flow in echelonflow.flows}
        queue = flow_queues.pop() if len(flow_queues) == 1 else None
        classes.append(_class_resource(echelonflow.name, queue, fabric))
    return ClassesResource(
        job=job.name,
        policy=plan.policy,
        classes=tuple(classes),
    )


def _class_resource(
    echelonflow: str,
    queue: int | None,
    fabric: Fabric,
) -> ClassResource:
    if queue is None:
        return ClassResource(
            echelonflow=echelonflow,
            queue=None,
            dscp=None,
            traffic_class=None,
        )
    if fabric.roce_marks:
        dscp = fabric.roce_marks[queue]
    else:
        # The class selector of the queue (RFC 2474).
        dscp = queue << 3
    # The lowest two bits are those of ECN: ECT(0).
    traffic_class = dscp << 2 | 0b10
    return ClassResource(
        echelonflow=echelonflow,
        queue=queue,
        dscp=dscp,
        traffic_class=traffic_class,
    )


def _flows(
    plan: Plan,
    job: str | None,
    switch: str | None,
    after: tuple[str, str] | None,
) -> Iterator[FlowPlanResource]:
    """Return flows of a plan: those of a job, through a switch, and after a flow by job and name.

    Raise `UnknownError` if the plan does not have the flow to begin after.
    """
    by_job = plan.by_job
    if job is not None:
        by_job = {job: by_job.get(job, ())}
    flows: Iterator[FlowPlan] = chain.from_iterable(by_job.values())
    if after is not None:
        flows = _flows_after(by_job, *after)
    return (flow_plan_resource(flow) for flow in flows if switch is None or switch in flow.path)


def _flows_after(
    by_job: Mapping[str, Sequence[FlowPlan]],
    job: str,
    flow: str,
) -> Iterator[FlowPlan]:
    names = [planned.flow for planned in by_job.get(job, ())]
    if flow not in names:
        reason = f"the plan has no flow '{job}/{flow}' any more (begin again with the first page)"
        raise UnknownError(reason, "after")
    place = names.index(flow)
    jobs = list(by_job)
    later_jobs = jobs[jobs.index(job) + 1 :]
    later = chain.from_iterable(by_job[name] for name in later_jobs)
    return chain(by_job[job][place + 1 :], later)


def _choices(searches: Searches, job: str | None) -> Iterator[ChoiceResource]:
    """Yield why groups of jobs are planned as they are: all, or that of one job."""
    for group, label in list(searches.plans.items()):
        if job is None or job in group:
            chosen = searches.chosen.get(group)
            yield choice_resource(tuple(sorted(group)), label, chosen)


OnlyJob = Annotated[str | None, Query(description="Return only flows of this job.")]
OnlySwitch = Annotated[str | None, Query(description="Return only flows through this switch.")]
PageSize = Annotated[
    int | None,
    Query(
        ge=1,
        description="Return at most this many flows.",
    ),
]
AfterFlow = Annotated[
    str | None,
    Query(
        pattern="^[^/]+/[^/]+$",
        description="Return only flows that come after this one: JOB/FLOW.",
    ),
]
Why = Annotated[bool, Query(description="Return why the plan is as it is, instead of flows.")]

routes = router("plan")


@routes.get(
    "/plan",
    response_model=PlanResource,
    responses=errors(404),
)
async def show_plan(
    service: TheService,
    request: Request,
    job: OnlyJob = None,
    switch: OnlySwitch = None,
    limit: PageSize = None,
    after: AfterFlow = None,
    why: Why = False,
) -> Response:
    """Return the plan in force.

    If there are more flows, the header `Link` names the next page.
    """
    machine = service.machine
    in_force = service.in_force
    # An unknown name would look like a job without flows.
    if job is not None:
        machine.jobs.find(job)
    if switch is not None:
        service.leader.switches[switch]

    last = None
    if after is not None:
        last_job, _, last_flow = after.partition("/")
        last = last_job, last_flow
    plan = plan_resource(in_force, machine.plan_problem)
    flows = _flows(in_force.planned.plan, job, switch, last)
    if why:
        return answer_in_pieces(plan, "why", _choices(machine.searches, job))
    if limit is None:
        return answer_in_pieces(plan, "flows", flows)

    page = list(islice(flows, limit + 1))
    response = answer_in_pieces(plan, "flows", page[:limit])
    if len(page) > limit:
        last_shown = page[limit - 1]
        next_page(request, response, after=f"{last_shown.job}/{last_shown.flow}")
    return response


@routes.get("/jobs/{name}/classes", responses=errors(404))
async def show_classes(service: TheService, name: str) -> ClassesResource:
    """Return the traffic classes that a job's program has to ask for, by EchelonFlow."""
    job = service.machine.jobs.find(name)
    if not job.is_judged:
        raise UnavailableError(
            "the first plan since the start is being made (ask again in a moment)", code="no-plan"
        )
    return classes_resource(job, service.in_force.planned.plan, service.fabric)
