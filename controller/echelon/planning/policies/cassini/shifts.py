"""Time shifts of jobs on a fabric: a circle for each link that they contend for, and the agreement
of all links.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from echelon.model.jobs.graph import Job
from echelon.planning.allocation import Link
from echelon.planning.execution import IterationRecord, duration_s
from echelon.planning.paths import Paths, links_of
from echelon.planning.policies.cassini.affinity import Wish, agree
from echelon.planning.policies.cassini.circle import (
    Communication,
    Profile,
    Rotation,
    quantised_s,
    rotate,
)


@dataclass(frozen=True, slots=True)
class Shifts:
    """The result for a set of jobs."""

    delays_s: Mapping[str, Fraction]
    """Seconds by which each job delays its first iteration; 0 where a delay gains nothing."""
    scores: Mapping[Link, float]
    """The compatibility of the jobs at each contended link, if all wishes come true."""
    ignored: tuple[Link, ...]
    """Links whose wishes contradict those of others."""
    unrotated: Mapping[Link, float] = field(default_factory=dict)
    """The compatibility at each contended link if all jobs start together."""


def time_shifts(
    jobs: Sequence[Job],
    paths: Mapping[str, Paths],
    capacities: Mapping[Link, Fraction],
    alone: Mapping[str, IterationRecord[Fraction]],
) -> Shifts:
    """Return the shifts of CASSINI. `alone` has an iteration of each job on an otherwise empty
    fabric.

    Only links count whose jobs together can ask for more than the capacity (`capacities` in bytes
    per second). A job's profile is that of its iteration alone, each flow at its mean rate; CASSINI
    measures it with port counters.
    """
    if not jobs:
        return Shifts({}, {}, ())
    starts_s = {job.name: job.start_s for job in jobs}
    lasting = [job for job in jobs if duration_s(alone[job.name]) > 0]
    exact_s = [duration_s(alone[job.name]) for job in lasting]
    periods_s = dict(
        zip((job.name for job in lasting), quantised_s(exact_s) if exact_s else (), strict=True)
    )
    at: dict[Link, dict[str, Profile]] = defaultdict(dict)
    for job in lasting:
        for link, profile in profiles(job, paths[job.name], capacities, alone[job.name]).items():
            at[link][job.name] = profile
    contended = {
        link: of_jobs
        for link, of_jobs in at.items()
        if len(of_jobs) > 1 and sum(profile.peak for profile in of_jobs.values()) > 1
    }
    known: dict[tuple[Profile, ...], Rotation] = {}
    rotations = {}
    for link, of_jobs in contended.items():
        key = tuple(of_jobs.values())
        if key not in known:
            known[key] = rotate(key)
        rotations[link] = known[key]
    wishes = [
        Wish(
            dict(zip(contended[link], rotation.shifts_s, strict=True)),
            rotation.score - rotation.unrotated,
            rotation.step_s,
        )
        for link, rotation in rotations.items()
    ]
    agreement = agree(wishes, periods_s, starts_s)
    delays_s = dict.fromkeys(starts_s, Fraction(0)) | {
        job: (shift_s - starts_s[job]) % periods_s[job]
        for job, shift_s in agreement.shifts_s.items()
    }
    links = list(rotations)
    return Shifts(
        delays_s,
        {link: rotation.score for link, rotation in rotations.items()},
        tuple(links[index] for index in agreement.ignored),
        {link: rotation.unrotated for link, rotation in rotations.items()},
    )


def profiles(
    job: Job, paths: Paths, capacities: Mapping[Link, Fraction], alone: IterationRecord[Fraction]
) -> dict[Link, Profile]:
    """Return what an iteration sends over each link, each flow at its mean rate."""
    bursts: dict[Link, list[Communication]] = defaultdict(list)
    for flow in job.flows:
        span = alone.flows[flow.name]
        if span.finish is None or span.finish <= span.start:
            continue
        begin_s = span.start - alone.start
        end_s = span.finish - alone.start
        for link in links_of(paths[flow.name]):
            share = flow.size_bytes / (end_s - begin_s) / capacities[link]
            bursts[link].append(Communication(begin_s, end_s, share))
    period_s = duration_s(alone)
    return {link: Profile(period_s, tuple(of_link)) for link, of_link in bursts.items()}
