"""SIGKILLs of a spine at random moments, while jobs come and go and packets pass a leaf.

Every switch and the service are processes of their own, joined by sockets. After each kill it is
measured how long it takes until every job that crossed the spine is installed over the other one.
After the spine's return no job is lost, every job has its number, and the switches hold exactly the
entries of the plan.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from echelon.controller.client import Client
from tests.echelon.service.conftest import building
from tests.echelon.service.holdings import assert_exactly, assert_no_difference
from tests.echelon.service.lab import Daemon, Lab, ring, settle, until, wait_links
from tests.echelon.service.test_kill import passing_packets

SPINES = ("spine1", "spine2")
HOSTS = tuple(f"h{number}" for number in range(1, 17))
FABRIC = {
    "fabric": "spines",
    "hosts": list(HOSTS),
    "switches": ["leaf1", "leaf2", *SPINES],
    "links": [
        *(
            {"between": [host, f"leaf{1 + place // 8}"], "rate": "1 Gbit/s"}
            for place, host in enumerate(HOSTS)
        ),
        *(
            {"between": [leaf, spine], "rate": "1 Gbit/s"}
            for leaf in ("leaf1", "leaf2")
            for spine in SPINES
        ),
    ],
}
COMING = 8
"""Jobs that come and go beside those that stay."""
PAUSE_S = 0.1
LONGEST_WAIT_S = 2.0
KILLS_A_TERM = 3
"""Kills after which the service begins anew, because it takes a switch that flaps back ever later.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kills", type=int, default=50, help="SIGKILLs of a spine (default: %(default)s)"
    )
    parser.add_argument(
        "--jobs", type=int, default=48, help="jobs that stay (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of jobs and moments (default: %(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    rng, faults = random.Random(options.seed), list[str]()
    began_s, times_s, moved = time.monotonic(), list[float](), 0
    with building() as build:
        # Without searches for better plans, which may take minutes on a busy machine, things come
        # to rest sooner.
        lab = build(FABRIC, policy={"name": "echelon", "parameters": {"plan": "rule"}})
        daemon = lab.daemon("echelon", "--check-invariants")
        with lab.client(daemon) as client:
            jobs = {
                name: ring(name, _workers(rng))
                for name in (f"stays{number}" for number in range(options.jobs))
            }
            for spec in jobs.values():
                client.register_job(spec)
            settle(client)
            numbers = {name: client.job(name).number for name in jobs}
            with passing_packets(lab) as stream:
                for kill in range(1, options.kills + 1):
                    try:
                        with load(daemon.wait_listening(), rng.random(), jobs):
                            time.sleep(rng.uniform(0, LONGEST_WAIT_S))
                            # Jobs stay where they are when a spine returns, so that all may cross
                            # the other one.
                            crossed = [
                                (one, _crossing(client, one) & numbers.keys()) for one in SPINES
                            ]
                            spine, crossing = rng.choice([(one, of) for one, of in crossed if of])
                            times_s.append(_die(lab, client, spine, crossing))
                            moved += len(crossing)
                        _come_back(lab, client, spine)
                        _check(lab, client, jobs, numbers)
                    except Exception:
                        faults.append(f"kill {kill}:\n{traceback.format_exc(limit=-4)}")
                        break
                    print(
                        f"{kill} of {options.kills}: {len(crossing)} jobs in {times_s[-1]:.2f} s",
                        file=sys.stderr,
                    )
                    if kill % KILLS_A_TERM == 0:
                        _begin_again(lab, daemon, client, audit=f"{kill} s")
            lost = jobs.keys() - {job.name for job in client.jobs()}
    faults += [
        record["exception"] for record in map(dict, daemon.events("an event could not be handled"))
    ]
    if stream.sent != stream.received:
        faults.append(f"{stream.sent - stream.received} packets at one leaf are lost")
    print(
        f"{len(times_s)} kills in {time.monotonic() - began_s:.0f} s, {options.jobs} jobs and"
        f" {COMING} that come and go: {moved} times a job installed elsewhere, the last of a kill"
        f" after {median(times_s or [0]):.2f} s (p50), {max(times_s, default=0):.2f} s (worst);"
        f" {len(lost)} jobs lost; {stream.sent - stream.received} of {stream.sent} packets lost"
        f" that cross no spine; {len(faults)} faults"
    )
    print(*faults, sep="\n", file=sys.stderr)
    return 1 if faults or lost else 0


def _workers(rng: random.Random) -> list[str]:
    """Return workers at both leaves."""
    return [rng.choice(HOSTS[:8]), *rng.sample(HOSTS[8:], rng.randint(1, 2))]


@contextmanager
def load(url: str, seed: float, jobs: dict[str, Any]) -> Iterator[None]:
    """Let jobs come, change and go meanwhile; `jobs` has those that were acknowledged."""
    ended = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        rng = random.Random(seed)
        try:
            with Client(url) as client:
                while not ended.wait(PAUSE_S):
                    name = f"comes{rng.randrange(COMING)}"
                    if name in jobs and rng.random() < 0.5:
                        client.remove_job(name)
                        del jobs[name]
                    else:
                        spec = ring(name, _workers(rng), f"{rng.randint(1, 9)} MB")
                        client.register_job(spec, replace=True)
                        jobs[name] = spec
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failures:
        raise failures[0]


def _crossing(client: Client, switch: str) -> set[str]:
    return {flow.job for flow in client.plan(switch=switch).flows}


def _die(lab: Lab, client: Client, spine: str, crossing: set[str]) -> float:
    """Kill a spine. Return the seconds until the jobs that crossed it are installed without it."""
    began_s = time.monotonic()
    lab.switches[spine].kill()

    def elsewhere() -> bool:
        states = {job.name: job.state for job in client.jobs()}
        return not _crossing(client, spine) & crossing and all(
            states[name] == "installed" for name in crossing
        )

    until(elsewhere, f"jobs still cross {spine}")
    return time.monotonic() - began_s


def _come_back(lab: Lab, client: Client, spine: str) -> None:
    """Start a spine again, and wait until jobs may cross it."""
    lab.switches[spine].start()
    wait_links(client)
    settle(client)


def _check(lab: Lab, client: Client, jobs: dict[str, Any], numbers: dict[str, int]) -> None:
    """Check that nothing is lost, and that the switches hold exactly the plan."""
    there = [client.job(job.name) for job in client.jobs()]
    assert {job.name: job.spec for job in there} == jobs
    assert {job.name: job.number for job in there if job.name in numbers} == numbers
    assert {job.state for job in there} == {"installed"}
    assert_exactly(lab, client)
    assert_no_difference(lab, client)


def _begin_again(lab: Lab, daemon: Daemon, client: Client, **settings: str) -> None:
    """Let the service read a changed configuration, and begin anew with it."""
    lab.config(**settings)
    daemon.hang_up()
    settle(client)
