"""A service that checks its invariants ends at the first that does not hold, and says which."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from echelon.controller.client import Client, ClientError
from echelon.controller.machine import invariants
from echelon.controller.machine.effects import Effect
from echelon.controller.machine.invariants import InvariantError
from echelon.controller.machine.machine import Machine
from echelon.controller.service.config import load_service_config
from echelon.controller.service.leader import Leader
from echelon.controller.service.metrics import Metrics
from echelon.controller.service.store import Candidate, open_store
from tests.echelon.service.lab import PATIENCE_S, TWO_BY_TWO, Daemon, Lab, Process, ring

WITH_A_FAULT = """
import sys
from echelon.cli import app
from echelon.controller.machine import invariants

def no_job_is_there(machine):
    for name in machine.jobs.jobs:
        yield name, "broken on purpose"

invariants.OF_JOBS = (no_job_is_there,)
app(["serve", "--config", *sys.argv[1:]])
"""


class FaultyDaemon(Daemon):
    """The process of `echelon serve`, whose only invariant is that there is no job."""

    def __init__(self, config: Path, *options: str) -> None:
        command = (sys.executable, "-c", WITH_A_FAULT, str(config), *options)
        Process.__init__(self, "faulty", *command, cwd=config.parent)


@pytest.fixture
def offline(tmp_path: Path) -> Lab:
    """Return a lab whose switches are not running."""
    return Lab(tmp_path, TWO_BY_TWO)


@pytest.fixture
def faulty(offline: Lab, request: pytest.FixtureRequest) -> Iterator[FaultyDaemon]:
    daemon = FaultyDaemon(offline.config(), *request.param)
    yield daemon
    daemon.kill()


@pytest.mark.parametrize("faulty", [["--check-invariants"]], indirect=True)
def test_the_service_ends_with_the_invariant_and_the_job(faulty: FaultyDaemon) -> None:
    with Client(faulty.wait_listening(), timeout_s=PATIENCE_S) as client:
        faulty.wait_event("leading")
        with pytest.raises(ClientError):
            client.register_job(ring("a", ["h1", "h3"]))
    record = faulty.wait_event(
        "an invariant of the controller does not hold (report it with this log)"
    )
    assert (record["invariant"], record["job"]) == ("no_job_is_there", "a")
    assert record["problem"] == "broken on purpose"
    assert "client" in record["story"][0], "what happened to the job is in the log"
    assert faulty.join() == 1


@pytest.mark.parametrize("faulty", [[]], indirect=True)
def test_without_the_option_nothing_is_checked(faulty: FaultyDaemon) -> None:
    with Client(faulty.wait_listening(), timeout_s=PATIENCE_S) as client:
        faulty.wait_event("leading")
        assert client.register_job(ring("a", ["h1", "h3"])).name == "a"


async def test_nothing_of_a_faulty_step_is_done(
    offline: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries of a machine with a fault must not reach switches."""

    def always_broken(_: Machine) -> Iterator[tuple[str, str]]:
        yield "", "broken on purpose"

    done: list[Effect] = []
    monkeypatch.setattr(invariants, "OF_JOBS", (always_broken,))
    config = load_service_config(offline.config("inside", store="sqlite:inside.db"))
    url = f"sqlite:{offline.directory}/inside.db"
    async with await open_store(url, lease_s=5) as store:
        leadership = await store.campaign(Candidate("c", "http://c"))
        checked = replace(config, check_invariants=True)
        leader = Leader(checked, store, leadership, Metrics("0"))
        monkeypatch.setattr(leader, "_carry_out", done.append)
        await leader.open()
        with pytest.raises(ExceptionGroup) as caught:
            await leader.run()
    assert caught.group_contains(InvariantError)
    assert done == []
