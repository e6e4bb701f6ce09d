"""The client against the API on real sockets, and against servers that break off, stand by or are
no controllers.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from echelon.controller.client import (
    DEFAULT_URL,
    TOKEN_FILE_VARIABLE,
    URL_VARIABLE,
    Client,
    ClientError,
    ServiceEndpoint,
    parse_endpoint,
    parse_endpoints,
    read_token,
)
from echelon.controller.machine.errors import UnavailableError
from echelon.controller.service.api.app import create_app
from echelon.controller.service.api.server import ServerSettings
from echelon.controller.service.api.settings import ApiSettings
from echelon.controller.service.api.tokens import TokensFile, new_token
from echelon.controller.service.config_file import ListenAddress
from echelon.model.documents import DocumentError
from tests.echelon.service.api.memory import JOB, MemoryService, standby
from tests.echelon.service.api.serving import TIMEOUT_S, Serving, serving
from tests.faults import coded


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (URL_VARIABLE, TOKEN_FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def service() -> MemoryService:
    return MemoryService()


@pytest.fixture
def running(service: MemoryService) -> Iterator[Serving]:
    with serving(create_app(service, metrics=lambda: (b"x 1\n", "text/plain"))) as made:
        yield made


@pytest.fixture
def client(running: Serving) -> Iterator[Client]:
    with Client(running.url) as made:
        yield made


def error_of(call: Callable[[], object], *names: str, **attributes: object) -> ClientError:
    """Return the error of a call. It is one line, has the attributes and names what is at fault."""
    with pytest.raises(ClientError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    assert [name for name in names if name not in text] == []
    assert {name: getattr(caught.value, name) for name in attributes} == attributes
    return caught.value


# -- calls -----------------------------------------------------------------------------------------


def test_every_call_gives_its_resource(
    client: Client, running: Serving, service: MemoryService
) -> None:
    assert client.register_job(JOB).spec == JOB
    assert client.register_job(JOB).name == "d"
    assert [job.name for job in client.jobs()] == ["d"]
    assert client.job("d").workers == ("h1", "h2")
    assert client.job("d", wait_s=0.01).state != "installed"
    assert client.register_job({**JOB, "weight": 2}, replace=True).spec["weight"] == 2
    offsets = client.job("d").echelonflows[0].offsets_s
    report = [0.25 * index for index in range(len(offsets))]
    found = client.report_distances("d", client.job("d").echelonflows[0].name, report)
    assert found.echelonflows[0].offsets_s == tuple(report)
    running.wait(service.planned())
    flows = client.plan().flows
    assert {(flow.job, frozenset(flow.path)) for flow in flows} == {
        ("d", frozenset({"h1", "s1", "s2", "h2"}))
    }
    assert client.plan(job="d", switch="s2").flows == flows
    assert client.set_policy("varys").name == client.policy().name == "varys"
    assert [switch.name for switch in client.switches()] == ["s1", "s2"]
    assert client.switch("s2").state == "connecting"
    assert {entry.owner for entry in client.intent("s1").entries} >= {"d", "fabric"}
    assert not client.difference("s1").reachable
    assert not client.queues("s1").reachable
    assert client.set_link("s1", "s2", "drained", force=True).state == "drained"
    assert [(link.a, link.b) for link in client.links() if link.state == "drained"] == [
        ("s1", "s2")
    ]
    assert client.status().jobs == 1
    assert client.story("d").records[0].kind == "RegisterJob"
    assert client.metrics() == "x 1\n"
    client.remove_job("d")
    assert client.jobs() == []
    assert client.is_alive()
    assert client.not_ready() is None
    service.store.problem = "no store"
    assert client.not_ready() == "no store"


def test_a_job_from_its_file(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(JOB))
    assert (
        client.register_job(file).name == client.register_job(str(file), replace=True).name == "d"
    )
    file.write_text(yaml.safe_dump({**JOB, "data": {"compute": "1 B", "gradient": "1 MB"}}))
    with pytest.raises(DocumentError) as caught:
        client.register_job(file)
    assert (caught.value.file, caught.value.path) == (str(file), "data.compute")
    gone = tmp_path / "gone.yaml"
    with pytest.raises(DocumentError, check=coded("unreadable-file", file=str(gone), path="")):
        client.register_job(gone)
    with pytest.raises(DocumentError, check=coded("missing-key", file="job", path="workers")):
        client.register_job({"job": "x", "parallelism": "data"})


def test_refusals_keep_status_reason_and_path(client: Client) -> None:
    client.register_job(JOB)
    conflict = error_of(lambda: client.register_job({**JOB, "weight": 2}))
    assert (conflict.status, conflict.path) == (409, "job")
    assert str(conflict) == f"job: {conflict.reason}"
    unknown = error_of(lambda: client.job("x"))
    assert (unknown.status, unknown.path, str(unknown)) == (404, "", unknown.reason)
    assert error_of(lambda: client.set_link("s1", "s2", "down")).path == "state"
    assert error_of(lambda: client.job("d", wait_s=100)).path == "wait_s"
    assert error_of(lambda: client.remove_job("x")).status == 404


@pytest.mark.parametrize("name", ["a/b", "..", "", "a b", "é", "%2e", "?x", "#", "\n"])
def test_strange_names_are_only_unknown(client: Client, name: str) -> None:
    assert error_of(lambda: client.remove_job(name)).status in (404, 405)
    assert error_of(lambda: client.set_link(name, name, "up")).status == 404


@given(st.just(0.0) | st.floats(1e-90, 10**6))
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_distances_in_seconds_arrive_as_they_are(client: Client, offset_s: float) -> None:
    first, *_ = client.register_job(JOB, replace=True).echelonflows
    offsets_s = (*[0.0] * (first.flows - 1), offset_s)
    assert (
        client.report_distances("d", first.name, offsets_s).echelonflows[0].offsets_s == offsets_s
    )


def test_distances_that_are_none(client: Client) -> None:
    client.register_job(JOB)
    for wrong in ("1 B", -1.0, float("nan"), float("inf"), 1e12):
        assert (
            error_of(lambda wrong=wrong: client.report_distances("d", "ring", [wrong])).path
            == "offsets[0]"
        )  # type: ignore[misc]


# -- tokens ----------------------------------------------------------------------------------------


def test_tokens(tmp_path: Path, service: MemoryService, monkeypatch: pytest.MonkeyPatch) -> None:
    made = new_token("ci", "operator")
    (tmp_path / "tokens.yaml").write_text(f"tokens:\n{made.entry}")
    (tmp_path / "token").write_text(f"{made.token}\n")
    app = create_app(service, ApiSettings(tokens=TokensFile(tmp_path / "tokens.yaml")))
    with serving(app) as running:
        with Client(running.url) as client:
            error_of(client.status, status=401, code="unauthenticated")
        with Client(running.url, token=made.token) as client:
            assert client.status().role == "leader"
        with Client(running.url, token="wrong") as client:
            refused = error_of(client.status, status=401, code="unauthenticated")
            assert "wrong" not in refused.reason
        monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(tmp_path / "token"))
        monkeypatch.setenv(URL_VARIABLE, running.url)
        with Client() as client:
            assert client.status().role == "leader"


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        (b"", ""),
        (b"\n\n", ""),
        (b"a b\n", "'echelon token'"),
        (b"\xff\n", ""),
        (b"a\x00b\n", "'echelon token'"),
        (None, ""),
    ],
)
def test_faulty_token_files(tmp_path: Path, content: bytes | None, remedy: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    error = error_of(lambda: read_token(file), remedy, status=None, code="failed")
    assert error.reason.startswith(str(file))


@pytest.mark.parametrize("token", ["", "a b", "a\r\nX-Evil: 1", "é"])
def test_tokens_that_would_not_fit_a_header(token: str) -> None:
    error_of(lambda: Client(token=token), "'echelon token'", status=None, code="failed")


# -- URLs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://ctl1:8080", ServiceEndpoint("http://ctl1:8080")),
        ("https://ctl1/", ServiceEndpoint("https://ctl1")),
        ("http://[::1]:8080", ServiceEndpoint("http://[::1]:8080")),
        ("unix:/run/a.sock", ServiceEndpoint("http://localhost", "/run/a.sock")),
        ("unix:///run/a.sock", ServiceEndpoint("http://localhost", "/run/a.sock")),
        ("unix:a.sock", ServiceEndpoint("http://localhost", "a.sock")),
    ],
)
def test_urls(url: str, endpoint: ServiceEndpoint) -> None:
    assert parse_endpoint(url) == parse_endpoint(f" {url} ") == endpoint


@pytest.mark.parametrize(
    "url",
    ["", "ctl1:8080", "ftp://ctl1", "http://", "http://ctl1:x", "http://ctl1:99999", "http://ctl1/api", "http://ctl1?x=1",
     "unix:", "http://a:b@ctl1", "http://ctl1:0", "https://[::1"],
)  # fmt: skip
def test_what_is_no_url(url: str) -> None:
    forms = ("https://ctl1:8080", "unix:/path")
    error = error_of(lambda: parse_endpoint(url), *forms, status=None, code="failed")
    assert "a:b" not in error.reason


def test_several_urls_and_the_default() -> None:
    assert [str(one) for one in parse_endpoints("http://a:1, unix:/b,http://a:1")] == [
        "http://a:1",
        "unix:/b",
    ]
    with Client("http://127.0.0.1:1") as client:
        error_of(client.status, "http://127.0.0.1:1 ", status=None, code="no-answer")
    assert DEFAULT_URL == "http://127.0.0.1:8080"


def test_proxies_of_the_environment_are_not_used(
    running: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with Client(running.url) as client:
        assert client.is_alive()


def test_a_unix_socket_that_is_not_there(tmp_path: Path) -> None:
    url = f"unix:{tmp_path}/x.sock"
    with Client(url) as client:
        error_of(client.status, url, status=None, code="no-answer")


@pytest.mark.parametrize("argument", ["ca", "certificate"])
def test_faulty_tls_files(tmp_path: Path, argument: str) -> None:
    (tmp_path / "text").write_text("no PEM")
    for name in ("gone", "text"):
        file = tmp_path / name
        error_of(
            lambda file=file: Client("https://ctl1", **{argument: file}),  # type: ignore[misc]
            str(file),
            status=None,
            code="failed",
        )


# -- servers that fail -----------------------------------------------------------------------------


@contextmanager
def scripted(answers: Sequence[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Serve each connection one of the `answers` (empty: none) and close it.

    Yields the URL and the requests.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(TIMEOUT_S)
    heard: list[bytes] = []

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(TIMEOUT_S)
                request = b""
                while b"\r\n\r\n" not in request:
                    request += connection.recv(65536)
                heard.append(request)
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", heard
    finally:
        thread.join(TIMEOUT_S)
        listener.close()
        assert not thread.is_alive()


def http(status: int, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


NONE = b""
"""The connection just ends."""
EMPTY_LIST = http(200, b"[]", "Content-Type: application/json")
GONE = http(404, b'{"error": {"status": 404, "reason": "no such job", "path": ""}}')
LATER = http(503, b'{"error": {"status": 503, "reason": "no leader", "path": ""}}')


def test_without_retries_a_lost_answer_is_an_error() -> None:
    with scripted([NONE]) as (url, heard), Client(url) as client:
        error_of(client.jobs, f"{url} ", status=None, code="no-answer", may_have_arrived=True)
        assert len(heard) == 1


@pytest.mark.parametrize("before", [[NONE], [LATER], [http(429)], [NONE, LATER, NONE]])
def test_with_retries_the_call_is_made_again(before: list[bytes]) -> None:
    with scripted([*before, EMPTY_LIST]) as (url, heard), Client(url, retry_s=TIMEOUT_S) as client:
        assert client.jobs() == []
        assert len(heard) == len(before) + 1
        assert len({request.splitlines()[0] for request in heard}) == 1


def test_what_would_fail_again_is_not_tried_again() -> None:
    with scripted([GONE]) as (url, _), Client(url, retry_s=TIMEOUT_S) as client:
        assert error_of(lambda: client.job("x")).status == 404


def test_retries_end() -> None:
    with Client("http://127.0.0.1:1", retry_s=0.3) as client:
        assert error_of(client.jobs).status is None


def test_a_removal_whose_answer_was_lost_has_worked() -> None:
    with scripted([NONE, GONE]) as (url, heard), Client(url, retry_s=TIMEOUT_S) as client:
        client.remove_job("d")
        assert len(heard) == 2
    with scripted([LATER, GONE]) as (url, _), Client(url, retry_s=TIMEOUT_S) as client:
        assert error_of(lambda: client.remove_job("d")).status == 404  # it had not been done


def test_a_server_that_takes_its_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, timeout_s=0.05) as client:
            error_of(client.jobs, f"{url} ", "0.05 s", status=None, code="no-answer")


def test_what_one_controller_says_tells_more_than_the_silence_of_another(
    running: Serving, service: MemoryService
) -> None:
    service.fault = UnavailableError("no controller leads")
    for urls in (f"http://127.0.0.1:1,{running.url}", f"{running.url},http://127.0.0.1:1"):
        with Client(urls) as client:
            assert error_of(client.jobs).reason == "no controller leads"


def test_the_next_controller_is_asked_when_one_is_silent(running: Serving) -> None:
    with Client(f"http://127.0.0.1:1,{running.url}") as client:
        assert client.jobs() == []
        assert client.register_job(JOB).name == "d"


@pytest.mark.parametrize(
    ("answer", "status", "path", "name"),
    [
        (http(502, b"<html>\n<b>Bad gateway</b>"), 502, "", "502: <html> <b>Bad gateway</b>"),
        (http(200, b"<html>"), 200, "", "JSON"),
        (http(200, b'[{"name": 7}]'), 200, "", "0.name: "),
        (http(302, b"", "Location: http://elsewhere/"), 302, "", "302"),
        (http(418, b'{"error": "teapot"}'), 418, "", "418"),
        (
            http(400, b'{"error": {"reason": "a\\n\\u001b[31mb", "path": "p"}}'),
            400,
            "p",
            "p: a \\x1b[31mb",
        ),
    ],
)
def test_what_is_no_controller(answer: bytes, status: int, path: str, name: str) -> None:
    with scripted([answer]) as (url, _), Client(url) as client:
        error_of(client.jobs, name, status=status, code="failed", path=path)


def test_what_does_not_speak_http() -> None:
    with scripted([b"SSH-2.0-OpenSSH_9.2\r\n"]) as (url, _), Client(url) as client:
        error_of(client.jobs, f"{url} ", status=None, code="no-answer")


# -- standbys --------------------------------------------------------------------------------------


def test_the_leader_is_followed_and_remembered(running: Serving, service: MemoryService) -> None:
    with serving(create_app(standby(running.url))) as other, Client(other.url) as client:
        assert client.register_job(JOB).name == "d"
        assert list(service.machine.jobs.jobs) == ["d"]
        other.stop()
        assert client.job("d").name == "d", "the standby is not asked again"


def test_a_standby_that_knows_no_leader() -> None:
    with serving(create_app(standby())) as running, Client(running.url) as client:
        error_of(client.jobs, status=503, code="unavailable", path="")


def test_standbys_that_name_each_other_are_not_followed_for_ever() -> None:
    first, second = standby(), standby()
    with serving(create_app(first)) as one, serving(create_app(second)) as other:
        first.leader_url, second.leader_url = other.url, one.url
        with Client(one.url) as client:
            assert error_of(client.jobs).status == 503


def test_a_leader_that_is_gone_is_left_for_the_standby_that_takes_over() -> None:
    other = MemoryService()
    other.fault = UnavailableError("a standby", leader="http://127.0.0.1:1")
    with serving(create_app(other)) as running, Client(running.url, retry_s=TIMEOUT_S) as client:
        asked = threading.Event()

        def take_over() -> None:
            asked.wait(TIMEOUT_S)
            other.fault = None

        thread = threading.Thread(target=take_over)
        thread.start()
        with Client(running.url) as hasty:
            error_of(hasty.jobs, "http://127.0.0.1:1 ", status=None, code="no-answer")
        asked.set()
        assert client.jobs() == []
        thread.join()


def test_a_token_does_not_leave_the_encrypted_way(tmp_path: Path, running: Serving) -> None:
    """A leader that is reached by plain HTTP over a network is not followed from where nobody could
    listen.
    """
    made = new_token("ci", "operator")
    (tmp_path / "tokens.yaml").write_text(f"tokens:\n{made.entry}")
    other_service = standby("http://192.0.2.1:8080")
    app = create_app(other_service, ApiSettings(tokens=TokensFile(tmp_path / "tokens.yaml")))
    with (
        serving(app, ServerSettings(ListenAddress(None, 0, tmp_path / "a.sock"))) as other,
        Client(other.url, token=made.token, timeout_s=5) as client,
    ):
        assert error_of(client.jobs).status == 503
        other_service.leader_url = running.url
        assert client.jobs() == []


@pytest.mark.parametrize(
    ("url", "private"),
    [
        ("https://ctl1", True),
        ("http://ctl1", False),
        ("http://127.0.0.1:8080", True),
        ("http://[::1]:8080", True),
        ("http://10.0.0.1", False),
        ("http://127.0.0.1.example", False),
        ("unix:/x", True),
    ],
)
def test_where_nobody_can_listen(url: str, private: bool) -> None:
    assert parse_endpoint(url).is_private is private


def test_a_closed_client_may_be_used_again(running: Serving) -> None:
    client = Client(running.url)
    for _ in range(2):
        assert client.is_alive()
        client.close()
        client.close()
