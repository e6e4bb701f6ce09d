"""Whatever goes wrong has one shape and one line, and tells what the file's loader would tell."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from echelon.controller.machine.errors import (
    ConflictError,
    RefusedError,
    UnavailableError,
    UnknownError,
)
from echelon.model.documents import DocumentError, read_document
from echelon.model.jobs.spec import load_job_spec
from tests.echelon.files.test_malformed import BROKEN, LOADERS
from tests.echelon.service.api.conftest import Api
from tests.echelon.service.api.memory import JOB

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def http(api: Api) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=api.url, headers={"Authorization": f"Bearer {api.operator}"}, trust_env=False
    ) as client:
        yield client


def fault(
    response: httpx.Response, status: int, code: str | None = None, path: str | None = None
) -> dict[str, Any]:
    """Return the error in a response, which has the status and, unless None, the code and path."""
    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"]
    error: dict[str, Any] = response.json()["error"]
    assert list(error) == ["status", "code", "reason", "path"]
    assert error["status"] == status
    assert code in (None, error["code"]), error
    assert path in (None, error["path"]), error
    assert error["reason"]
    assert "\n" not in error["reason"] + error["path"]
    return error


def as_json(file: Path) -> bytes | None:
    """Return the file's mapping as JSON; None if YAML cannot read it, or JSON cannot express it."""
    try:
        return json.dumps(read_document(file), allow_nan=False).encode()
    except (DocumentError, ValueError):
        return None


JOB_FAULTS = [case for case in BROKEN if case[0] in ("pipeline.yaml", "data.yaml")]


def assert_same_words(http: httpx.Client, directory: Path) -> None:
    """Assert that the API and the loader of files describe each faulty job in the same words."""
    compared = 0
    for name, old, new, *_ in JOB_FAULTS:
        file = directory / name
        file.write_text(LOADERS[name][0].replace(old, new, 1))
        body = as_json(file)
        if body is None:
            continue
        with pytest.raises(DocumentError) as caught:
            load_job_spec(file)
        given = json.loads(body).get("job")
        paths = [("POST", "/jobs")]
        if not isinstance(given, str) or given in ("p", "d"):
            paths.append(("PUT", f"/jobs/{given or 'p'}"))
        for method, path in paths:
            error = fault(http.request(method, path, content=body, headers=JSON), 422)
            expected = caught.value
            assert (error["code"], error["path"], error["reason"]) == (
                expected.code,
                expected.path,
                expected.reason,
            )
        compared += 1
    # The rest are faults of YAML, which JSON cannot have.
    assert compared >= len(JOB_FAULTS) - 12


def test_a_faulty_job_is_refused_in_the_words_of_the_files_loader(
    http: httpx.Client, tmp_path: Path
) -> None:
    assert_same_words(http, tmp_path)


def test_faults_that_json_can_have_as_well(http: httpx.Client) -> None:
    for content, path, code in [
        (b'{"job": "a", "job": "b"}', "job", "duplicate-key"),
        (b"[" * 1000, "line 1, column 202", "bad-syntax"),
        (b"\xff", "line 1, column 1", "bad-syntax"),
        (b'{"weight": NaN}', "", "not-a-number"),
        (b"", "", "empty-document"),
    ]:
        fault(http.post("/jobs", content=content, headers=JSON), 400, code, path)


@pytest.mark.parametrize("body", ["[]", '"x"', "7", "null", "true"])
def test_a_body_must_be_a_mapping(http: httpx.Client, body: str) -> None:
    for method, path in [
        ("POST", "/jobs"),
        ("PUT", "/jobs/d"),
        ("PUT", "/policy"),
        ("PUT", "/links/s1/s2"),
        ("POST", "/jobs/d/distances"),
    ]:
        response = http.request(method, path, content=body, headers=JSON)
        fault(response, 422, "not-a-mapping", "")


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/yaml",
        "application/json; charset=latin-1",
        "json",
        None,
    ],
)
def test_bodies_are_json_and_say_so(http: httpx.Client, content_type: str | None) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    response = http.post("/jobs", content=json.dumps(JOB), headers=headers)
    error = fault(response, 415, "unsupported-media-type", "")
    assert "application/json" in error["reason"]
    assert http.get("/jobs").json() == []


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"']
)
def test_content_types_of_json(http: httpx.Client, content_type: str) -> None:
    assert (
        http.post(
            "/jobs", content=json.dumps(JOB), headers={"Content-Type": content_type}
        ).status_code
        == 201
    )


def test_no_such_path_and_no_such_method(http: httpx.Client) -> None:
    for path, name in (("/job", "'/job'"), ("/jobs/", "'/jobs/'"), ("/a%07%0Ab", "\\x07")):
        assert name in fault(http.get(path), 404, "unknown-path", "")["reason"]
    for method, path, allowed in [
        ("PATCH", "/jobs", "GET, HEAD, POST"),
        ("POST", "/jobs/x", "DELETE, GET, HEAD, PUT"),
        ("DELETE", "/policy", "GET, HEAD, PUT"),
        ("OPTIONS", "/links/a/b", "PUT"),
        ("TRACE", "/healthz", "GET, HEAD"),
        ("MADEUP", "/plan", "GET, HEAD"),
    ]:
        response = http.request(method, path)
        fault(response, 405, "method-not-allowed", "")
        assert response.headers["allow"] == allowed


def test_unknown_and_repeated_parameters_of_a_query(http: httpx.Client) -> None:
    error = fault(http.get("/plan?jobs=x"), 422, "unknown-parameter", "jobs")
    assert "'job'" in error["reason"]
    fault(http.get("/jobs?a%0A=x"), 422, "unknown-parameter", "'a\\n'")
    fault(http.get("/plan?job=a&job=b"), 422, "duplicate", "job")
    fault(http.delete("/jobs/d?force=1"), 422, "unknown-parameter", "force")


@pytest.mark.parametrize(
    ("raised", "status", "path", "code"),
    [
        (UnknownError("no"), 404, "", "unknown-name"),
        (UnknownError("no", code="unknown-job"), 404, "", "unknown-job"),
        (ConflictError("no", "job"), 409, "job", "name-taken"),
        (RefusedError("no", "workers[0]"), 422, "workers[0]", "refused"),
        (UnavailableError("no"), 503, "", "unavailable"),
        (DocumentError("job", "a.b[2]", "no", code="too-large"), 422, "a.b[2]", "too-large"),
    ],
)
def test_what_the_service_raises(
    http: httpx.Client, api: Api, raised: Exception, status: int, path: str, code: str
) -> None:
    api.service.fault = raised
    response = http.get("/jobs")
    assert fault(response, status) == {"status": status, "code": code, "reason": "no", "path": path}
    assert ("retry-after" in response.headers) == (status == 503)


def test_a_standby_names_the_leader(http: httpx.Client, api: Api) -> None:
    api.service.fault = UnavailableError("this controller is a standby", leader="https://ctl2:8080")
    response = http.post("/jobs", json=JOB)
    fault(response, 503)
    assert response.headers["location"] == "https://ctl2:8080/jobs"
    assert http.get("/plan?job=a%2Fb").headers["location"] == "https://ctl2:8080/plan?job=a%2Fb"
    assert http.get("/jobs/a%20b").headers["location"] == "https://ctl2:8080/jobs/a%20b"


def test_a_fault_of_the_controller(
    http: httpx.Client, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    api.service.fault = RuntimeError("inner detail")
    with caplog.at_level(logging.ERROR, "echelon.api"):
        error = fault(http.get("/jobs"), 500, "internal", "")
    assert "inner detail" not in error["reason"]
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert isinstance(record.msg, dict)
    assert record.msg["exc_info"]
    assert record.msg["fault"] in error["reason"]
    api.service.fault = None
    assert http.get("/jobs").status_code == 200


def test_reasons_that_quote_strange_text_stay_one_line(http: httpx.Client, api: Api) -> None:
    api.service.fault = UnknownError("there is no 'a\r\nb\ud800\x1b[31m'", "x\ud800\x07")
    error = fault(http.get("/jobs"), 404, "unknown-name", "x\\ud800\\x07")
    assert error["reason"] == "there is no 'a b\\ud800\\x1b[31m'"
