"""Server-sent events: first everything, then what changes, for those who may read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import httpx
import pytest

from echelon.controller.machine.errors import UnavailableError
from echelon.controller.machine.facts import IterationTimed
from echelon.controller.service.api import live as stream
from echelon.switches.telemetry.events import FlowEvent
from tests.echelon.service.api.conftest import Api
from tests.echelon.service.api.memory import JOB
from tests.echelon.service.lab import until

PARTS = {"status", "policy", "switches", "links", "flows"}


class Events:
    """The events of a stream, one after the other."""

    def __init__(self, answer: httpx.Response) -> None:
        self.status = answer.status_code
        self.headers = answer.headers
        self._lines = answer.iter_lines()

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        name = ""
        for line in self._lines:
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))

    def until(self, part: str) -> Any:
        """Return the data of the next event of that name."""
        return next(data for name, data in self if name == part)


@contextmanager
def followed(api: Api, token: str) -> Iterator[Events]:
    headers = {"Authorization": f"Bearer {token}"}
    with (
        httpx.Client(base_url=api.url, headers=headers, trust_env=False, timeout=30) as http,
        http.stream("GET", "/stream") as answer,
    ):
        yield Events(answer)


def post(api: Api, job: dict[str, Any]) -> None:
    headers = {"Authorization": f"Bearer {api.operator}"}
    assert (
        httpx.post(f"{api.url}/jobs", json=job, headers=headers, trust_env=False).status_code == 201
    )


def test_it_begins_with_everything_and_goes_on_with_what_changes(api: Api) -> None:
    post(api, JOB)
    api.serving.wait(api.service.planned())
    with followed(api, api.reader) as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        assert events.until("hello") == {"token": "eyes", "role": "read-only"}
        found: dict[str, Any] = {}
        for name, data in events:
            found[name] = data
            if {*PARTS, "jobs"} <= set(found):
                break
        assert [job["name"] for job in found["jobs"]["changed"]] == ["d"]
        assert found["flows"] == {"changed": [{"count": 0}], "removed": []}
        assert found["links"]["changed"][0]["state"] == "up"

        post(api, {**JOB, "job": "e"})
        while "e" not in (names := [job["name"] for job in events.until("jobs")["changed"]]):
            pass
        assert names == ["e"], "not d, which has not changed"
        headers = {"Authorization": f"Bearer {api.operator}"}
        httpx.delete(f"{api.url}/jobs/d", headers=headers, trust_env=False)
        removed, told = [], []
        for name, data in events:
            removed += data["removed"] if name == "jobs" else []
            told += [
                one for one in data["changed"] if name == "events" and one["action"] == "remove job"
            ]
            if removed and told:
                break
        assert removed == ["d"]
        assert [(one["object"], one["client"]) for one in told] == [("d", "ops")]


def test_many_jobs_come_in_pieces(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PIECE", 2)
    for name in "abcde":
        post(api, {**JOB, "job": name})
    api.serving.wait(api.service.planned())
    with followed(api, api.reader) as events:
        names: list[list[str]] = []
        while sum(map(len, names)) < 5:
            names.append([job["name"] for job in events.until("jobs")["changed"]])
    assert names == [["a", "b"], ["c", "d"], ["e"]]


def test_a_service_that_stands_by_shows_its_status_alone(api: Api) -> None:
    post(api, JOB)
    with followed(api, api.reader) as events:
        assert events.until("jobs")["changed"]
        fail = UnavailableError("this controller is a standby", None, code="standby")
        api.serving.call(lambda: setattr(api.service, "fault", fail))
        removed: set[str] = set()
        while not {"policy", "switches", "links", "jobs"} <= removed:
            name, data = next(iter(events))
            if data.get("removed"):
                removed.add(name)
        assert "status" not in removed


def test_who_may_not_read_gets_nothing(api: Api) -> None:
    for path in ("/stream", "/flows", "/waits", "/history"):
        assert httpx.get(f"{api.url}{path}", trust_env=False).status_code == 401
    with followed(api, "echelon_wrong") as events:
        assert events.status == 401


def test_there_is_a_limit(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "FOLLOWERS", 1)
    with followed(api, api.reader) as first:
        first.until("status")
        with followed(api, api.reader) as second:
            assert (second.status, second.headers["retry-after"]) == (429, "1")


def test_a_stream_ends_so_that_its_token_is_looked_at_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "LONGEST_S", 0.3)
    with followed(api, api.reader) as events:
        names = [name for name, _ in events]
    assert names[0] == "hello"


def test_nobody_is_looked_at_when_nobody_follows(api: Api) -> None:
    live = api.app.state.live
    with followed(api, api.reader) as events:
        events.until("status")
        assert api.serving.call(lambda: live.followers) == 1
    for _ in range(1000):
        if api.serving.call(lambda: live.followers) == 0:
            break
    assert api.serving.call(lambda: live.followers) == 0


def test_flows_and_waits(api: Api) -> None:
    """Three flows of one job take a second each on the same links: 5 MB alone take 40 ms."""
    post(api, JOB)
    api.serving.wait(api.service.planned())
    machine = api.service.machine
    names = [
        one.flow
        for one in api.service.in_force.planned.plan.by_job["d"]
        if one.path == ("h1", "s1", "s2", "h2")
    ]

    def see(flow: str, epoch: int) -> None:
        path = ("h1", "s1", "s2", "h2")
        first = FlowEvent(
            "s1", "d", flow, epoch, Fraction(epoch), Fraction(0), started=True, finished=False
        )
        last = FlowEvent(
            "s2", "d", flow, epoch, Fraction(epoch + 1), Fraction(0), started=False, finished=True
        )
        machine.flow_log.observe(first, path, epoch, has_deadline=False)
        machine.flow_log.observe(last, path, epoch + 1, has_deadline=False)

    for epoch in (1, 2, 3):
        api.serving.call(lambda epoch=epoch: see(names[0], epoch))  # type: ignore[misc]
    with httpx.Client(
        base_url=api.url, headers={"Authorization": f"Bearer {api.reader}"}, trust_env=False
    ) as http:
        flows = http.get("/flows", params={"after": 1, "job": "d"}).json()
        assert (flows["count"], flows["number"], flows["jobs"]) == (3, [2, 3], ["d"])
        assert (flows["iteration"], flows["start_s"], flows["finish_s"]) == ([2, 3], [2, 3], [3, 4])
        assert http.get("/flows?job=nobody").status_code == 404
        assert http.get("/flows?after=-1").status_code == 422
        waits = http.get("/waits").json()
        assert (waits["flows"], waits["from_s"], waits["to_s"]) == (3, 1, 4)


def test_the_last_hour(api: Api) -> None:
    """The second of two jobs is slower against its time alone, and the second of two ports sends
    more.
    """
    for name, gradient in (("d", "50 MB"), ("e", "5 MB")):
        post(api, {**JOB, "job": name, "data": {"compute": "500 ms", "gradient": gradient}})
    api.serving.wait(api.service.installed())
    leader = api.service.leader
    until(
        lambda: all(leader.machine.alone_iteration_s(name) for name in "de"),
        "the jobs alone are not timed",
    )

    def see(now_s: float) -> None:
        for at_s, duration_s in ((now_s - 1800, 0.75), (now_s, 1.5)):
            leader.history.take(IterationTimed("d", 1.0), at_s)
            leader.history.take(IterationTimed("e", duration_s), at_s)
        leader.history.ports.put(("s1", 1), now_s, [0.25, *[0.0] * 7])
        leader.history.ports.put(("s2", 1), now_s, [0.125, *[0.0] * 6, 0.5])

    api.serving.call(lambda: see(time.monotonic()))
    with httpx.Client(
        base_url=api.url, headers={"Authorization": f"Bearer {api.reader}"}, trust_env=False
    ) as http:
        found = http.get("/history").json()
        assert [one["job"] for one in found["jobs"]] == ["e", "d"]
        assert [one for one in found["jobs"][0]["iteration_s"] if one] == [0.75, 1.5]
        assert set(found["jobs"][0]["tardiness_s"]) == {None}
        assert [(one["switch"], one["to"]) for one in found["ports"]] == [
            ("s2", "h2"),
            ("s1", "h1"),
        ]
        queues = found["ports"][0]["queues"]
        assert [max(one or 0 for one in queue) for queue in queues] == [
            0.125,
            0,
            0,
            0,
            0,
            0,
            0,
            0.5,
        ]
        assert {len(one) for one in queues} == {len(found["jobs"][0]["iteration_s"])} == {180}
        assert 3580 <= time.time() - found["from_s"] <= 3610, "the step of now is the last"
        narrow = http.get("/history", params={"job": "d", "switch": "s1", "limit": 1}).json()
        assert [one["job"] for one in narrow["jobs"]] == ["d"]
        assert [one["switch"] for one in narrow["ports"]] == ["s1"]
        for query in ("job=nobody", "switch=nobody"):
            assert http.get(f"/history?{query}").status_code == 404
        assert http.get("/history?limit=101").status_code == 422
