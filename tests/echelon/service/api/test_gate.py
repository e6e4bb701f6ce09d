"""Access and limits of the API, and the records of requests."""

from __future__ import annotations

import json
import logging
import queue
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.controller.machine import jobs
from echelon.controller.service.api import body
from echelon.controller.service.api.app import create_app
from echelon.controller.service.api.gate import CLIENT_LEFT, RequestRates
from echelon.controller.service.api.settings import ApiSettings, Exchange
from echelon.controller.service.api.tokens import Tokens, TokensFile, new_token
from echelon.model.documents import parse_document
from tests.echelon.service.api.conftest import BODY_BYTES, Api
from tests.echelon.service.api.memory import JOB, MemoryService, standby
from tests.echelon.service.api.serving import TIMEOUT_S, Serving, serving
from tests.echelon.service.api.test_errors import fault


def operations(api: Api) -> list[tuple[str, str]]:
    """Return every method and path of the API's own document, with names in the place of
    parameters.
    """
    return [
        (method.upper(), re.sub(r"\{\w+\}", "s1", path))
        for path, methods in api.app.openapi()["paths"].items()
        for method in methods
    ]


OPEN = ("/healthz", "/readyz")
ENDLESS = ("GET", "/stream")
"""Its answer ends after minutes (test_stream.py)."""


@pytest.fixture
def http(api: Api) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=api.url, trust_env=False) as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_there_are_operations(api: Api) -> None:
    assert len(operations(api)) >= 18
    assert {path for _, path in operations(api)} > {*OPEN, "/metrics"}


def test_nothing_without_a_token(http: httpx.Client, api: Api) -> None:
    paths = [*operations(api), ("GET", "/openapi.json"), ("GET", "/nothing"), ("PATCH", "/jobs")]
    for method, path in paths:
        response = http.request(method, path, json=JOB)
        if path in OPEN:
            assert response.status_code == 200
        else:
            fault(response, 401, "unauthenticated", "")
            assert response.headers["www-authenticate"] == 'Bearer realm="echelon"'
    assert api.service.machine.jobs.jobs == {}


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Basic b3BzOm9wcw==",
        "bearer wrong",
        "Bearer échelon",
        "Bearer " + "x" * 8000,
        "TOKEN",
    ],
)
def test_nothing_with_a_wrong_token(http: httpx.Client, header: str) -> None:
    response = http.get("/jobs", headers={b"Authorization": header.encode()})
    fault(response, 401, "unauthenticated", "")


def test_a_token_is_accepted_in_one_header_only(http: httpx.Client, api: Api) -> None:
    value = f"Bearer {api.operator}"
    assert http.get("/jobs", headers=[("Authorization", value)]).status_code == 200
    assert (
        http.get("/jobs", headers=[("Authorization", value), ("Authorization", value)]).status_code
        == 401
    )
    assert (
        http.get("/jobs", headers={"authorization": f"bEaReR   {api.operator}"}).status_code == 200
    )
    assert http.get(f"/jobs?token={api.operator}").status_code == 401


def test_a_read_only_token_changes_nothing(http: httpx.Client, api: Api) -> None:
    for method, path in set(operations(api)) - {ENDLESS}:
        response = http.request(method, path, headers=bearer(api.reader), json=JOB)
        if method == "GET":
            assert response.status_code in (200, 404)
        else:
            reason = fault(response, 403, "forbidden", "")["reason"]
            assert "'eyes'" in reason
            assert "operator" in reason
    assert api.service.machine.jobs.jobs == {}
    assert not api.service.machine.jobs.drained


def test_an_agent_reports_of_its_jobs_and_does_nothing_else(http: httpx.Client, api: Api) -> None:
    http.post(
        "/jobs",
        headers=bearer(api.operator),
        json={**JOB, "recognition": {"by": "agent", "idle_gap": "50 ms"}},
    )
    of_agents = re.compile("/jobs/s1/(connections|connections/s1|iterations/s1|classes)")
    assert len([1 for _, path in operations(api) if of_agents.fullmatch(path)]) == 4
    for method, path in operations(api):
        if path not in OPEN:
            response = http.request(method, path, headers=bearer(api.agent), json={})
            reason = fault(response, 403, "forbidden", "")["reason"]
            assert "'h1-agent'" in reason
            if of_agents.fullmatch(path):
                assert re.search(": d\\b", reason), "the jobs that it is for"
            else:
                assert "operator" in reason, "the role that may"
    for reading in ("connections", "classes"):
        assert http.get(f"/jobs/d/{reading}", headers=bearer(api.agent)).status_code == 200
    assert (
        http.put(
            "/jobs/d/connections/h1", headers=bearer(api.agent), json={"connections": []}
        ).status_code
        == 200
    )
    assert (
        http.put(
            "/jobs/d/iterations/h1", headers=bearer(api.agent), json={"iterations": []}
        ).status_code
        == 200
    )
    for path in (
        "/jobs/d",
        "/jobs/other%2F..%2Fd/connections",
        "/jobs/d/connections/../../other",
        "/jobs/d/iterations",
    ):
        assert http.request("PUT", path, headers=bearer(api.agent), json={}).status_code in (
            403,
            404,
            405,
        ), path
        assert http.request("DELETE", path, headers=bearer(api.agent)).status_code in (
            403,
            404,
            405,
        ), path
    assert list(api.service.machine.jobs.jobs) == ["d"]


def test_an_operator_may_do_everything(http: httpx.Client, api: Api) -> None:
    for method, path in operations(api):
        if (method, path) == ENDLESS:
            continue
        answered = http.request(method, path, headers=bearer(api.operator), json=JOB).status_code
        assert answered in (200, 201, 202, 404, 409, 422)


def test_refusals_come_before_the_body_is_looked_at(http: httpx.Client, api: Api) -> None:
    body = b"x" * (2 * BODY_BYTES)
    headers = {"Content-Type": "application/json"}
    fault(http.post("/jobs", content=body, headers=headers), 401)
    fault(http.post("/jobs", content=body, headers={**headers, **bearer(api.reader)}), 403)
    fault(http.post("/jobs", content=body, headers={**headers, **bearer(api.operator)}), 413)


def job_of(size: int) -> bytes:
    text = json.dumps(JOB)
    return text.encode() + b" " * (size - len(text))


def in_chunks(body: bytes, size: int = 1000) -> Iterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


@pytest.mark.parametrize("send", [lambda body: body, in_chunks], ids=["declared", "chunked"])
def test_the_size_of_bodies(http: httpx.Client, api: Api, send: Callable[[bytes], Any]) -> None:
    headers = {"Content-Type": "application/json", **bearer(api.operator)}
    assert http.post("/jobs", content=send(job_of(BODY_BYTES)), headers=headers).status_code == 201
    for size in (BODY_BYTES + 1, 4 * BODY_BYTES, 4 * BODY_BYTES + 1, 100 * BODY_BYTES):
        response = http.post("/jobs", content=send(job_of(size)), headers=headers)
        error = fault(response, 413, "too-large", "")
        assert f" {BODY_BYTES} bytes" in error["reason"]
    assert http.get("/jobs", headers=headers).status_code == 200


def test_a_large_body_that_is_wrong_in_every_place_leaves_the_loop_free(
    http: httpx.Client, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body's check takes seconds; on the loop, no other request would be answered meanwhile."""
    threads: list[threading.Thread] = []

    def seen(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return parse_document(*arguments)

    for module in (body, jobs):
        monkeypatch.setattr(module, "parse_document", seen)
    monkeypatch.setattr(
        api.app.state, "settings", replace(api.app.state.settings, body_bytes=10**6)
    )
    loop_thread = api.serving.call(threading.current_thread)
    section = {"micro_batches": 1, "activation": "1 MB", "forward": ["1 s"] * 30_000}
    spec = {"job": "p", "parallelism": "pipeline", "workers": ["h1", "h2"], "pipeline": section}
    report = {"echelonflow": "x", "offsets": ["1 B"] * 30_000}
    for path, sent, code, key, name in [
        ("/jobs", spec, "wrong-length", "pipeline.forward", "30000"),
        ("/jobs/x/distances", report, "unknown-unit", "offsets[0]", "'B'"),
    ]:
        response = http.post(path, json=sent, headers=bearer(api.operator))
        assert name in fault(response, 422, code, key)["reason"]
    assert len(threads) == 2
    assert loop_thread not in threads


def test_a_key_of_a_whole_page_is_shortened(http: httpx.Client, api: Api) -> None:
    response = http.post("/jobs", json={"x" * 5000: 1}, headers=bearer(api.operator))
    error = fault(response, 422, "unknown-key")
    assert len(error["path"] + error["reason"]) < 300


def test_bodies_that_nobody_reads_do_no_harm(http: httpx.Client, api: Api) -> None:
    for method, path in [
        ("GET", "/jobs"),
        ("DELETE", "/jobs/x"),
        ("PATCH", "/jobs"),
        ("GET", "/healthz"),
    ]:
        response = http.request(method, path, content=b"x" * 10**6, headers=bearer(api.operator))
        assert response.status_code in (200, 404, 405)


@contextmanager
def serving_open(
    settings: ApiSettings | None = None,
) -> Iterator[tuple[MemoryService, Serving, httpx.Client]]:
    """Serve the API without tokens."""
    service = MemoryService()
    with (
        serving(create_app(service, settings)) as running,
        httpx.Client(base_url=running.url, trust_env=False) as http,
    ):
        yield service, running, http


def connect(running: Serving) -> socket.socket:
    connection = socket.create_connection(
        ("127.0.0.1", running.server.port or 0), timeout=TIMEOUT_S
    )
    connection.settimeout(TIMEOUT_S)
    return connection


def test_a_body_that_does_not_come() -> None:
    with (
        serving_open(ApiSettings(body_timeout_s=0.05)) as (_, running, _),
        connect(running) as connection,
    ):
        connection.sendall(
            b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        connection.sendall(b"Content-Length: 100\r\n\r\n{")
        answer = connection.makefile("rb").read()  # to the end: the connection is closed
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    error = json.loads(body)["error"]
    assert error["code"] == "timeout"
    assert " 0.05 s" in error["reason"]


def test_a_client_that_leaves_in_the_middle(caplog: pytest.LogCaptureFixture) -> None:
    told: queue.Queue[Exchange] = queue.Queue()
    with serving_open(ApiSettings(observe=told.put)) as (service, running, _):
        with connect(running) as connection:
            connection.sendall(
                b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            )
            connection.sendall(b"Content-Length: 100\r\n\r\n{")
        exchange = told.get(timeout=TIMEOUT_S)
        assert service.machine.jobs.jobs == {}
    assert (exchange.status, exchange.route) == (CLIENT_LEFT, "/jobs")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_requests_at_a_time() -> None:
    with (
        serving_open(ApiSettings(requests=2)) as (service, running, http),
        ExitStack() as open_connections,
    ):
        http.post("/jobs", json=JOB)
        waiting = [open_connections.enter_context(connect(running)) for _ in range(2)]
        for connection in waiting:
            connection.sendall(
                b"GET /jobs/d?wait_s=60 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
        while running.call(lambda: service.waiting) < 2:
            pass
        refused = http.get("/jobs")
        assert "2 requests" in fault(refused, 429, "too-many-requests", "")["reason"]
        assert refused.headers["retry-after"] == "1"
        assert http.get("/healthz").status_code == http.get("/readyz").status_code == 200
        running.wait(service.installed())
        for connection in waiting:
            assert b'"state":"installed"' in connection.makefile("rb").read()
        assert http.get("/jobs").status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8080", 200),
        ("127.0.0.1:1", 200),
        ("[::1]", 200),
        ("[::1]:80", 200),
        ("10.0.0.7", 200),
        ("rebound.example", 403),
        ("rebound.example:8080", 403),
        ("localhost.rebound.example", 403),
        ("127.0.0.1.rebound.example", 403),
    ],
)
def test_without_tokens_a_foreign_name_gets_nothing(
    open_api: httpx.Client, host: str, status: int
) -> None:
    response = open_api.post("/jobs", json=JOB, headers={"Host": host})
    if status == 200:
        assert response.status_code in (200, 201)
    else:
        assert f"'{host}'" in fault(response, status, "forbidden", "")["reason"]
    assert open_api.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.fixture(scope="module")
def open_api() -> Iterator[httpx.Client]:
    with serving_open() as (_, _, http):
        yield http


def test_a_form_of_a_web_page_changes_nothing(open_api: httpx.Client) -> None:
    """A browser sends neither JSON nor PUT or DELETE without asking first."""
    for content_type in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ):
        response = open_api.post(
            "/jobs", content=json.dumps(JOB), headers={"Content-Type": content_type}
        )
        fault(response, 415)
    answer = open_api.options(
        "/jobs", headers={"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"}
    )
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_metrics_may_be_open() -> None:
    tokens = Tokens([])
    for is_open, status in ((True, 200), (False, 401)):
        settings = ApiSettings(tokens=tokens, open_metrics=is_open)
        app = create_app(standby(), settings, lambda: (b"x 1\n", "text/plain"))
        with serving(app) as running, httpx.Client(base_url=running.url, trust_env=False) as http:
            assert http.get("/metrics").status_code == status
            assert http.get("/status").status_code == 401
            assert app.openapi()["paths"]["/metrics"]["get"].get("security") == (
                [] if is_open else None
            )


def test_other_requests_are_answered_while_metrics_are_written() -> None:
    begun, gate = threading.Event(), threading.Event()

    def metrics() -> tuple[bytes, str]:
        begun.set()
        assert gate.wait(TIMEOUT_S)
        return b"x 1\n", "text/plain"

    app = create_app(standby(), ApiSettings(), metrics)
    with (
        serving(app) as running,
        httpx.Client(base_url=running.url, trust_env=False, timeout=TIMEOUT_S) as http,
        ThreadPoolExecutor(1) as thread,
    ):
        scrape = thread.submit(http.get, "/metrics")
        assert begun.wait(TIMEOUT_S)
        try:
            assert http.get("/healthz").status_code == 200
        finally:
            gate.set()
        assert scrape.result().content == b"x 1\n"


def settle(api: Api) -> None:
    """Wait until a request is recorded, which happens after its answer was sent, in the same turn
    of the loop.
    """
    api.serving.call(lambda: None)


def test_every_request_is_told(http: httpx.Client, api: Api) -> None:
    http.get("/jobs/x", headers=bearer(api.reader))
    http.post("/jobs", headers=bearer(api.reader), json=JOB)
    http.head("/nothing/at/all", headers=bearer(api.operator))
    http.put("/policy")
    http.request("MADEUP", "/healthz")
    settle(api)
    assert [(e.method, e.route, e.path, e.status, e.token, e.role) for e in api.exchanges] == [
        ("GET", "/jobs/{name}", "/jobs/x", 404, "eyes", "read-only"),
        # What the gate refuses has no route.
        ("POST", "", "/jobs", 403, "eyes", "read-only"),
        ("HEAD", "", "/nothing/at/all", 404, "ops", "operator"),
        ("PUT", "", "/policy", 401, None, None),
        ("OTHER", "/healthz", "/healthz", 405, None, None),
    ]
    assert all(
        exchange.client == "127.0.0.1" and exchange.duration_s > 0 for exchange in api.exchanges
    )


def test_the_access_log_has_a_line_for_each_and_no_token(
    http: httpx.Client, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        http.get("/jobs", headers=bearer(api.operator))
        http.get("/jobs/a%0Ab%1b[31m", headers=bearer(api.reader))
        http.get("/jobs", headers=bearer("echelon_unknown"))
        http.get("/healthz")
        settle(api)
    records = [record for record in caplog.records if record.name == "echelon.api"]
    told = [record.msg for record in records if isinstance(record.msg, dict)]
    assert [
        (one["event"], one["method"], one["path"], one["status"], one["client"]) for one in told
    ] == [
        ("request", "GET", "/jobs", 200, "ops"),
        ("request", "GET", "/jobs/a\nb\x1b[31m", 404, "eyes"),
        ("request", "GET", "/jobs", 401, None),
        ("request", "GET", "/healthz", 200, None),
    ]
    assert [record.levelno for record in records] == [
        logging.DEBUG,
        logging.DEBUG,
        logging.WARNING,
        logging.DEBUG,
    ]
    assert len({one["request"] for one in told}) == 4
    everything = caplog.text + "".join(str(record.__dict__) for record in caplog.records)
    for token in (api.operator, api.reader, "echelon_unknown"):
        assert token not in everything


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[tuple[httpx.Client, list[Exchange], str]]:
    """Yield an API with a token that may do little and one that may do all, the requests, and the
    second token.
    """
    small, free = new_token("small", "operator"), new_token("free", "operator")
    entry = small.entry.replace("}", ", limits: {requests_per_s: 2, body: 100 B}}")
    (tmp_path / "tokens.yaml").write_text(f"tokens:\n{entry}{free.entry}")
    exchanges: list[Exchange] = []
    settings = ApiSettings(tokens=TokensFile(tmp_path / "tokens.yaml"), observe=exchanges.append)
    with (
        serving(create_app(MemoryService(), settings)) as server,
        httpx.Client(base_url=server.url, headers=bearer(small.token), trust_env=False) as client,
    ):
        yield client, exchanges, free.token


def test_a_token_has_a_limit_on_requests_in_a_second(
    limited: tuple[httpx.Client, list[Exchange], str],
) -> None:
    client, exchanges, free = limited
    answers = [client.get("/jobs") for _ in range(40)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused, "40 requests in less than 19 s"
    assert all(answer.headers["retry-after"] == "1" for answer in refused)
    reason = fault(refused[0], 429, "too-many-requests", "")["reason"]
    assert "token 'small'" in reason
    assert " 2 requests" in reason
    assert {exchange.token for exchange in exchanges if exchange.status == 429} == {"small"}
    assert {client.get("/jobs", headers=bearer(free)).status_code for _ in range(10)} == {200}
    assert client.get("/healthz").status_code == 200


def test_a_token_has_a_limit_on_the_size_of_a_request(
    limited: tuple[httpx.Client, list[Exchange], str],
) -> None:
    client, _, free = limited
    body = json.dumps({**JOB, "note": "x" * 200}).encode()
    headers = {"Content-Type": "application/json"}
    response = client.post("/jobs", content=body, headers=headers)
    reason = fault(response, 413, "too-large", "")["reason"]
    assert "limits.body" in reason
    assert "token 'small'" in reason
    assert (
        client.post("/jobs", content=body, headers={**headers, **bearer(free)}).status_code == 422
    )


@given(st.integers(1, 50), st.lists(st.integers(0, 400).map(lambda ms: ms / 1000), max_size=200))
def test_no_more_than_its_requests_in_any_time(per_s: int, pauses_s: list[float]) -> None:
    """At most per_s * (t + 1) requests pass in t seconds.

    A client that waits as long as the answer says passes.
    """
    now = 1000.0
    rates = RequestRates(lambda: now)
    passed: list[float] = []
    for pause_s in pauses_s:
        now += pause_s
        wait_s = rates.admit("t", per_s)
        assert rates.admit("other", 10**6) == 0
        if wait_s:
            now += wait_s + 1e-9
            assert rates.admit("t", per_s) == 0
        passed.append(now)
    for first in range(len(passed)):
        elapsed_s = passed[-1] - passed[first]
        assert len(passed) - first <= per_s * (elapsed_s + 1) + 1e-6
