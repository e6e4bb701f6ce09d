"""The audit trail: each change, who asked for it, and where else its request's id stands."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from echelon.controller.changes import RemoveJob
from echelon.controller.machine.records import Changes
from echelon.controller.service.trail import KEPT, ORIGIN, Origin, Trail
from tests.echelon.service.conftest import Service
from tests.echelon.service.lab import ring


@pytest.mark.xdist_group("daemon")
def test_a_change_and_its_records_have_the_id_of_the_answer(line: Service) -> None:
    with httpx.Client(base_url=line.daemon.wait_listening(), trust_env=False) as http:
        made = http.post("/jobs", json=ring("a", ["h1", "h2"])).headers["x-request-id"]
        read = http.get("/jobs").headers["x-request-id"]
        again = http.post("/jobs", json=ring("a", ["h1", "h2"])).headers["x-request-id"]
        other = http.post("/jobs", json=ring("a", ["h1", "h2"], gradient="2 MB")).headers[
            "x-request-id"
        ]
        gone = http.delete("/jobs/a").headers["x-request-id"]
        found = http.get("/events").json()
    assert len({made, read, again, other, gone}) == 5
    assert [(one["action"], one["object"], one["request"]) for one in found[-2:]] == [
        ("register job", "a", made),
        ("remove job", "a", gone),
    ]
    assert all(one["address"] == "127.0.0.1" for one in found if one["action"] != "choose plan")
    assert not {again, other, read} & {one["request"] for one in found}, "they changed nothing"
    assert line.daemon.wait_event("job registered", request=made)["job"] == "a"
    assert line.daemon.wait_event("job removed", request=gone)["job"] == "a"
    assert line.daemon.wait_event("request", request=gone)["status"] == 204
    assert not [one for one in line.daemon.events("request") if one["request"] == read], (
        "it only reads"
    )


def change(trail: Trail, number: int, *, client: str = "ops") -> Changes:
    """Record the removal of a job, as a request of `client`."""
    token = ORIGIN.set(Origin(f"r{number}", client, "10.0.0.1"))
    try:
        trail.remember(number, RemoveJob(number, f"j{number}"))
    finally:
        ORIGIN.reset(token)
    return trail.recorded(number, Changes({("settings", "x"): {}}, [("jobs", f"j{number}")]))


def test_a_record_is_committed_with_its_change_and_read_back() -> None:
    stored: dict[str, Any] = {}
    trail = Trail(stored, clock=lambda: 7.0)
    for number in range(3):
        changes = change(trail, number)
        assert ("jobs", f"j{number}") in changes.deletes
        assert ("settings", "x") in changes.puts
        stored |= {
            key: document for (name, key), document in changes.puts.items() if name == "events"
        }
        assert len(trail.records) == number, "not before it is saved"
        trail.saved(number, changes)
        trail.forget(number)
    assert Trail(stored).records == trail.records
    assert [(one.at, one.object, one.client) for one in trail.records] == [
        (7.0, f"j{n}", "ops") for n in range(3)
    ]


def test_a_change_that_fails_leaves_no_record() -> None:
    trail = Trail({})
    changes = change(trail, 1)
    trail.forget(1)
    trail.saved(1, changes)
    assert trail.records == ()


def test_what_no_client_asked_for_is_not_recorded() -> None:
    changes = Changes({("numbers", "x"): {}})
    assert Trail({}).recorded(None, changes) is changes


def test_what_is_noted_while_a_plan_is_saved_is_saved_with_the_next() -> None:
    stored: dict[str, Any] = {}
    trail = Trail({})
    trail.note("links down", "s1 does not answer")
    first = trail.recorded(None, Changes())
    trail.note("take switch", "s1", Origin("r1", "ops", None))
    trail.saved(None, first)
    # Two commits that are under way at once may have the same records.
    commits = [trail.recorded(None, Changes()) for _ in range(2)]
    for changes in (first, *commits):
        stored |= {key: document for (_, key), document in changes.puts.items()}
        trail.saved(None, changes)
    assert [(one.action, one.client) for one in trail.records] == [
        ("links down", None),
        ("take switch", "ops"),
    ]
    assert Trail(stored).records == trail.records


def test_notes_that_no_store_takes_have_a_bound() -> None:
    trail = Trail({})
    for number in range(KEPT + 5):
        trail.note("links down", f"s{number}")
    assert len(trail.records) == KEPT
    assert trail.records[-1].object == f"s{KEPT + 4}"


def test_the_store_keeps_the_latest() -> None:
    stored: dict[Any, Any] = {}
    trail = Trail({})
    for number in range(KEPT + 5):
        changes = change(trail, number)
        stored |= changes.puts
        for key in changes.deletes:
            stored.pop(key, None)
        trail.saved(number, changes)
    kept = {key: document for (name, key), document in stored.items() if name == "events"}
    assert len(kept) == len(trail.records) == KEPT
    assert Trail(kept).records == trail.records
    assert trail.records[0].object == "j5"


@pytest.mark.parametrize("damaged", [{}, {"at": "x"}, {"at": 1.0, "action": 2}])
def test_a_damaged_record_is_set_aside(
    damaged: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    trail = Trail({})
    good = change(trail, 1).puts["events", "000000000001"]
    read = Trail({"000000000001": good, "000000000007": damaged, "x": damaged})
    assert [one.object for one in read.records] == ["j1"]
    assert "000000000008" in {key for _, key in change(read, 2).puts}
    assert caplog.records
