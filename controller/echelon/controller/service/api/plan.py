"""The plan in force: the path and the ranking of each flow, and why it is so."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from fractions import Fraction
from itertools import chain, dropwhile, islice
from typing import TYPE_CHECKING, Annotated, Any

from echelon.controller.machine.errors import UnknownError
from echelon.controller.service.api.settings import Resource

if TYPE_CHECKING:
    from fastapi import APIRouter

    from echelon.controller.machine.jobs import RegisteredJob
    from echelon.controller.machine.machine import InForce
    from echelon.controller.machine.planning_turns import Chosen, Searches
    from echelon.model.fabric.model import Fabric
    from echelon.planning.plan import FlowPlan, Plan
    from echelon.planning.policies.base import Labelled, Prediction
    from echelon.planning.rankings.base import Ranking


class RankingResource(Resource):
    kind: str
    """The ranking, e.g. fixed or deadline."""
    parameters: dict[str, Any]
    """Its parameters, with the unit in the name: `offset_s` is in seconds."""

    @classmethod
    def of(cls, ranking: "Ranking") -> "RankingResource":
        """Return any ranking by its type and fields, with fractions as floating-point numbers."""
        return cls(kind=type(ranking).__name__.lower(), parameters=_fields(ranking))


def _fields(of: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(of, field.name)) for field in fields(of)}


def _plain(value: Any) -> Any:
    match value:
        case Fraction():
            return float(value)
        case tuple():
            return [_plain(each) for each in value]
        case _ if is_dataclass(value):
            return _fields(value)
        case _:
            return value


class FlowPlanResource(Resource):
    job: str
    flow: str
    path: tuple[str, ...]
    ranking: RankingResource

    @classmethod
    def of(cls, flow: "FlowPlan") -> "FlowPlanResource":
        """Return how a flow is planned."""
        return cls(
            job=flow.job, flow=flow.flow, path=flow.path, ranking=RankingResource.of(flow.ranking)
        )


class CandidateResource(Resource):
    """A way to plan a group of jobs, as it was simulated."""

    plan: str
    mean: float | None
    """Mean slowdown of the jobs: the time of an iteration over that alone.

    Null: it was not simulated.
    """
    worst: float | None
    """The slowdown of the job that is slowed down most."""
    score: float | None
    """What candidates are compared by: lower is better."""
    draws: int
    """In how many draws of what is not known it was simulated.

    Those that look bad at first get fewer.
    """
    problem: str | None
    """The reason why it cannot be planned or simulated."""

    @classmethod
    def of(cls, tried: "Prediction[Labelled]") -> "CandidateResource":
        """Return what was predicted for a candidate."""
        from echelon.controller.machine.planning_turns import mean_slowdown

        simulated = bool(tried.slowdowns)
        return cls(
            plan=tried.candidate.label,
            mean=mean_slowdown(tried) if simulated else None,
            worst=max(tried.slowdowns.values()) if simulated else None,
            score=tried.score if simulated else None,
            draws=tried.draws,
            problem=tried.problem,
        )


class ChoiceResource(Resource):
    """Why a group of jobs, which share links, is planned as it is."""

    jobs: tuple[str, ...]
    plan: str
    """The plan in force."""
    searched_at: float | None
    """When the last search ended; null: there was none since the service started."""
    search_s: float | None
    before: str | None
    """The plan that was in force before that search."""
    problem: str | None
    """The reason why the best plan is not in force."""
    slowdowns: dict[str, float]
    """What was predicted for the best plan, by job."""
    tried: tuple[CandidateResource, ...]
    """The best first."""

    @classmethod
    def of(cls, jobs: tuple[str, ...], plan: str, chosen: "Chosen | None") -> "ChoiceResource":
        """Return why these jobs have that plan; without `chosen` there was no search."""
        if chosen is None:
            return cls(
                jobs=jobs,
                plan=plan,
                searched_at=None,
                search_s=None,
                before=None,
                problem=None,
                slowdowns={},
                tried=(),
            )
        return cls(
            jobs=jobs,
            plan=plan,
            searched_at=chosen.at,
            search_s=chosen.took_s,
            before=chosen.before,
            problem=chosen.problem,
            slowdowns=dict(chosen.choice.best.slowdowns),
            tried=tuple(map(CandidateResource.of, chosen.choice.tried)),
        )


class PlanResource(Resource):
    number: int
    """Number of the plan, counted by this leader."""
    made_at: float
    policy: str
    jobs: int
    flows: tuple[FlowPlanResource, ...]
    problem: str | None = None
    """The reason why the newest jobs, policy or fabric have no plan; this is then the last good
    one.
    """
    why: tuple[ChoiceResource, ...] = ()
    """Why it is as it is, for each group of jobs that share links, where the policy chooses by
    simulation.
    """

    @classmethod
    def of(cls, in_force: "InForce", problem: str | None) -> "PlanResource":
        """Return a plan without its flows."""
        planned = in_force.planned
        return cls(
            number=planned.version,
            made_at=in_force.at,
            policy=planned.plan.policy,
            jobs=len(planned.registered),
            flows=(),
            problem=problem,
        )


class ClassResource(Resource):
    """The traffic class of some of a job's flows: those of one communicator, where each collective
    has its own.
    """

    echelonflow: str
    queue: int | None
    """The queue of all of the flows.

    Null: the plan gives them several, or ranks them packet by packet.
    """
    dscp: int | None
    """The code point by which switches know the queue: its class selector, or as the fabric's
    `roce_marks` say.
    """
    traffic_class: int | None
    """The byte with that code point and ECN-capable transport (RFC 3168), for `NCCL_IB_TC` or
    `ncclConfig_t.trafficClass`."""


class ClassesResource(Resource):
    """The traffic classes of a job that its own program has to ask for, since the plan in force
    gives them.
    """

    job: str
    policy: str
    classes: tuple[ClassResource, ...]

    @classmethod
    def of(cls, job: "RegisteredJob", plan: "Plan", fabric: "Fabric") -> "ClassesResource":
        """Return the classes of a job's EchelonFlows."""
        from echelon.planning.rankings.fixed import Fixed

        queues = {
            one.flow: one.ranking.queue
            for one in plan.by_job.get(job.name, ())
            if isinstance(one.ranking, Fixed)
        }
        found = []
        for echelonflow in job.job.echelonflows:
            of_flows = {queues.get(flow) for flow in echelonflow.flows}
            queue = of_flows.pop() if len(of_flows) == 1 else None
            if queue is None:
                dscp = None
            elif fabric.roce_marks:
                dscp = fabric.roce_marks[queue]
            else:
                dscp = queue << 3
            byte = None if dscp is None else dscp << 2 | 0b10
            found.append(
                ClassResource(
                    echelonflow=echelonflow.name, queue=queue, dscp=dscp, traffic_class=byte
                )
            )
        return cls(job=job.name, policy=plan.policy, classes=tuple(found))


def _flows(
    plan: "Plan", wanted_job: str | None, switch: str | None, after: tuple[str, str] | None
) -> Iterator[FlowPlanResource]:
    """Return flows of a plan: those of a job, through a switch, and after one by job and flow,
    where given.

    Raise `UnknownError` for a flow to begin after that the plan has not.
    """
    if wanted_job is None:
        by_job = plan.by_job
    else:
        by_job = {wanted_job: plan.by_job.get(wanted_job, ())}
    found = chain.from_iterable(by_job.values())
    if after is not None:
        job, flow = after
        names = [one.flow for one in by_job.get(job, ())]
        if flow not in names:
            raise UnknownError(
                f"the plan has no flow '{job}/{flow}' any more (begin again with the first page)",
                "after",
            )
        later = islice(dropwhile(lambda name: name != job, by_job), 1, None)
        found = chain(
            by_job[job][names.index(flow) + 1 :],
            chain.from_iterable(by_job[name] for name in later),
        )
    return (FlowPlanResource.of(one) for one in found if switch is None or switch in one.path)


def _choices(searches: "Searches", job: str | None) -> Iterator[ChoiceResource]:
    """Yield why groups of jobs are planned as they are: all, or that of one job."""
    for group, label in list(searches.plans.items()):
        if job is None or job in group:
            yield ChoiceResource.of(tuple(sorted(group)), label, searches.chosen.get(group))


def routes() -> "APIRouter":
    """Return the endpoints."""
    from fastapi import Query, Request, Response

    from echelon.controller.service.api.answers import errors
    from echelon.controller.service.api.routing import TheService, answer, next_page, router

    made = router("plan")

    @made.get("/plan", response_model=PlanResource, responses=errors(404))
    async def show_plan(
        service: TheService,
        request: Request,
        job: Annotated[str | None, Query(description="Return only flows of this job.")] = None,
        switch: Annotated[
            str | None, Query(description="Return only flows through this switch.")
        ] = None,
        limit: Annotated[
            int | None, Query(ge=1, description="Return so many flows at most.")
        ] = None,
        after: Annotated[
            str | None,
            Query(
                pattern="^[^/]+/[^/]+$",
                description="Return only flows that come after this one: JOB/FLOW.",
            ),
        ] = None,
        why: Annotated[
            bool, Query(description="Return why the plan is as it is, instead of flows.")
        ] = False,
    ) -> Response:
        """Return the plan in force.

        If there are more flows, the header `Link` names the next page.
        """
        machine = service.machine
        in_force = service.in_force
        # An unknown name would look like a job without flows.
        if job is not None:
            machine.jobs.known(job)
        if switch is not None:
            service.leader.switches[switch]
        if after is None:
            before = None
        else:
            before = (after.partition("/")[0], after.partition("/")[2])
        plan = PlanResource.of(in_force, machine.plan_problem)
        flows = _flows(in_force.planned.plan, job, switch, before)
        if why:
            return answer(plan, "why", _choices(machine.searches, job))
        if limit is None:
            return answer(plan, "flows", flows)
        page = list(islice(flows, limit + 1))
        response = answer(plan, "flows", page[:limit])
        if len(page) > limit:
            next_page(request, response, after=f"{page[limit - 1].job}/{page[limit - 1].flow}")
        return response

    @made.get("/jobs/{name}/classes", responses=errors(404))
    async def show_classes(service: TheService, name: str) -> ClassesResource:
        """Return the traffic classes that a job's program has to ask for, by EchelonFlow."""
        job = service.machine.jobs.known(name)
        return ClassesResource.of(job, service.in_force.planned.plan, service.fabric)

    return made
