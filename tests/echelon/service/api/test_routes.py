"""Each path once as it is meant to be used, over HTTP."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from typer.testing import CliRunner

from echelon.cli import app
from echelon.controller.machine.lines import MOST_TAKEOVERS
from echelon.controller.service import switches
from echelon.controller.service.api import status
from echelon.controller.service.metrics import Metrics
from echelon.controller.service.trail import Record
from echelon.switches.southbound.connection import Endpoint, SwitchConnection
from echelon.switches.southbound.events import HigherPrimary, PortsUnwatched, SwitchEvent
from tests.echelon.service.api.conftest import METRICS, Api
from tests.echelon.service.api.memory import JOB, MemoryService, config


@pytest.fixture
def http(api: Api) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=api.url, headers={"Authorization": f"Bearer {api.operator}"}, trust_env=False
    ) as client:
        yield client


def test_a_jobs_life(http: httpx.Client) -> None:
    created = http.post("/jobs", json=JOB)
    assert (created.status_code, created.headers["location"]) == (201, "/jobs/d")
    assert created.json()["spec"] == JOB
    again = http.post("/jobs", json=JOB)
    assert (again.status_code, "location" in again.headers) == (200, False)
    assert [job["name"] for job in http.get("/jobs").json()] == ["d"]
    found = http.get(created.headers["location"]).json()
    assert (found["name"], found["number"], found["spec"]) == ("d", again.json()["number"], JOB)
    assert [flow["number"] for flow in found["flows"]] == list(range(found["flow_count"]))

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
    api.serving.wait(api.service.planned())
    other, heavier = (
        {**JOB, "job": "e"},
        {**JOB, "data": {"compute": "500 ms", "gradient": "50 MB"}},
    )
    asked = [
        http.post("/jobs?dry_run=true", json=other),
        http.put("/jobs/d?dry_run=true", json=heavier),
        http.delete("/jobs/d?dry_run=true"),
        http.put("/policy?dry_run=true", json={"name": "varys"}),
        http.put("/links/s1/s2?dry_run=true", json={"state": "drained", "force": True}),
    ]
    assert {answer.status_code for answer in asked} == {200}
    jobs = [
        {one["job"]: (one["before"], one["after"]) for one in answer.json()["jobs"]}
        for answer in asked
    ]
    assert jobs[0]["e"][0] is None
    assert jobs[0]["e"][1] > 1 == jobs[0]["d"][0], "two on the same links"
    assert jobs[1] == {"d": (1, pytest.approx(1, rel=1e-6))}
    assert jobs[2] == jobs[4] == {"d": (1, None)}
    assert {one["switch"] for one in asked[2].json()["switches"]} == {"s1", "s2"}
    assert http.post("/jobs?dry_run=true", json={**JOB, "weight": 2}).status_code == 409
    assert http.get("/jobs/d").json()["spec"] == JOB
    assert [job["name"] for job in http.get("/jobs").json()] == ["d"]
    assert http.get("/policy").json()["name"] == "fair"
    assert {link["state"] for link in http.get("/links").json()} == {"up"}
    assert http.delete("/jobs/d?dry_run=perhaps").json()["error"]["path"] == "dry_run"


def test_a_job_keeps_the_name_in_its_path(http: httpx.Client) -> None:
    refused = http.put("/jobs/e", json=JOB)
    assert (refused.status_code, refused.json()["error"]["path"]) == (422, "job")
    assert http.get("/jobs").json() == []


def test_distances(http: httpx.Client) -> None:
    first, *_ = http.post("/jobs", json=JOB).json()["echelonflows"]
    report = {
        "echelonflow": first["name"],
        "offsets": [f"{index} ms" for index in range(first["flows"])],
    }
    found, *_ = http.post("/jobs/d/distances", json=report).json()["echelonflows"]
    assert (
        found["offsets_s"]
        == [index / 1000 for index in range(first["flows"])]
        != first["offsets_s"]
    )
    assert http.post("/jobs/x/distances", json=report).status_code == 404
    wrong = http.post(
        "/jobs/d/distances", json={"echelonflow": first["name"], "offsets": ["0 s", "1 B"]}
    )
    assert (wrong.status_code, wrong.json()["error"]["path"]) == (422, "offsets[1]")


def test_waiting_for_a_job(http: httpx.Client, api: Api) -> None:
    http.post("/jobs", json=JOB)
    for wait in ("0", "0.01"):
        assert http.get(f"/jobs/d?wait_s={wait}").json()["state"] in ("accepted", "planned")
    answers: list[str] = []
    waiting = threading.Thread(
        target=lambda: answers.append(http.get("/jobs/d?wait_s=30").json()["state"])
    )
    waiting.start()
    api.serving.wait(api.service.installed())
    waiting.join()
    assert answers == ["installed"]


def test_the_story_of_a_job(http: httpx.Client, api: Api) -> None:
    http.post("/jobs", json=JOB)
    api.serving.wait(api.service.installed())
    story = http.get("/jobs/d/story").json()
    kinds = [record["kind"] for record in story["records"]]
    assert (story["job"], kinds[0]) == ("d", "RegisterJob")
    assert "PlanAdopted" in kinds[: kinds.index("JobInstalled")]
    assert all(record["text"] and record["times"] >= 1 for record in story["records"])
    times_s = [record["time_s"] for record in story["records"]]
    assert http.get("/jobs/d").json()["accepted_at"] - 1 < times_s[0] <= times_s[-1]
    http.delete("/jobs/d")
    kinds = [record["kind"] for record in http.get("/jobs/d/story").json()["records"]]
    assert "JobRemoved" in kinds, "a removed job is remembered"
    assert http.get("/jobs/x/story").json()["error"]["code"] == "unknown-job"
    assert http.get("/jobs/x/story").status_code == 404


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "inf", "x", "", "1e99"])
def test_no_such_waiting(http: httpx.Client, wait: str) -> None:
    refused = http.get(f"/jobs/d?wait_s={wait}")
    assert refused.status_code == 422
    assert refused.json()["error"]["path"] == "wait_s"
    assert refused.json()["error"]["reason"].endswith("(correct the query)")


def plan_of_two(http: httpx.Client, api: Api) -> list[dict[str, Any]]:
    """Register a job over both switches and one over the second, and return their flows."""
    for job in (JOB, {**JOB, "job": "e", "workers": ["h2", "h3"]}):
        http.post("/jobs", json=job)
    api.serving.wait(api.service.planned())
    flows: list[dict[str, Any]] = http.get("/plan").json()["flows"]
    assert {flow["job"] for flow in flows} == {"d", "e"}
    return flows


def test_parts_of_the_plan(http: httpx.Client, api: Api) -> None:
    flows = plan_of_two(http, api)

    def found(query: str) -> list[dict[str, Any]]:
        part: list[dict[str, Any]] = http.get(f"/plan{query}").json()["flows"]
        return part

    of_d = [flow for flow in flows if flow["job"] == "d"]
    assert found("?job=d") == found("?switch=s1") == found("?switch=s1&job=d") == of_d != []
    assert found("?switch=s2") == flows
    assert found("?switch=s1&job=e") == []
    assert http.get("/plan?job=x").status_code == http.get("/plan?switch=x").status_code == 404


def test_pages_of_jobs(http: httpx.Client, api: Api) -> None:
    names = ["b", "a", "d", "c", "f", "e"]
    for name in names:
        http.post(
            "/jobs", json={**JOB, "job": name, "workers": ["h1", "h2" if name < "e" else "h3"]}
        )
    api.serving.wait(api.service.planned())
    assert [job["name"] for job in http.get("/jobs").json()] == sorted(names)
    assert pages(http, "/jobs?limit=4") == [["a", "b", "c", "d"], ["e", "f"]]
    assert pages(http, "/jobs?limit=2&worker=h2&state=planned") == [["a", "b"], ["c", "d"]]
    assert pages(http, "/jobs?after=c") == [["d", "e", "f"]]
    assert pages(http, "/jobs?after=cx&limit=1") == [["d"], ["e"], ["f"]], (
        "there need not be such a job"
    )
    assert http.get("/jobs?state=installed").json() == []
    for query in ("limit=0", "limit=1001", "limit=x", "state=here"):
        refused = http.get(f"/jobs?{query}")
        assert (refused.status_code, refused.json()["error"]["path"]) == (
            422,
            query.partition("=")[0],
        )


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


def test_pages_of_the_plan(http: httpx.Client, api: Api) -> None:
    flows = plan_of_two(http, api)
    first = http.get("/plan?limit=3")
    assert first.json()["flows"] == flows[:3]
    found, page = flows[:3], first
    while "next" in page.links:
        page = http.get(page.links["next"]["url"])
        found += page.json()["flows"]
    assert found == flows
    assert http.get("/plan?after=d").json()["error"]["path"] == "after"
    assert http.get("/plan?after=d/gone").json()["error"]["path"] == "after"


def test_pages_of_changes(http: httpx.Client, api: Api) -> None:
    api.app.state.service = service = MemoryService(
        Record(at=n, action="a", object=of, request=f"r{n}", client=client, address=None)
        for n, (of, client) in enumerate(
            [("bert", "ci"), ("gpt", "ci"), ("bert ring", "ops"), ("bertha", "ci")]
        )
    )
    api.serving.wait(service.open())

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
    api.serving.wait(service.close())


def test_takeovers_of_a_switch_are_among_the_changes(http: httpx.Client, api: Api) -> None:
    def take_over() -> None:
        for number in range(1, MOST_TAKEOVERS + 2):
            api.service.leader.submit(HigherPrimary("s1", number << 70))

    async def kept() -> list[str]:
        while not api.service.leader.is_quiet:
            await asyncio.sleep(0.001)
        return [str(one["action"]) for one in (await api.service.store.load())["events"].values()]

    api.serving.call(take_over)
    answer = http.post("/switches/s1/take")
    found = http.get("/events?object=s1").json()
    assert [one["action"] for one in found] == ["switch taken"] * MOST_TAKEOVERS + [
        "switch left",
        "take switch",
    ]
    assert found[0]["object"] == f"s1 to election id {1 << 70}"
    assert (found[-1]["client"], found[-1]["request"]) == ("ops", answer.headers["x-request-id"])
    # They are kept though no plan is made.
    assert api.serving.wait(kept())[-len(found) :] == [one["action"] for one in found]


def test_a_switch_that_does_not_tell_of_its_ports(
    http: httpx.Client, api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connection = api.service.leader.switches["s1"]
    seen = replace(
        connection.snapshot(), state="ready", unwatched="switch s1: watching ports refused: no"
    )
    monkeypatch.setattr(connection, "snapshot", lambda: seen)
    assert http.get("/switches/s1").json()["unwatched"] == seen.unwatched
    [told] = [one for one in http.get("/status").json()["problems"] if "s1" in one]
    assert told == f"switch s1: links of ports that are down are not noticed ({seen.unwatched})"
    (tmp_path / "token").write_text(api.reader)
    environment = {"ECHELON_URL": api.url, "ECHELON_TOKEN_FILE": str(tmp_path / "token")}
    assert seen.unwatched in CliRunner(env=environment).invoke(app, ["switch", "show", "s1"]).stdout
    assert "ports" not in CliRunner(env=environment).invoke(app, ["switch", "show", "s2"]).stdout


def test_a_switch_that_does_not_tell_of_its_ports_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[SwitchEvent] = []
    owners: list[Callable[[SwitchEvent], None]] = []

    def connect(endpoint: Endpoint, **owned: Any) -> SwitchConnection:
        owners.append(owned["on_event"])
        return SwitchConnection(endpoint, **owned)

    monkeypatch.setattr(switches, "SwitchConnection", connect)
    switches.Switches(config(), 1, Metrics("0"), heard.append, cast(Any, None), random.Random(1))
    owners[0](event := PortsUnwatched("s1", "switch s1: watching ports refused: no"))
    assert heard == [event]
    [record] = [one for one in caplog.records if one.levelname == "WARNING"]
    assert "'s1'" in (text := record.getMessage())
    assert event.problem in text
    assert "do not lead around" in text


def test_switches(http: httpx.Client, api: Api) -> None:
    api.serving.wait(api.service.planned())
    assert [switch["name"] for switch in http.get("/switches").json()] == ["s1", "s2"]
    assert http.get("/switches/s2").json()["target"] == "softswitch"
    intent = http.get("/switches/s1/intent").json()
    assert (intent["switch"], {entry["owner"] for entry in intent["entries"]}) == ("s1", {"fabric"})
    assert [
        entry["match"] for entry in intent["entries"] if "10.0.0.1/32" in entry["match"].values()
    ]
    for part in ("difference", "queues"):
        found = http.get(f"/switches/s1/{part}").json()
        assert (found["reachable"], found["problem"]) == (
            False,
            "switch s1: no session yet (connecting)",
        )
    for path in ("/switches/x", "/switches/x/intent", "/switches/x/difference"):
        assert http.get(path).status_code == 404


def test_policy_and_links(http: httpx.Client) -> None:
    assert http.get("/policy").json()["name"] == "fair"
    assert http.put("/policy", json={"name": "varys"}).json()["name"] == "varys"
    assert http.get("/policy").json()["name"] == "varys"
    assert http.put("/links/s1/s2", json={"state": "drained"}).json()["state"] == "drained"
    assert [
        (one["a"], one["b"]) for one in http.get("/links").json() if one["state"] == "drained"
    ] == [("s1", "s2")]
    assert http.put("/links/s1/s1", json={"state": "up"}).status_code == 404
    assert http.put("/links/s1/s2", json={"state": "down"}).json()["error"]["path"] == "state"


def test_how_the_service_is(http: httpx.Client, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.serving.wait(api.service.planned())
    assert http.get("/status").json()["role"] == "leader"
    assert http.get("/healthz").json() == {"alive": True}
    assert http.get("/readyz").json() == {"ready": True, "stuck": []}
    monkeypatch.setattr(status, "STUCK_S", 0.0)
    stuck = http.get("/readyz")
    assert (stuck.status_code, [one.split()[:2] for one in stuck.json()["stuck"]]) == (
        200, [["switch", "s1"], ["switch", "s2"]],
    )  # fmt: skip
    api.service.store.problem = "no store"
    unready = http.get("/readyz")
    assert (unready.status_code, unready.json()["error"]["reason"]) == (503, "no store")
    assert http.get("/status").json()["problems"] == [
        "no store",
        "switch s1: connecting",
        "switch s2: connecting",
    ]
    metrics = http.get("/metrics")
    assert (metrics.content, metrics.headers["content-type"]) == (
        METRICS,
        "text/plain; version=0.0.4",
    )


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
