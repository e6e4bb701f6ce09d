"""Work in another process, which may die, and the large graphs that a daemon has built there."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from echelon.controller.client import ClientError
from echelon.controller.machine.effects import BuildJob
from echelon.controller.machine.jobs import LIGHT_STEPS, MOST_BUILT, RegisteredJob, parse_job
from echelon.controller.service.work_process import LOWEST, WorkLostError, WorkProcess
from echelon.model.documents import DocumentError
from tests.echelon.service.conftest import Build
from tests.echelon.service.lab import PAIR, PATIENCE_S, ring, until
from tests.echelon.service.workers import runs, worker
from tests.faults import naming
from tests.soak.work import job_file


@pytest.fixture
def process() -> Iterator[WorkProcess]:
    made = WorkProcess(LOWEST)
    yield made
    made.close()


def test_work_is_done_in_one_process_that_gives_way(process: WorkProcess) -> None:
    assert process.pid is None, "it is started when it is needed"
    pid = process.run(os.getpid)
    assert pid == process.pid != os.getpid()
    assert process.run(partial(os.getpriority, os.PRIO_PROCESS, 0)) == LOWEST
    assert process.run(partial(print, "this is no result")) is None
    assert process.run(os.getpid) == pid


def test_what_cannot_be_handed_over_is_said(process: WorkProcess) -> None:
    with pytest.raises(WorkLostError, check=naming("lambda")) as caught:
        process.run(lambda: 1)
    assert not caught.value.retry
    assert process.run(os.getpid)
    # Half of it is in the process by then.
    with pytest.raises(WorkLostError, check=naming("lambda")):
        process.run(partial(len, [bytes(1_000_000), lambda: 1]))
    assert process.run(os.getpid)


def test_work_can_be_ended(process: WorkProcess, tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def end() -> None:
        until(begun.exists, "the work does not begin")
        process.end()

    ender = threading.Thread(target=end)
    ender.start()
    with pytest.raises(WorkLostError) as caught:
        process.run(partial(exec, f"import time; open({str(begun)!r}, 'w'); time.sleep(1000)"))
    ender.join()
    assert caught.value.retry
    # Another process takes the next one, also if nothing was under way.
    for _ in range(2):
        pid = process.run(os.getpid)
        process.end()
        assert process.run(os.getpid) != pid


def test_a_process_that_was_killed_is_replaced(process: WorkProcess) -> None:
    pid = process.run(os.getpid)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(WorkLostError) as caught:
        process.run(os.getpid)
    assert caught.value.retry
    assert process.run(os.getpid) != pid


def registered(document: dict[str, Any]) -> RegisteredJob:
    spec = parse_job(document)
    return RegisteredJob(spec.job, 1, 0.0, document, spec, {})


def test_a_graph_that_another_process_built_is_the_same(process: WorkProcess) -> None:
    """Random job files, also such as are refused: the same graphs, and the same reasons."""
    rng = random.Random(7)
    light = built = refused = 0
    while min(light, built, refused) < 3:
        try:
            job = registered(job_file(rng))
        except DocumentError:
            continue
        light += job.is_light
        if 3 * LIGHT_STEPS < job.spec.paradigm.step_count(len(job.spec.workers)) <= MOST_BUILT:
            # That takes long.
            continue
        there = process.run(BuildJob(3, job).run)
        here = BuildJob(3, job).run()
        assert there.request == 3
        if not isinstance(here.built, RegisteredJob):
            assert str(there.built) == str(here.built)
            assert type(there.built) is type(here.built)
            refused += 1
            continue
        assert isinstance(there.built, RegisteredJob)
        taken = job.with_graph_of(there.built)
        assert taken.graph == here.built.graph
        assert taken.flow_count == here.built.flow_count
        assert taken.spec is job.spec
        built += 1


# -- the daemon ------------------------------------------------------------------------------------

HEAVY = {
    "job": "heavy", "parallelism": "pipedream", "workers": ["h1", "h2"],
    "pipedream": {"ranks_per_worker": 1, "replicas": [1, 1], "forward": "1 ms", "backward": "2 ms",
                  "mini_batches": 600, "activation": "1 MB", "parameters": "1 MB"},
}  # fmt: skip
ENDLESS = {
    "job": "endless", "parallelism": "pipedream", "workers": ["h1", "h2", "h3", "h4"],
    "pipedream": {"ranks_per_worker": 64, "replicas": [72, 184], "forward": "3 ms", "backward": "3 ms",
                  "mini_batches": 4182, "activation": "1 MB", "parameters": "1 MB"},
}  # fmt: skip
"""Its dependencies are too many, which shows after some seconds of work."""


def test_a_daemon_builds_large_graphs_elsewhere(build: Build) -> None:
    assert not registered(HEAVY).is_light
    lab = build(PAIR)
    daemon = lab.daemon()
    with lab.client(daemon) as client:
        client.register_job(HEAVY)
        building = worker(daemon.pid, "work_process 0")
        assert client.job("heavy", wait_s=PATIENCE_S).state == "installed"
        assert len(client.plan("heavy").flows) == registered(HEAVY).with_graph().flow_count
        # The process may die while it builds, as by want of memory: nothing else does.
        failed: list[ClientError] = []

        def register() -> None:
            with lab.client(daemon) as other, pytest.raises(ClientError) as caught:
                other.register_job(ENDLESS)
            failed.append(caught.value)

        asking = threading.Thread(target=register)
        before = _busy_s(building)
        asking.start()
        until(lambda: _busy_s(building) > before + 0.1, "nothing is built")
        os.kill(building, signal.SIGKILL)
        asking.join(PATIENCE_S)
        assert (failed[0].status, failed[0].code) == (503, "unavailable")
        assert re.search(r"\((EOF|BrokenPipe|ConnectionReset)Error\)", failed[0].reason)
        client.register_job(ring("light", ["h1", "h3"]))
        client.register_job(HEAVY | {"job": "again"})
        again = worker(daemon.pid, "work_process 0")
        assert again != building
    daemon.kill()
    until(lambda: not runs(again), "the process that builds outlives the service")


def _busy_s(pid: int) -> float:
    """Return the seconds of processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
