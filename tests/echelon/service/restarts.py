"""Random sequences of changes to a real service, which is killed after each: the state is the same
before and after.

`play` is driven at random in the suite (test_restarts.py) and for long by ``python -m tests.soak
restarts``.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from echelon.controller.client import Client, ClientError
from tests.echelon.service.holdings import assert_exactly
from tests.echelon.service.lab import Daemon, rest, ring
from tests.echelon.service.site import Site

NAMES = ("a", "b", "c", "d")
HOSTS = ("h1", "h2", "h3", "h4")
AT = {"h1": "s1", "h2": "s2", "h3": "s3", "h4": "s1"}
"""The switch of each host of `tests.echelon.service.site.TRIANGLE`."""
LINKS = (("s1", "s2"), ("s2", "s3"), ("s1", "s3"))
POLICIES: tuple[tuple[str, dict[str, str]], ...] = (
    ("echelon", {}),
    ("echelon", {"order": "deadline"}),
    ("echelon", {"order": "setf", "paths": "crux"}),
    ("echelon", {"shifts": "cassini"}),
    ("fifo", {}),
    ("fair", {}),
    ("crux", {}),
    ("varys", {}),
    ("sincronia", {}),
    ("mltcp", {}),
)


@dataclass(frozen=True)
class State:
    """Everything that a service shows and switches hold, but for times and what is counted anew by
    each leader.
    """

    jobs: dict[str, tuple[int, str, str, str | None]]
    """Number, spec, state and problem of each job."""
    plan: dict[tuple[str, str], tuple[tuple[str, ...], str]]
    """Path and ranking of each flow."""
    plan_problem: str | None
    policy: tuple[str, dict[str, str]]
    drained: frozenset[tuple[str, str]]
    changes: tuple[tuple[str, str], ...]
    """The kinds of change and their objects, by the events that the store keeps."""
    entries: dict[str, list[bytes]]
    """Entries by switch, in some fixed order."""


def state(site: Site, client: Client) -> State:
    """Return the state when nothing is under way."""
    status = rest(client, links=True)
    jobs = [client.job(summary.name) for summary in client.jobs()]
    policy = client.policy()
    return State(
        {
            job.name: (job.number, json.dumps(job.spec, sort_keys=True), job.state, job.problem)
            for job in jobs
        },
        {
            (flow.job, flow.flow): (flow.path, flow.ranking.model_dump_json())
            for flow in client.plan().flows
        },
        status.plan_problem,
        (policy.name, policy.parameters),
        frozenset((link.a, link.b) for link in client.links() if link.state != "up"),
        tuple((event.action, event.object) for event in client.events(1000)),
        {
            name: sorted(entry.SerializeToString(deterministic=True) for entry in switch.entries())
            for name, switch in site.switches.items()
        },
    )


class Books:
    """The acknowledged state: jobs, policy and drained links."""

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        self.policy: tuple[str, dict[str, str]] = ("echelon", {})
        self.drained: frozenset[tuple[str, str]] = frozenset()

    def check(self, seen: State) -> None:
        """Check that a settled service has all that was acknowledged and nothing else, and that
        every job with a path is installed.
        """
        assert {name: spec for name, (_, spec, _, _) in seen.jobs.items()} == self.jobs
        assert seen.policy == self.policy
        assert seen.drained == self.drained
        for name, (_, spec, at, problem) in seen.jobs.items():
            if self._has_path(json.loads(spec)):
                assert (at, problem) == ("installed", None), (name, at, problem)
            else:
                assert at == "unplanned", (name, at)
                assert problem is not None
                assert f"job {name}:" in problem
        for path, _ in seen.plan.values():
            for ends in pairwise(path):
                assert tuple(sorted(ends)) not in self.drained, path
        planned = {job for job, _ in seen.plan}
        assert planned == {name for name, (_, _, at, _) in seen.jobs.items() if at == "installed"}
        assert (seen.plan_problem is None) == (planned == seen.jobs.keys())

    def _has_path(self, spec: dict[str, Any]) -> bool:
        """Return whether the links that are left connect all workers."""
        left = [(a, b) for a, b in LINKS if (a, b) not in self.drained]
        wanted = {AT[host] for host in spec["workers"]}
        reached = {min(wanted)}
        for _ in AT:
            reached |= {one for link in left for one in link if reached & set(link)}
        return wanted <= reached


def play(site: Site, seed: int, steps: int, store: str) -> int:
    """Play one sequence on a new store.

    Return the number of kills. Raises AssertionError where a state is wrong.
    """
    rng, books, kills = random.Random(seed), Books(), 0
    daemon = site.daemon(store)
    try:
        for _ in range(steps):
            at_once = rng.random() < 0.3
            with site.client(daemon) as client:
                daemon = _change(site, store, daemon, client, rng, books)
            with site.client(daemon) as client:
                before = None if at_once else state(site, client)
            daemon.kill()
            kills += 1
            daemon = site.daemon(store)
            with site.client(daemon) as client:
                after = state(site, client)
                if before is not None:
                    books.check(before)
                    assert before == after, _difference(before, after)
                books.check(after)
                assert_exactly(site, client)
    finally:
        daemon.kill()
    return kills


def _change(
    site: Site, store: str, daemon: Daemon, client: Client, rng: random.Random, books: Books
) -> Daemon:
    """Make one change, or restart the service; return the daemon that runs then."""
    match rng.choices(
        ("submit", "remove", "drain", "restore", "policy", "restart", "reload"),
        (8, 3, 4, 3, 3, 1, 1),
    )[0]:
        case "submit":
            spec = _job(rng)
            client.register_job(spec, replace=True)
            books.jobs[spec["job"]] = json.dumps(spec, sort_keys=True)
        case "remove" if books.jobs:
            name = rng.choice(sorted(books.jobs))
            client.remove_job(name)
            del books.jobs[name]
        case "drain":
            a, b = rng.choice(LINKS)
            before = state(site, client)
            if _drains(client, a, b, force=rng.random() < 0.5):
                books.drained |= {(a, b)}
            else:
                assert state(site, client) == before, "it was refused, yet something has changed"
        case "restore" if books.drained:
            link = rng.choice(sorted(books.drained))
            client.set_link(*link, "up")
            books.drained -= {link}
        case "policy":
            name, parameters = rng.choice(POLICIES)
            client.set_policy(name, parameters)
            books.policy = name, parameters
        case "restart":
            assert daemon.terminate() == 0
            return site.daemon(store)
        case "reload":
            site.configure(store, audit=f"{rng.randint(30_000, 99_999_999)} ms")
            daemon.hang_up()
    return daemon


def _drains(client: Client, a: str, b: str, *, force: bool) -> bool:
    """Drain a link, and return True, or False if the service refuses because jobs need the link."""
    try:
        client.set_link(a, b, "drained", force=force)
    except ClientError as error:
        if error.code != "no-route" or force:
            raise
        return False
    return True


def _job(rng: random.Random) -> dict[str, Any]:
    name, workers = rng.choice(NAMES), rng.sample(HOSTS, rng.randint(2, 3))
    if rng.random() < 0.5:
        return ring(
            name, workers, gradient=f"{rng.randint(1, 9)} MB", compute=f"{rng.randint(1, 20)} ms"
        )
    return {
        "job": name,
        "parallelism": "pipeline",
        "workers": workers,
        "pipeline": {
            "micro_batches": rng.randint(1, 3),
            "forward": "10 ms",
            "activation": f"{rng.randint(1, 9)} MB",
        },
    }


def _difference(before: State, after: State) -> str:
    fields = [
        name
        for name in before.__dataclass_fields__
        if getattr(before, name) != getattr(after, name)
    ]
    return "\n".join(
        f"{name}: {getattr(before, name)}\n  became {getattr(after, name)}" for name in fields
    )
