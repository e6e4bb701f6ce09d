"""Paths that stay while jobs come and go and links are drained; all switches' next hops at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from echelon.model.fabric.choices.addressed import next_hop
from echelon.model.fabric.load import load_fabric
from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.fabric.routing import NoRouteError, Router, equal_cost_paths
from echelon.model.jobs.graph import Job
from echelon.model.jobs.paradigms.data import all_reduce
from tests.drawing import examples
from tests.faults import coded, naming
from tests.reference.routes import next_hops, route_jobs

TOPOLOGIES = Path(__file__).parents[3] / "topologies"
LEAVES, SPINES = ("l1", "l2", "l3"), ("p1", "p2", "p3")
HOSTS = {f"h{i}": LEAVES[(i - 1) // 3] for i in range(1, 10)}


def leaf_spine() -> Fabric:
    ends = [(host, 0, leaf, port) for port, (host, leaf) in enumerate(HOSTS.items(), start=1)]
    ends += [
        (leaf, 20 + j, spine, i)
        for i, leaf in enumerate(LEAVES, start=1)
        for j, spine in enumerate(SPINES)
    ]
    return Fabric(
        "leaf-spine",
        {h: Host(h, f"10.0.0.{i}", f"02:00:00:00:00:0{i}") for i, h in enumerate(HOSTS, start=1)},
        {name: Switch(name, i) for i, name in enumerate((*LEAVES, *SPINES), start=1)},
        tuple(CableLink(LinkEnd(a, p), LinkEnd(b, q), 8_000, Fraction(0)) for a, p, b, q in ends),
    )


FABRIC = leaf_spine()


def ring(name: str, workers: Sequence[str]) -> Job:
    return Job(name, *all_reduce(workers, Fraction(1), 100))


@pytest.mark.parametrize("name", sorted(path.name for path in TOPOLOGIES.glob("*.yaml")))
def test_every_next_hop(name: str) -> None:
    fabric = load_fabric(TOPOLOGIES / name)
    one_by_one = {(s, h): next_hops(fabric, s, h) for s in fabric.switches for h in fabric.hosts}
    assert fabric.next_hops == one_by_one


def test_next_hops_avoid_drained_links() -> None:
    fabric = FABRIC.without([("p2", "l1"), ("h9", "l3")])
    assert fabric.next_hops["l1", "h4"] == ("p1", "p3")
    assert fabric.next_hops["l2", "h1"] == ("p1", "p3")
    assert fabric.next_hops["l2", "h7"] == SPINES
    assert fabric.next_hops["p2", "h1"] == (
        "l2",
        "l3",
    )  # the long way: two hops more, from where nothing comes
    assert {fabric.next_hops[switch, "h9"] for switch in fabric.switches} == {()}
    assert fabric.port_to == FABRIC.port_to
    assert fabric.rate_bps == FABRIC.rate_bps
    assert fabric.without([]) == FABRIC


def test_only_links_can_be_drained() -> None:
    with pytest.raises(ValueError, check=naming("h1", "p1", "leaf-spine")):
        FABRIC.without([("h1", "p1")])


rings = st.lists(st.sampled_from(sorted(HOSTS)), min_size=2, max_size=5, unique=True)
drains = st.sets(st.tuples(st.sampled_from(LEAVES), st.sampled_from(SPINES)), max_size=4)


class Routing(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.router = Router()
        self.fabric = FABRIC
        self.jobs: dict[str, Job] = {}
        self.routes: dict[str, dict[tuple[str, str], tuple[str, ...]]] = {}

    def change(self, fabric: Fabric, jobs: dict[str, Job]) -> None:
        """Route once, and check that connections that need not move did not, and that what did not
        change is the same object.
        """
        try:
            routes = self.router.route(fabric, jobs.values())
        except NoRouteError as error:
            assert error.job in jobs  # noqa: PT017
            cut = [
                leaf
                for leaf in LEAVES
                if all(frozenset((leaf, spine)) in fabric.drained for spine in SPINES)
            ]
            apart = any(
                frozenset((a, spine)) in fabric.drained or frozenset((spine, b)) in fabric.drained
                for a in LEAVES
                for b in LEAVES
                for spine in SPINES
            )
            assert cut or apart
            again = self.router.route(self.fabric, self.jobs.values())
            assert all(again[name] is self.routes[name] for name in self.jobs)
            return
        for name, of_job in routes.items():
            before = self.routes.get(name, {})
            for ends, path in of_job.items():
                shortest = equal_cost_paths(fabric, *ends)
                assert path in shortest
                if before.get(ends) in shortest:
                    assert path == before[ends], "a connection moved that need not"
            if before == of_job:
                assert self.routes[name] is of_job
        self.fabric, self.jobs, self.routes = fabric, jobs, dict(routes)  # type: ignore[arg-type]

    @rule(name=st.sampled_from(["a", "b", "c", "d", "e"]), workers=rings)
    def submit(self, name: str, workers: list[str]) -> None:
        self.change(self.fabric, {**self.jobs, name: ring(name, workers)})

    @rule(name=st.sampled_from(["a", "b", "c", "d", "e"]))
    def remove(self, name: str) -> None:
        self.change(self.fabric, {other: job for other, job in self.jobs.items() if other != name})

    @rule(links=drains)
    def drain(self, links: set[tuple[str, str]]) -> None:
        self.change(FABRIC.without(links), self.jobs)

    @rule()
    def forget(self) -> None:
        """Route the same jobs from nothing with another controller, and compare with the one-shot
        function.
        """
        self.router = Router()
        self.routes = {}
        self.change(self.fabric, self.jobs)
        flat = {
            (job, *ends): path
            for job, of_job in self.routes.items()
            for ends, path in of_job.items()
        }
        assert flat == route_jobs(self.fabric, self.jobs.values())

    @rule()
    def take_over(self) -> None:
        """Tell another controller which paths the connections have, and check that it does."""
        before, self.routes = self.routes, {}
        self.router = Router()
        self.router.remember(before)
        self.change(self.fabric, self.jobs)
        assert self.routes == before

    @invariant()
    def users_are_counted(self) -> None:
        """Check that the counts that balance rests on are those of the paths in use."""
        counted = Counter(path[1:-1] for of_job in self.routes.values() for path in of_job.values())
        assert +self.router.users == counted


TestRouting = Routing.TestCase
TestRouting.settings = settings(max_examples=examples(50), stateful_step_count=20, deadline=None)


def load(routes: dict[str, dict[tuple[str, str], tuple[str, ...]]]) -> list[int]:
    used = Counter(
        hop for of_job in routes.values() for path in of_job.values() for hop in pairwise(path)
    )
    return [used["l1", spine] for spine in SPINES]


def test_new_connections_fill_what_departed_ones_left() -> None:
    router = Router()
    jobs = [ring(f"j{k}", ["h1", "h4"]) for k in range(6)]
    first = router.route(FABRIC, jobs)
    assert load(first) == [2, 2, 2]  # type: ignore[arg-type]
    staying = [jobs[k] for k in (0, 1, 3, 4)]  # none on p3
    assert load(router.route(FABRIC, staying)) == [2, 2, 0]  # type: ignore[arg-type]
    again = router.route(FABRIC, [*staying, ring("x", ["h2", "h5"]), ring("y", ["h3", "h6"])])
    assert load(again) == [2, 2, 2]  # type: ignore[arg-type]
    assert all(again[job.name] is first[job.name] for job in staying)


def test_a_worker_that_cannot_be_reached_is_named_with_its_job() -> None:
    fabric = FABRIC.without([("h4", "l2")])
    with pytest.raises(NoRouteError, check=coded("no-route", "h4", "h1", job="b")):
        Router().route(fabric, [ring("a", ["h1", "h2"]), ring("b", ["h1", "h4"])])
    cut_off = FABRIC.without([("l1", spine) for spine in SPINES])
    with pytest.raises(NoRouteError, check=coded("no-route", "h1", "h4", job="b")):
        Router().route(cut_off, [ring("b", ["h1", "h4"])])


class CountedHosts(dict[str, Host]):
    """Hosts that count how often somebody goes through all of them."""

    rounds = 0

    def __iter__(self) -> Iterator[str]:
        self.rounds += 1
        return super().__iter__()


def test_a_next_hop_needs_no_look_at_all_hosts() -> None:
    hosts = CountedHosts(leaf_spine().hosts)
    fabric = replace(leaf_spine(), hosts=hosts)
    _ = fabric.next_hops
    hosts.rounds = 0
    for switch, host in fabric.next_hops:
        next_hop(fabric, switch, host)
    assert hosts.rounds <= 1
