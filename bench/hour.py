"""Measure the processor time of searches for plans in an hour of a busy cluster.

The command is `python -m bench.hour [HOSTS:JOBS] [CHANGES]`.

Without `HOSTS:JOBS`, 20 jobs (rings of two to four, and pipelines) in groups of four that share
hosts, on 104 hosts at 26 leaves; with it, jobs of several models on a cluster of `bench.cluster`,
many of which share hosts. As often as `CHANGES` says (20), at random times of the hour, a job ends
and another one comes, on its hosts if it can. The hour is not run: the policy plans after each
change, its searches run in turn, and the processor time of each is measured. Searches that drift
calls for are counted instead: none, if all predictions hold; and as many as
`echelon.controller.machine.planning_turns` allows, if all are wrong and no search changes a plan.
"""

from __future__ import annotations

import sys
from math import floor, log2
from random import Random
from time import process_time
from typing import Any

import echelon
from bench import service
from bench.cluster import RATE_BPS, Document, jobs_of
from bench.service import LEAVES
from echelon.controller.machine.planning_turns import JUDGED, MOST_PATIENCE
from echelon.planning.fluid import alone_iteration_s
from echelon.planning.policies.base import Group
from echelon.planning.policies.echelon.policy import Echelon

HOUR_S = 3600.0
HOSTS_PER_LEAF = 16
SPINES = 8
JOBS = 20
GROUP = 4
"""Jobs of a group, and hosts that they share."""


def grouped(number: int, name: str | None = None) -> dict[str, Any]:
    """Return a job of its own for each number, on the hosts of its group, which are at one leaf."""
    rng = Random(number)
    hosts = [f"h{number // GROUP % LEAVES + LEAVES * n}" for n in range(GROUP)]
    spec: dict[str, Any] = {
        "job": name or f"j{number}",
        "workers": rng.sample(hosts, 4 if number % 2 else 2),
    }
    if number % 4 == 1:
        forward = f"{rng.randint(5, 8)} ms"
        activation = f"{rng.randint(1, 8)} MB"
        section = {"micro_batches": 8, "forward": forward, "activation": activation}
        return {**spec, "parallelism": "pipeline", "pipeline": section}
    compute = f"{rng.randint(40, 60)} ms"
    gradient = f"{rng.randint(20, 60)} MB"
    return {**spec, "parallelism": "data", "data": {"compute": compute, "gradient": gradient}}


def cluster(size: str, changes: int) -> tuple[object, list[Document]]:
    """Return the fabric of a cluster, and its jobs: the first ones, and one for each change."""
    random = Random(2)
    if size:
        hosts, count = map(int, size.split(":"))
        fabric = echelon.fabrics.leaf_spine(
            hosts // HOSTS_PER_LEAF, SPINES, HOSTS_PER_LEAF, 2, RATE_BPS
        )
        jobs = list(jobs_of(count, hosts))
        for number, job in enumerate(jobs_of(changes, hosts, seed=2)):
            jobs.append({**job, "job": f"later{number}"})
        return fabric, jobs
    jobs = [grouped(number) for number in range(JOBS)]
    for number in range(changes):
        place = random.randrange(JOBS)
        # Another job on the workers of one of the first.
        spec = grouped(JOBS * (number + 1) + place, f"later{number}")
        spec["workers"] = grouped(place)["workers"]
        jobs.append(spec)
    return service.fabric(GROUP), jobs


def most_again(lives_s: float, round_s: float) -> int:
    """Return how often a group is searched for anew at most: after 1, 2, 4... rounds, and then
    every so often.
    """
    rounds = lives_s / round_s
    most_doublings = MOST_PATIENCE.bit_length()
    doublings = min(floor(log2(1 + rounds)), most_doublings)
    rounds_left = rounds + 1 - 2**most_doublings
    return doublings + max(0, int(rounds_left / MOST_PATIENCE))


def main() -> None:
    size = ""
    changes = 20
    for word in sys.argv[1:]:
        if ":" in word:
            size = word
        elif word.isdigit():
            changes = int(word)
    random = Random(1)
    fabric, jobs = cluster(size, changes)
    document = {"fabric": fabric, "jobs": jobs, "iterations": 1}
    scenario = echelon.scenario(document, ["echelon"])
    count = len(scenario.jobs) - changes
    present = list(scenario.jobs[:count])
    waiting = list(scenario.jobs[count:])
    times_s = sorted(random.uniform(0, HOUR_S) for _ in range(changes))
    policy = Echelon()
    took_s: list[float] = []
    searches_again = 0.0
    searches_again_s = 0.0
    born: dict[Group, tuple[float, float]] = {}
    """The time at which each group was planned, and the time that its search took."""
    for now_s, until_s in zip([0.0, *times_s], [*times_s, HOUR_S], strict=True):
        if now_s:
            new = waiting.pop(0)
            # The job that leaves is one on the same hosts, or else the oldest.
            on_its_hosts = [job for job in present if job.workers == new.workers]
            leaving = [*on_its_hosts, *present]
            present.remove(leaving[0])
            present.append(new)
        policy.plan(present, scenario.fabric)
        searched = {}
        for search in policy.searches(present, scenario.fabric):
            began_s = process_time()
            policy.adopt(search.group, search.run())
            search_s = process_time() - began_s
            searched[search.group] = search_s
            print(
                f"{now_s:5.0f} s: {len(search.group)} jobs, {search_s:.2f} s",
                file=sys.stderr,
                flush=True,
            )
        if now_s:
            took_s += searched.values()
        earlier = born
        born = {}
        for group in policy.choices:
            just_now = (now_s, searched.get(group, 0.0))
            born[group] = earlier.get(group, just_now)
        for group, (from_s, search_s) in born.items():
            if len(group) > 1:
                members = [job for job in present if job.name in group]
                alone_s = [float(alone_iteration_s(job, scenario.fabric)) for job in members]
                round_s = JUDGED * max(alone_s)
                more = most_again(until_s - from_s, round_s) - most_again(now_s - from_s, round_s)
                searches_again += more
                searches_again_s += more * search_s
    print(
        f"{count} jobs, {changes} changes: {len(took_s)} searches, {sum(took_s):.1f} s of a"
        " processor"
    )
    print(f"  if all predictions are wrong: {searches_again:.0f} more, {searches_again_s:.1f} s")


if __name__ == "__main__":
    main()
