"""The plan in force, and why it is so."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from echelon.controller.resources.base import Resource


class RankingResource(Resource):
    kind: str
    """The ranking, e.g. fixed or deadline."""
    parameters: dict[str, Any]
    """Its parameters, with the unit in the name: `offset_s` is in seconds."""


class FlowPlanResource(Resource):
    job: str
    flow: str
    path: tuple[str, ...]
    ranking: RankingResource


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
    """The score by which candidates are compared: lower is better."""
    draws: int
    """The number of draws of what is not known in which it was simulated.

    Those that look bad at first get fewer.
    """
    problem: str | None
    """The reason why it cannot be planned or simulated."""
    by_model: float | None = None
    """The mean slowdown on the fluid model, where another judged.

    Null: all figures are the model's.
    """


class ChoiceResource(Resource):
    """The reasons for the plan of a group of jobs that share links."""

    jobs: tuple[str, ...]
    plan: str
    """The plan in force."""
    searched_at: float | None
    """The end of the last search; null: there was none since the service started."""
    search_s: float | None
    before: str | None
    """The plan that was in force before that search."""
    problem: str | None
    """The reason why the best plan is not in force."""
    slowdowns: dict[str, float]
    """The slowdowns that were predicted for the best plan, by job."""
    judge: str = "model"
    """Who predicted them, and compared the best plans: the fluid model, or another judge."""
    by_model: dict[str, float] = Field(default_factory=dict)
    """The slowdowns on the fluid model, where another judged."""
    unjudged: str | None = None
    """The reason why the judge that was asked for did not compare the best plans."""
    tried: tuple[CandidateResource, ...]
    """The best first."""


class PlanResource(Resource):
    number: int
    """Number of the plan, counted by this leader."""
    made_at: float
    policy: str
    jobs: int
    flows: tuple[FlowPlanResource, ...]
    problem: str | None = None
    """The reason why the newest jobs, policy or fabric have no plan; this is the last good one."""
    why: tuple[ChoiceResource, ...] = ()
    """The reasons for it, for each group of jobs, where the policy chooses by simulation."""


class ClassResource(Resource):
    """The traffic class of the flows of one communicator, where each collective has its own."""

    echelonflow: str
    queue: int | None
    """The queue of all of the flows.

    Null: the plan gives them several, or ranks them packet by packet.
    """
    dscp: int | None
    """The code point of the queue: its class selector, or as the fabric's `roce_marks` say."""
    traffic_class: int | None
    """The byte with that code point and ECN-capable transport (RFC 3168).

    It is for `NCCL_IB_TC` or `ncclConfig_t.trafficClass`.
    """


class ClassesResource(Resource):
    """The traffic classes that a job's own program has to ask for, by the plan in force."""

    job: str
    policy: str
    classes: tuple[ClassResource, ...]
