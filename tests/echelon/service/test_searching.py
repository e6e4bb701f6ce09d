"""Searches for better plans in a daemon that is killed, or whose searching process is."""

from __future__ import annotations

import os
import signal

import pytest

from echelon.controller.client import Client
from echelon.controller.resources.plan import PlanResource
from tests.echelon.service.conftest import Build, Service
from tests.echelon.service.holdings import assert_exactly
from tests.echelon.service.lab import PAIR, PATIENCE_S, ring, settle, until
from tests.echelon.service.workers import runs, worker

# -- the daemon ------------------------------------------------------------------------------------

JOBS = (
    ring("a", ["h1", "h3"], "4 MB", "5 ms"),
    ring("b", ["h2", "h4"], "2 MB", "5 ms"),
    ring("c", ["h1", "h4"], "1 MB", "5 ms"),
    ring("d", ["h2", "h3"], "6 MB", "5 ms"),
)


def chosen(client: Client) -> tuple[list[tuple[tuple[str, ...], str]], object]:
    """Return how each group of jobs is planned, and the flows of the plan."""
    settle(client)
    why = client.plan(why=True).why
    assert [one.searched_at is not None for one in why] == [len(one.jobs) > 1 for one in why]
    return [(one.jobs, one.plan) for one in why], client.plan().flows


def test_a_daemon_that_is_killed_takes_up_the_chosen_plan(build: Build) -> None:
    # By the attained service of jobs first: any simulation finds something better.
    lab = build(PAIR, policy={"name": "echelon", "parameters": {"plan": "auto", "order": "setf"}})
    daemon = lab.daemon()
    with lab.client(daemon) as client:
        for spec in JOBS:
            client.register_job(spec)
        before = chosen(client)
        ((jobs, plan),) = before[0]
        assert jobs == ("a", "b", "c", "d")
        assert plan != "rule setf"
        assert [event.object for event in client.events() if event.action == "choose plan"][
            -1
        ].startswith(plan)
    daemon.kill()
    with lab.client(lab.daemon()) as client:
        until(lambda: client.not_ready() is None, "there is no plan")
        assert client.plan().flows == before[1], "the first plan is the chosen one"
        assert chosen(client) == before
        assert_exactly(lab, client)


def test_a_daemon_that_is_killed_while_it_searches_searches_again(build: Build) -> None:
    lab = build(PAIR, policy={"name": "echelon"})
    daemon = lab.daemon()
    with lab.client(daemon) as client:
        for spec in JOBS:
            client.register_job(spec)
    searching = worker(daemon.pid)
    daemon.kill()
    until(lambda: not runs(searching), "the process that searches outlives the service")
    daemon = lab.daemon()
    with lab.client(daemon) as client:
        first = chosen(client)
        # And if its process is killed instead, the service goes on, with the plan that it has.
        os.kill(worker(daemon.pid), signal.SIGKILL)
        client.register_job(ring("e", ["h1", "h2"]))
        assert client.job("e", wait_s=PATIENCE_S).state == "installed"
        daemon.wait_event("no better plan was chosen")
        assert client.not_ready() is None
        assert first[0]


@pytest.mark.xdist_group("daemon")
def test_why_is_shown_for_one_job(two_by_two: Service) -> None:
    with two_by_two.lab.client(two_by_two.daemon) as client:
        client.set_policy("echelon")
        client.register_job(ring("a", ["h1", "h2"], "4 MB"))
        client.register_job(ring("b", ["h1", "h2"]))
        client.register_job(ring("alone", ["h3", "h4"]))
        settle(client)
        plan: PlanResource = client.plan("a", why=True)
        assert plan.flows == ()
        (why,) = plan.why
        assert why.jobs == ("a", "b")
        assert why.slowdowns.keys() == {"a", "b"}
        scores = {
            one.plan: one.score
            for one in why.tried
            if one.draws == why.tried[0].draws and one.score is not None
        }
        assert scores[why.tried[0].plan] == min(scores.values())
        assert scores[why.plan] <= min(scores.values()) * 1.005
        assert "fair" in {one.plan for one in why.tried}
        assert client.plan().why == ()
