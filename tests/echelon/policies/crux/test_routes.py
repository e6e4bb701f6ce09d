"""Path selection (Crux, section 4.1): high intensity chooses first, among the least congested
paths.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.fabric.routing import NoRouteError
from echelon.model.jobs.graph import ComputeUnit, Flow, Job
from echelon.planning.policies.crux.routes import LeastCongested


def two_spines(hosts: int, host_bps: int = 16_000, spine_bps: int = 8_000) -> Fabric:
    """Return a fabric of two leaves with half of the hosts each, and two ways between them."""
    ends = [(f"h{k}", f"l{1 + (k > hosts // 2)}", host_bps) for k in range(1, hosts + 1)]
    ends += [(leaf, spine, spine_bps) for leaf in ("l1", "l2") for spine in ("s1", "s2")]
    used: dict[str, int] = {}

    def end(node: str) -> LinkEnd:
        used[node] = used.get(node, 0) + 1
        return LinkEnd(node, 0 if node.startswith("h") else used[node])

    return Fabric(
        "two_spines",
        {
            f"h{k}": Host(f"h{k}", f"10.0.0.{k}", f"02:00:00:00:00:{k:02x}")
            for k in range(1, hosts + 1)
        },
        {
            name: Switch(name, number)
            for number, name in enumerate(("l1", "l2", "s1", "s2"), start=1)
        },
        tuple(CableLink(end(a), end(b), rate, Fraction(0)) for a, b, rate in ends),
    )


def job(
    name: str, src: str, dst: str, size_bytes: int, compute_s: Fraction | int, workers: int = 1
) -> Job:
    """Return a job that sends when its first worker has computed; others compute beside it."""
    units = [ComputeUnit("c", src, Fraction(compute_s))]
    units += [ComputeUnit(f"c{n}", f"w{n}", Fraction(compute_s)) for n in range(1, workers)]
    return Job(name, tuple(units), (Flow("f", src, dst, size_bytes, ("c",)),), ())


def spines(fabric: Fabric, *jobs: Job) -> dict[str, set[str]]:
    routes = LeastCongested().route(fabric, jobs)
    return {name: {path[2] for path in of_job.values()} for name, of_job in routes.items()}


def test_the_most_intense_job_has_a_spine_to_itself() -> None:
    """Two jobs that compute little share what the third, with four workers, leaves."""
    jobs = [
        job("b", "h1", "h4", 1000, 1),
        job("c", "h2", "h5", 1000, 2),
        job("a", "h3", "h6", 1500, 1, workers=4),
    ]
    assert spines(two_spines(6), *jobs) == {"a": {"s1"}, "c": {"s2"}, "b": {"s2"}}


def test_congestion_counts_seconds_not_connections() -> None:
    """A small connection that came first does not keep a larger one off its spine for long."""
    jobs = [
        job("a", "h1", "h4", 100, 30),
        job("b", "h2", "h5", 1000, 20),
        job("c", "h3", "h6", 500, 1),
    ]
    assert spines(two_spines(6), *jobs) == {"a": {"s1"}, "b": {"s2"}, "c": {"s1"}}


def test_congestion_counts_how_often_a_job_iterates() -> None:
    """The load of a job that sends little in each of many iterations, and how jobs are cut."""
    slow = job("slow", "h1", "h4", 1000, 100)
    third = job("third", "h3", "h6", 500, Fraction(1, 100))
    expected = {"slow": {"s1"}, "fast": {"s2"}, "third": {"s1"}}
    for together in (1, 50):
        fast = job("fast", "h2", "h5", 100 * together, Fraction(together, 100))
        assert spines(two_spines(6), slow, fast, third) == expected


def test_paths_are_the_same_object_until_they_change() -> None:
    fabric, chooser = two_spines(6), LeastCongested()
    one, two = job("a", "h1", "h4", 1000, 1), job("b", "h2", "h5", 1000, 2)
    before = chooser.route(fabric, [one, two])
    after = chooser.route(fabric, [one, two])
    assert all(after[name] is before[name] for name in before)
    moved = chooser.route(fabric.without([("l1", "s1")]), [one, two])
    assert {path[2] for routes in moved.values() for path in routes.values()} == {"s2"}


def test_a_job_that_cannot_be_reached_is_named() -> None:
    with pytest.raises(NoRouteError) as caught:
        LeastCongested().route(two_spines(6), [job("a", "h1", "h9", 1, 1)])
    assert caught.value.job == "a"
