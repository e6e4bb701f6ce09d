"""Time shifts of jobs on a fabric: a circle for each contended link, and their agreement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache

from echelon.model.jobs.graph import Job
from echelon.planning.allocation import Capacities, Link
from echelon.planning.execution import AloneRecord, duration_s
from echelon.planning.paths import Paths, links_of
from echelon.planning.policies.cassini.affinity import Wish, agree
from echelon.planning.policies.cassini.circle import (
    TINY,
    Communication,
    Profile,
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
    capacities: Capacities,
    alone: Mapping[str, AloneRecord],
) -> Shifts:
    """Return the shifts of CASSINI.

    `alone` has an iteration of each job on an otherwise empty fabric.

    Only links count whose jobs together can ask for more than the capacity (`capacities` in bytes
    per second). A job's profile is that of its iteration alone, each flow at its mean rate; CASSINI
    measures it with port counters.
    """
    if not jobs:
        return Shifts({}, {}, ())
    starts_s = {job.name: job.start_s for job in jobs}
    lasting = [job for job in jobs if duration_s(alone[job.name]) > 0]
    exact_s = [duration_s(alone[job.name]) for job in lasting]
    periods_s = {}
    if lasting:
        names = [job.name for job in lasting]
        periods_s = dict(zip(names, quantised_s(exact_s), strict=True))

    by_link: dict[Link, dict[str, Profile]] = defaultdict(dict)
    for job in lasting:
        sent = profiles(job, paths[job.name], capacities, alone[job.name])
        for link, profile in sent.items():
            by_link[link][job.name] = profile

    # Links of the same jobs, as there are many, have one circle.
    rotation_once = cache(rotate)
    rotations = {}
    wishes = []
    for link, by_job in by_link.items():
        key = tuple(by_job.values())
        if len(key) < 2 or sum(profile.peak for profile in key) <= 1 + TINY:
            continue
        rotation = rotations[link] = rotation_once(key)
        shifts_s = dict(zip(by_job, rotation.shifts_s, strict=True))
        gain = rotation.score - rotation.unrotated
        wishes.append(Wish(shifts_s, gain, rotation.step_s))

    agreement = agree(wishes, periods_s, starts_s)
    delays_s = dict.fromkeys(starts_s, Fraction(0))
    for name, shift_s in agreement.shifts_s.items():
        delays_s[name] = (shift_s - starts_s[name]) % periods_s[name]
    links = list(rotations)
    ignored = [links[index] for index in agreement.ignored]
    scores = {link: rotation.score for link, rotation in rotations.items()}
    unrotated = {link: rotation.unrotated for link, rotation in rotations.items()}
    return Shifts(delays_s, scores, tuple(ignored), unrotated)


def profiles(
    job: Job,
    paths: Paths,
    capacities: Capacities,
    alone: AloneRecord,
) -> dict[Link, Profile]:
    """Return what an iteration sends over each link, each flow at its mean rate."""
    hops = {}
    for path in set(paths.values()):
        hops[path] = [(link, float(capacities[link])) for link in links_of(path)]
    bursts = defaultdict(list)
    for flow in job.flows:
        span = alone.flows[flow.name]
        if span.finish is None:
            continue
        begin_s = float(span.start - alone.start)
        end_s = float(span.finish - alone.start)
        if begin_s >= end_s:
            continue
        for link, rate_Bps in hops[paths[flow.name]]:  # noqa: N806
            share = flow.size_bytes / (end_s - begin_s) / rate_Bps
            bursts[link].append(Communication(begin_s, end_s, share))
    period_s = duration_s(alone)
    by_link = {}
    for link, link_bursts in bursts.items():
        by_link[link] = Profile(period_s, tuple(link_bursts))
    return by_link
