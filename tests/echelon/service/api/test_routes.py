"""Each path once as it is meant to be used, over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from echelon.service.interface import LinkChange, Registration, Removal
from echelon.service.resources import EventResource, LinkSetting, PolicySetting
from tests.echelon.service.api.conftest import METRICS, Api

JOB: dict[str, Any] = {
    "job": "d",
    "parallelism": "data",
    "workers": ["h1", "h2"],
    "data": {"compute": "500 ms", "gradient": "5 MB"},
}


@pytest.fixture
def http(api: Api) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=api.url, headers={"Authorization": f"Bearer {api.operator}"}, trust_env=False) as client:
        yield client


def test_a_jobs_life(http: httpx.Client) -> None:
    created = http.post("/jobs", json=JOB)
    assert (created.status_code, created.headers["location"]) == (201, "/jobs/d")
    assert created.json()["spec"] == JOB
    again = http.post("/jobs", json=JOB)
    assert (again.status_code, "location" in again.headers) == (200, False)
    assert [job["name"] for job in http.get("/jobs").json()] == ["d"]
    assert http.get(created.headers["location"]).json() == again.json()

    other = {**JOB, "weight": 2}
    conflict = http.post("/jobs", json=other)
    assert (conflict.status_code, conflict.json()["error"]["path"]) == (409, "job")
    changed = http.put("/jobs/d", json=other)
    assert (changed.status_code, changed.json()["spec"]["weight"]) == (200, 2)
    assert http.put("/jobs/e", json={**JOB, "job": "e"}).status_code == 201

    removed = http.delete("/jobs/d")
    assert (removed.status_code, removed.content) == (204, b"")
    assert http.get("/jobs/d").status_code == http.delete("/jobs/d").status_code == 404


def test_every_change_can_be_rehearsed(http: httpx.Client, api: Api) -> None:
    http.post("/jobs", json=JOB)
    other = {**JOB, "weight": 2}
    asked = [
        http.post("/jobs?dry_run=true", json=other),
        http.put("/jobs/d?dry_run=true", json=other),
        http.delete("/jobs/d?dry_run=true"),
        http.put("/policy?dry_run=true", json={"name": "varys"}),
        http.put("/links/s1/s2?dry_run=true", json={"state": "drained", "force": True}),
    ]
    assert {answer.status_code for answer in asked} == {200}
    assert {answer.text for answer in asked} == {asked[0].text}
    assert asked[0].json()["jobs"] == [{"job": "other", "before": 1.0, "after": 1.5, "problem": None}]
    assert api.service.rehearsed == [
        Registration(other, replace=False),
        Registration(other, replace=True),
        Removal("d"),
        PolicySetting(name="varys"),
        LinkChange("s1", "s2", LinkSetting(state="drained", force=True)),
    ]
    assert http.get("/jobs/d").json()["spec"] == JOB
    assert http.get("/policy").json()["name"] == "fair"
    assert [link["state"] for link in http.get("/links").json()] == ["up"]
    assert http.delete("/jobs/d?dry_run=perhaps").json()["error"]["path"] == "dry_run"


def test_a_job_keeps_the_name_in_its_path(http: httpx.Client) -> None:
    refused = http.put("/jobs/e", json=JOB)
    assert (refused.status_code, refused.json()["error"]["path"]) == (422, "job")
    assert http.get("/jobs").json() == []


def test_distances(http: httpx.Client) -> None:
    http.post("/jobs", json=JOB)
    report = {"echelonflow": "ring", "offsets": ["0 s", "1 ms"]}
    assert http.post("/jobs/d/distances", json=report).json()["name"] == "d"
    assert http.post("/jobs/x/distances", json=report).status_code == 404
    wrong = http.post("/jobs/d/distances", json={**report, "offsets": ["0 s", "1 B"]})
    assert (wrong.status_code, wrong.json()["error"]["path"]) == (422, "offsets[1]")


def test_waiting_for_a_job(http: httpx.Client, api: Api) -> None:
    http.post("/jobs", json=JOB)
    assert http.get("/jobs/d?wait_s=0").json()["state"] == "accepted"
    assert http.get("/jobs/d?wait_s=0.01").json()["state"] == "accepted"
    answers: list[str] = []
    waiting = threading.Thread(target=lambda: answers.append(http.get("/jobs/d?wait_s=30").json()["state"]))
    waiting.start()
    api.serving.call(api.service.release.set)
    waiting.join()
    assert answers == ["installed"]


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "inf", "x", "", "1e99"])
def test_no_such_waiting(http: httpx.Client, wait: str) -> None:
    refused = http.get(f"/jobs/d?wait_s={wait}")
    assert refused.status_code == 422
    assert refused.json()["error"]["path"] == "wait_s"
    assert refused.json()["error"]["reason"].endswith("(correct the query)")


def test_parts_of_the_plan(http: httpx.Client) -> None:
    for name in ("d", "e"):
        http.post("/jobs", json={**JOB, "job": name})

    def flows(query: str) -> list[tuple[str, str]]:
        return [(flow["job"], flow["path"][1]) for flow in http.get(f"/plan{query}").json()["flows"]]

    assert flows("") == [("d", "s1"), ("d", "s2"), ("e", "s1"), ("e", "s2")]
    assert flows("?job=e") == [("e", "s1"), ("e", "s2")]
    assert flows("?switch=s2") == [("d", "s2"), ("e", "s2")]
    assert flows("?switch=s2&job=d") == [("d", "s2")]
    assert http.get("/plan?job=x").status_code == http.get("/plan?switch=x").status_code == 404


def test_pages_of_jobs(http: httpx.Client) -> None:
    names = ["b", "a", "d", "c", "f", "e"]
    for name in names:
        http.post("/jobs", json={**JOB, "job": name, "workers": ["h1", "h2" if name < "e" else "h3"]})
    assert [job["name"] for job in http.get("/jobs").json()] == sorted(names)
    assert pages(http, "/jobs?limit=4") == [["a", "b", "c", "d"], ["e", "f"]]
    assert pages(http, "/jobs?limit=2&worker=h2&state=accepted") == [["a", "b"], ["c", "d"]]
    assert pages(http, "/jobs?after=c") == [["d", "e", "f"]]
    assert pages(http, "/jobs?after=cx&limit=1") == [["d"], ["e"], ["f"]], "there need not be such a job"
    assert http.get("/jobs?state=installed").json() == []
    for query in ("limit=0", "limit=1001", "limit=x", "state=here"):
        refused = http.get(f"/jobs?{query}")
        assert (refused.status_code, refused.json()["error"]["path"]) == (422, query.partition("=")[0])


def pages(http: httpx.Client, path: str) -> list[list[str]]:
    """Follow the links from page to page, and return the names in each."""
    found = []
    while True:
        page = http.get(path)
        assert page.status_code == 200, page.text
        found.append([one["name"] for one in page.json()])
        if "next" not in page.links:
            return found
        path = page.links["next"]["url"]


def test_pages_of_the_plan(http: httpx.Client) -> None:
    for name in ("d", "e"):
        http.post("/jobs", json={**JOB, "job": name})
    first = http.get("/plan?limit=3")
    assert [flow["flow"] for flow in first.json()["flows"]] == ["d-s1", "d-s2", "e-s1"]
    second = http.get(first.links["next"]["url"])
    assert [flow["flow"] for flow in second.json()["flows"]] == ["e-s2"]
    assert "next" not in second.links
    assert http.get("/plan?after=d").json()["error"]["path"] == "after"


def test_pages_of_changes(http: httpx.Client, api: Api) -> None:
    api.service.event_list = [
        EventResource(at=n, action="a", object=of, request=f"r{n}", client=client, address=None)
        for n, (of, client) in enumerate([("bert", "ci"), ("gpt", "ci"), ("bert ring", "ops"), ("bertha", "ci")])
    ]

    def requests(query: str) -> list[str]:
        return [one["request"] for one in http.get(f"/events?{query}").json()]

    assert requests("") == ["r0", "r1", "r2", "r3"]
    assert requests("client=ci") == ["r0", "r1", "r3"]
    assert requests("object=bert") == ["r0", "r2"]
    last = http.get("/events?client=ci&limit=2")
    assert [one["request"] for one in last.json()] == ["r1", "r3"]
    first = http.get(last.links["next"]["url"])
    assert [one["request"] for one in first.json()] == ["r0"]
    assert "next" not in first.links
    assert http.get("/events?before=r9").status_code == 404


def test_switches(http: httpx.Client) -> None:
    assert [switch["name"] for switch in http.get("/switches").json()] == ["s1", "s2"]
    assert http.get("/switches/s2").json()["target"] == "softswitch"
    assert http.get("/switches/s1/intent").json() == {"switch": "s1", "entries": [], "queues": []}
    assert http.get("/switches/s1/difference").json()["reachable"] is True
    for path in ("/switches/x", "/switches/x/intent", "/switches/x/difference"):
        assert http.get(path).status_code == 404


def test_policy_and_links(http: httpx.Client) -> None:
    assert http.get("/policy").json()["name"] == "fair"
    assert http.put("/policy", json={"name": "varys"}).json()["name"] == "varys"
    assert http.get("/policy").json()["name"] == "varys"
    assert http.put("/links/s1/s2", json={"state": "drained"}).json()["state"] == "drained"
    assert http.get("/links").json()[0]["state"] == "drained"
    assert http.put("/links/s1/s1", json={"state": "up"}).status_code == 404
    assert http.put("/links/s1/s2", json={"state": "down"}).json()["error"]["path"] == "state"


def test_how_the_service_is(http: httpx.Client, api: Api) -> None:
    assert http.get("/status").json()["role"] == "leader"
    assert http.get("/healthz").json() == {"alive": True}
    assert http.get("/readyz").json() == {"ready": True, "stuck": []}
    api.service.stuck_list = ["switch s1 has been refused for 150 s"]
    stuck = http.get("/readyz")
    assert (stuck.status_code, stuck.json()["stuck"]) == (200, api.service.stuck_list)
    api.service.problem_list = ["no store", "no plan"]
    unready = http.get("/readyz")
    assert (unready.status_code, unready.json()["error"]["reason"]) == (503, "no store; no plan")
    metrics = http.get("/metrics")
    assert (metrics.content, metrics.headers["content-type"]) == (METRICS, "text/plain; version=0.0.4")


def test_the_head_of_every_answer(http: httpx.Client) -> None:
    for path in ("/jobs", "/status", "/metrics", "/healthz", "/nothing"):
        whole, head = http.get(path), http.head(path)
        assert (head.status_code, head.content) == (whole.status_code, b"")
        assert head.headers["content-length"] == str(len(whole.content))


def test_headers_of_answers(http: httpx.Client) -> None:
    headers = http.get("/jobs").headers
    assert headers["content-type"] == "application/json"
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert "server" not in headers
