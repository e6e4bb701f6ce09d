"""Searches for better plans in a process of their own, which may die, and in a daemon that is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from echelon.client import Client
from echelon.control.effects import SearchPlan
from echelon.control.events import SearchFailed, SearchFound
from echelon.plan import PlanError
from echelon.policies.base import Choice
from echelon.service.api.plan import PlanResource
from echelon.service.search_process import SearchProcess
from tests.echelon.service.conftest import Build, Service
from tests.echelon.service.holdings import assert_exactly
from tests.echelon.service.lab import PAIR, PATIENCE_S, ring, settle, until

GROUP = frozenset({"a", "b"})


class Finds:
    """A search that finds which process it ran in, after it has printed something."""

    group = GROUP

    def run(self) -> Choice:
        print("this is no answer")
        return os.getpid(), os.getpriority(os.PRIO_PROCESS, 0)  # type: ignore[return-value]


class Fails:
    group = GROUP

    def run(self) -> Choice:
        raise PlanError("there is no plan")


class Lasts:
    """A search that lasts until its process ends. It says that it has begun."""

    group = GROUP

    def __init__(self, begun: Path) -> None:
        self._begun = begun

    def run(self) -> Choice:
        self._begun.touch()
        while True:
            time.sleep(0.01)


@pytest.fixture
def process() -> Iterator[SearchProcess]:
    made = SearchProcess()
    yield made
    made.close()


def found(process: SearchProcess, number: int = 1) -> tuple[int, int]:
    """Return where a search was run, and how nice that was."""
    event = process.run(SearchPlan(number, Finds()))
    assert isinstance(event, SearchFound)
    assert event.number == number
    return event.choice  # type: ignore[return-value]


def test_searches_run_in_one_process_that_gives_way(process: SearchProcess) -> None:
    assert process.pid is None, "it is started when it is needed"
    pid, nice = found(process)
    assert pid == process.pid != os.getpid()
    assert nice == 19
    assert process.run(SearchPlan(2, Fails())) == SearchFailed(2, "there is no plan")
    assert found(process, 3) == (pid, nice)


def test_what_cannot_be_handed_over_is_said(process: SearchProcess) -> None:
    class Local(Finds):
        pass

    event = process.run(SearchPlan(1, Local()))
    assert isinstance(event, SearchFailed)
    assert not event.retry
    assert found(process)


def test_a_search_can_be_ended(process: SearchProcess, tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def end() -> None:
        until(begun.exists, "the search does not begin")
        process.end()

    ender = threading.Thread(target=end)
    ender.start()
    event = process.run(SearchPlan(1, Lasts(begun)))
    ender.join()
    assert isinstance(event, SearchFailed)
    assert event.retry
    # Another process takes the next one, also if nothing was under way.
    for _ in range(2):
        pid, _ = found(process)
        process.end()
        assert found(process)[0] != pid


def test_a_process_that_was_killed_is_replaced(process: SearchProcess) -> None:
    pid, _ = found(process)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    event = process.run(SearchPlan(2, Finds()))
    assert isinstance(event, SearchFailed)
    assert event.retry
    assert found(process)[0] != pid


# -- the daemon --------------------------------------------------------------------------------------------------------

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
        assert [event.object for event in client.events() if event.action == "choose plan"][-1].startswith(plan)
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
    worker = _worker(daemon.pid)
    daemon.kill()
    until(lambda: not _runs(worker), "the process that searches outlives the service")
    daemon = lab.daemon()
    with lab.client(daemon) as client:
        first = chosen(client)
        # And if its process is killed instead, the service goes on, with the plan that it has.
        os.kill(_worker(daemon.pid), signal.SIGKILL)
        client.register_job(ring("e", ["h1", "h2"]))
        assert client.job("e", wait_s=PATIENCE_S).state == "installed"
        daemon.wait_event("no better plan was chosen")
        assert client.not_ready() is None
        assert first[0]


def _worker(pid: int) -> int:
    """Return the process of a daemon that searches, as soon as there is one."""
    found: list[int] = []

    def look() -> bool:
        children = Path(f"/proc/{pid}/task").glob("*/children")
        pids = [int(child) for path in children for child in path.read_text().split()]
        found[:] = [child for child in pids if b"search_process" in Path(f"/proc/{child}/cmdline").read_bytes()]
        return bool(found)

    until(look, "no process searches")
    return found[0]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


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
        scores = {one.plan: one.score for one in why.tried if one.draws == why.tried[0].draws and one.score is not None}
        assert scores[why.tried[0].plan] == min(scores.values())
        assert scores[why.plan] <= min(scores.values()) * 1.005
        assert "fair" in {one.plan for one in why.tried}
        assert client.plan().why == ()
