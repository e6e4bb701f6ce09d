"""Server-sent events: first everything, then what changes, for those who may read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from echelon.control.errors import UnavailableError
from echelon.service.api import stream
from echelon.service.resources import EventResource
from tests.echelon.service.api.conftest import Api
from tests.echelon.service.api.test_routes import JOB

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
    assert httpx.post(f"{api.url}/jobs", json=job, headers=headers, trust_env=False).status_code == 201


def test_it_begins_with_everything_and_goes_on_with_what_changes(api: Api) -> None:
    post(api, JOB)
    with followed(api, api.reader) as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        assert events.until("hello") == {"token": "eyes", "role": "read-only"}
        found: dict[str, Any] = {}
        for name, data in events:
            found[name] = data
            if {*PARTS, "jobs"} <= set(found):
                break
        assert [job["name"] for job in found["jobs"]["changed"]] == ["d"]
        assert found["flows"] == {"changed": [{"count": 3}], "removed": []}
        assert found["links"]["changed"][0]["state"] == "up"

        post(api, {**JOB, "job": "e"})
        assert [job["name"] for job in events.until("jobs")["changed"]] == ["e"], "not d, which has not changed"
        api.serving.call(lambda: api.service.event_list.append(EventResource(
            at=1.0, action="remove job", object="d", request="r1", client="ops", address=None)))  # fmt: skip
        assert events.until("events")["changed"][0]["client"] == "ops"
        headers = {"Authorization": f"Bearer {api.operator}"}
        httpx.delete(f"{api.url}/jobs/d", headers=headers, trust_env=False)
        assert events.until("jobs") == {"changed": [], "removed": ["d"]}


def test_many_jobs_come_in_pieces(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PIECE", 2)
    for name in "abcde":
        post(api, {**JOB, "job": name})
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
        api.serving.call(lambda: setattr(api.service, "jobs", lambda _: (_ for _ in ()).throw(fail)))
        removed: set[str] = set()
        while not {"policy", "switches", "links", "jobs"} <= removed:
            name, data = next(iter(events))
            if data.get("removed"):
                removed.add(name)
        assert "status" not in removed


def test_who_may_not_read_gets_nothing(api: Api) -> None:
    for path in ("/stream", "/flows", "/waits"):
        assert httpx.get(f"{api.url}{path}", trust_env=False).status_code == 401
    with followed(api, "echelon_wrong") as events:
        assert events.status == 401


def test_there_is_a_limit(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "FOLLOWERS", 1)
    with followed(api, api.reader) as first:
        first.until("status")
        with followed(api, api.reader) as second:
            assert (second.status, second.headers["retry-after"]) == (429, "1")


def test_a_stream_ends_so_that_its_token_is_looked_at_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
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
    post(api, JOB)
    with httpx.Client(base_url=api.url, headers={"Authorization": f"Bearer {api.reader}"}, trust_env=False) as http:
        flows = http.get("/flows", params={"after": 1, "job": "d"}).json()
        assert (flows["count"], flows["number"], flows["jobs"]) == (3, [2, 3], ["d"])
        assert http.get("/flows?job=nobody").status_code == 404
        assert http.get("/flows?after=-1").status_code == 422
        assert http.get("/waits").json()["waits"] == [
            {"job": "d", "other": "e", "wait_s": 1.5, "links": [["s1", "s2"]]}
        ]
