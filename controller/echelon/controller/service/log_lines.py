"""The lines of the log about facts."""

from __future__ import annotations

from echelon.controller.machine import facts
from echelon.controller.names import short_list
from echelon.controller.service import logs

MOST_NAMES = 10
"""The most jobs or switches that a line names."""

log = logs.get(__name__)


def log_fact(fact: facts.Fact) -> None:
    """Write the line about a fact, if it has one."""
    line = fact.log_line()
    if line is not None:
        event, fields = line
        log.info(event, **fields)
        return

    match fact:
        case facts.SizesCorrected():
            log.info(
                "sizes corrected by measurements",
                job=fact.job,
                factors=_factors(fact),
            )
        case facts.MoveFailed():
            log.error("links are not moved yet", problem=fact.problem)
        case facts.LinksMoved():
            _log_move(fact)
        case facts.LinksDown():
            write = log.warning if fact.down else log.info
            event = "links down" if fact.down else "links up"
            write(
                event,
                switch=fact.switch,
                port=fact.port,
                links=fact.links,
            )
        case facts.IntentLacking(switch, None):
            log.info("the whole intent is held again", switch=switch)
        case facts.IntentLacking(switch, problem):
            log.error(
                "part of the intent refused",
                switch=switch,
                problem=problem,
            )
        case facts.PlanAdopted():
            _log_plan(fact)
        case facts.PlanRefused():
            log.error(
                "no new plan, the last good one stays in force",
                policy=fact.policy,
                problem=fact.problem,
            )
        case facts.PlanChosen():
            _log_choice(fact)
        case facts.SearchEnded():
            jobs = short_list(fact.jobs, MOST_NAMES)
            log.info("search ended: jobs or links have changed", jobs=jobs)
        case facts.NoPlanChosen():
            jobs = short_list(fact.jobs, MOST_NAMES)
            log.warning(
                "no better plan was chosen",
                jobs=jobs,
                problem=fact.problem,
            )
        case facts.PredictionJudged():
            if fact.search_again:
                log.info(
                    "prediction missed",
                    job=fact.job,
                    predicted_s=fact.predicted_s,
                    measured_s=fact.measured_s,
                )
        case facts.DecisionRefused():
            log.error("no new plan, the last good one stays in force", problem=fact.problem)
        case facts.OrderGivenUp():
            log.warning(
                "switches are slow: flows take other paths in no order, and may lose packets",
                plan=fact.version,
                switches=short_list(fact.switches, MOST_NAMES),
            )
        case facts.NumbersUnsaved():
            log.error(
                "the store fails to commit a plan's numbers; nothing is written meanwhile",
                problem=fact.problem,
            )
        case facts.JobInstalled():
            total_s = round(fact.total_s, 6)
            log.info(
                "job installed",
                job=fact.job,
                plan=fact.version,
                total_s=total_s,
            )
        case facts.CountersUnread():
            log.warning(
                "decisions use the last count of bytes",
                switch=fact.switch,
                problem=fact.problem,
            )
        case facts.TermContested():
            log.warning(
                "a switch obeys a controller of a higher election id",
                switch=fact.switch,
                election_id=fact.election_id,
                takeovers=fact.takeovers,
                taken_back_in_s=fact.pause_s,
            )
        case facts.SwitchRepaired(switch, entries, detail, times):
            log.warning(
                "drift repaired",
                switch=switch,
                entries=entries,
                detail=detail,
                times=times,
            )
        case facts.SwitchDisturbed(switch, problem) if problem is not None:
            log.error(
                "somebody else writes to a switch",
                switch=switch,
                problem=problem,
            )
        case facts.TermNotRaised():
            log.error(
                "cannot raise the term",
                switch=fact.switch,
                problem=fact.problem,
            )


def _log_plan(fact: facts.PlanAdopted) -> None:
    log.info(
        "planned",
        plan=fact.version,
        policy=fact.policy,
        jobs=fact.jobs,
        policy_s=round(fact.policy_s, 6),
        lowering_s=round(fact.lowering_s, 6),
    )
    problems = fact.problems or {}
    for job, problem in problems.items():
        log.warning(
            "job left out of the plan",
            job=job,
            plan=fact.version,
            problem=problem,
        )


def _log_choice(fact: facts.PlanChosen) -> None:
    log.info(
        "plan kept" if fact.plan == fact.before else "plan chosen",
        jobs=short_list(fact.jobs, MOST_NAMES),
        by=fact.plan,
        before=fact.before,
        tried=fact.tried,
        mean=round(fact.mean, 4),
        worst=round(fact.worst, 4),
        gain=round(fact.gain, 4),
        search_s=round(fact.took_s, 3),
    )


def _log_move(fact: facts.LinksMoved) -> None:
    phases = {f"{phase}_s": round(seconds, 6) for phase, seconds in fact.seconds.items()}
    log.info(
        "links moved",
        go=fact.going,
        come=fact.coming,
        **phases,
    )


def _factors(fact: facts.SizesCorrected) -> str:
    """Return the factors of each direction, as `h1 to h2 x 1.250`."""
    directions = []
    for (src, dst), factor in sorted(fact.factors.items()):
        directions.append(f"{src} to {dst} x {float(factor):.3f}")
    if not directions:
        return "none: the file is right"
    return ", ".join(directions)
