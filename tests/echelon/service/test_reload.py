"""SIGHUP: what a running service takes from changed files, and what it leaves as it was."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from echelon.controller.client import Client, ClientError
from tests.echelon.service.conftest import Service
from tests.echelon.service.lab import PATIENCE_S, Daemon, ring, settle, until
from tests.faults import coded

pytestmark = pytest.mark.xdist_group("daemon")

Change = Callable[..., dict[str, Any]]


@pytest.fixture
def client(line: Service) -> Iterator[Client]:
    with line.lab.client(line.daemon) as made:
        made.register_job(ring("a", ["h1", "h2"]))
        settle(made)
        yield made


@pytest.fixture
def change(line: Service) -> Iterator[Change]:
    """Return a function that changes keys of the configuration, sends SIGHUP and returns the record
    of its outcome.

    The former configuration is back after the test.
    """
    file = line.lab.directory / "echelon.yaml"
    before = file.read_text()

    def write(text: str, outcome: str) -> dict[str, Any]:
        seen, begun = len(line.daemon.events(outcome)), len(terms(line.daemon))
        file.write_text(text)
        os.kill(line.daemon.pid, signal.SIGHUP)
        until(lambda: len(line.daemon.events(outcome)) > seen, outcome)
        record = line.daemon.events(outcome)[-1]
        if record.get("changed"):
            until(
                lambda: len(terms(line.daemon)) > begun,
                "a leader begins with the new configuration",
            )
        return record

    def apply(outcome: str = "configuration read again", **keys: Any) -> dict[str, Any]:
        return write(yaml.safe_dump({**yaml.safe_load(before), **keys}), outcome)

    yield apply
    write(before, "configuration read again")


def terms(daemon: Daemon) -> list[int]:
    return [record["term"] for record in daemon.events("leading")]


def test_a_changed_configuration_is_taken(line: Service, client: Client, change: Change) -> None:
    entries = line.lab.switches["s1"].entries()
    assert change(limits={"jobs": 1})["changed"]
    assert len(set(terms(line.daemon)[-2:])) == 1, "the leadership is the same"
    settle(client)
    assert [job.state for job in client.jobs()] == ["installed"]
    assert line.lab.switches["s1"].entries() == entries
    full = coded("limit-reached", "limits.jobs", status=422)
    with pytest.raises(ClientError, check=full):
        client.register_job(ring("b", ["h1", "h2"]))


def test_an_unchanged_configuration_changes_nothing(
    line: Service, client: Client, change: Change
) -> None:
    before = terms(line.daemon)
    assert not change()["changed"]
    assert not change(log={"format": "json", "level": "debug"})["changed"], (
        "the log needs no new leader"
    )
    assert terms(line.daemon) == before
    assert client.job("a").state == "installed"


def test_a_faulty_configuration_stays_out(line: Service, client: Client, change: Change) -> None:
    record = change(
        "the changed configuration is faulty, the former one stays in force",
        limits={"jobs": "many"},
    )
    assert "limits.jobs" in record["problem"]
    assert line.daemon.alive
    assert client.job("a").state == "installed"


def test_what_only_a_start_reads_is_named(line: Service, client: Client, change: Change) -> None:
    outcome = "restart the service for a part of the changed configuration"
    record = change(outcome, api={"listen": "127.0.0.1:1"}, store="sqlite:other.db")
    assert record["keys"] == "store, api"
    assert client.job("a").state == "installed"
    assert not Path(line.lab.directory / "other.db").exists()


def test_a_change_under_way_is_not_lost(line: Service, client: Client, change: Change) -> None:
    """Jobs are registered while leaders follow each other; each that is acknowledged is there."""
    with (
        Client(line.daemon.wait_listening(), retry_s=PATIENCE_S) as patient,
        ThreadPoolExecutor(1) as beside,
    ):
        registering = beside.submit(
            lambda: [patient.register_job(ring(f"j{n}", ["h1", "h2"])) for n in range(6)]
        )
        for number in range(3):
            change(limits={"jobs": 100 + number})
        registering.result()
    settle(client)
    assert {job.name for job in client.jobs()} == {"a", *(f"j{number}" for number in range(6))}
