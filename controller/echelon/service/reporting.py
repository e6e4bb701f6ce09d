"""Facts that the controller tells, as log lines and metrics."""

from __future__ import annotations

import time
from collections.abc import Sequence

from echelon.control import facts
from echelon.control.facts import Fact
from echelon.service import logs
from echelon.service.metrics import Metrics

_NAMED = 10
"""The most jobs that a line names."""

log = logs.get(__name__)


def report(fact: Fact, metrics: Metrics) -> None:
    """Count and log a fact."""
    match fact:
        case facts.JobAccepted(job, created, flows):
            log.info("job registered" if created else "job changed", job=job, flows=flows)
        case facts.JobRemoved(job):
            log.info("job removed", job=job)
        case facts.JobLeft(job):
            metrics.job_removed(job)
        case facts.DistancesReported(job, echelonflow):
            log.info("distances reported", job=job, echelonflow=echelonflow)
        case facts.ConnectionsReported(job, host, opened, closed):
            metrics.connections_reported(opened, closed)
            log.info("connections reported", job=job, host=host, opened=opened, closed=closed)
        case facts.DistancesCorrected(job):
            metrics.distances_corrected()
            log.info("distances corrected by observations", job=job)
        case facts.SizesCorrected(job, factors):
            metrics.sizes_corrected()
            shown = ", ".join(f"{src} to {dst} x {float(one):.3f}" for (src, dst), one in sorted(factors.items()))
            log.info("sizes corrected by measurements", job=job, factors=shown or "none: the file is right")
        case facts.PolicyChosen(policy):
            log.info("policy changed", policy=policy)
        case facts.LinkChanged(link, drained):
            log.info("link changed", link=link, state="drained" if drained else "up")
        case facts.PlanAdopted():
            _plan_adopted(fact, metrics)
        case facts.PlanRefused(policy, problem):
            metrics.plan_failed()
            log.error("no new plan, the last good one stays in force", policy=policy, problem=problem)
        case facts.PlanChosen():
            _plan_chosen(fact, metrics)
        case facts.SearchEnded(jobs):
            metrics.searched("outdated")
            log.info("search ended: jobs or links have changed", jobs=named(jobs))
        case facts.NoPlanChosen(jobs, problem):
            metrics.searched("failed")
            log.warning("no better plan was chosen", jobs=named(jobs), problem=problem)
        case facts.PredictionJudged(job, predicted_s, measured_s, again):
            metrics.prediction(job, measured_s / predicted_s - 1)
            if again:
                log.info("prediction missed", job=job, predicted_s=predicted_s, measured_s=measured_s)
        case facts.DecisionRefused(problem):
            log.error("no new plan, the last good one stays in force", problem=problem)
        case facts.NumbersUnsaved(problem):
            log.error("the store fails to commit a plan's numbers; nothing is written meanwhile", problem=problem)
        case facts.JobInstalled(job, version, total_s):
            metrics.changed(total_s)
            log.info("job installed", job=job, plan=version, total_s=round(total_s, 6))
        case facts.DigestsReceived(switch, events, unknown):
            metrics.digests(switch, events, unknown)
        case facts.JobSeen(job):
            metrics.job_seen(job, time.time())
        case facts.IterationTimed(job, duration_s):
            metrics.job_iteration(job, duration_s)
        case facts.TardinessSeen(job, tardiness_s):
            metrics.job_tardiness(job, tardiness_s)
        case facts.CountersUnread(switch, problem):
            log.warning("decisions use the last count of bytes", switch=switch, problem=problem)
        case facts.TermContested():
            metrics.contested(fact.switch)
            log.warning(
                "a switch obeys a controller of a higher election id",
                switch=fact.switch,
                election_id=fact.election_id,
                takeovers=fact.takeovers,
                taken_back_in_s=fact.pause_s,
            )
        case facts.TermNotRaised(switch, problem):
            log.error("cannot raise the term", switch=switch, problem=problem)


def _plan_chosen(fact: facts.PlanChosen, metrics: Metrics) -> None:
    changes = fact.plan != fact.before
    metrics.searched("changed" if changes else "kept", fact.took_s, fact.gain)
    log.info(
        "plan chosen" if changes else "plan kept",
        jobs=named(fact.jobs),
        by=fact.plan,
        before=fact.before,
        tried=fact.tried,
        mean=round(fact.mean, 4),
        worst=round(fact.worst, 4),
        gain=round(fact.gain, 4),
        search_s=round(fact.took_s, 3),
    )


def named(jobs: Sequence[str]) -> str:
    """Return the names of jobs on one line."""
    more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
    return ", ".join(jobs[:_NAMED]) + more


def _plan_adopted(fact: facts.PlanAdopted, metrics: Metrics) -> None:
    metrics.planned(fact.version, fact.flows, fact.policy_s, fact.lowering_s)
    log.info(
        "planned",
        plan=fact.version,
        policy=fact.policy,
        jobs=fact.jobs,
        policy_s=round(fact.policy_s, 6),
        lowering_s=round(fact.lowering_s, 6),
    )
    if fact.problems is not None:
        metrics.plan_complete(not fact.problems)
        for name, problem in fact.problems.items():
            log.warning("job left out of the plan", job=name, plan=fact.version, problem=problem)
