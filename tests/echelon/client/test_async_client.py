"""The client that is awaited, against the API on real sockets and in the same process, and what
both clients have in common.
"""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from echelon.controller.client import AsyncClient, Client, ClientError
from echelon.controller.client.calls import Call, Calls
from echelon.controller.resources.jobs import JobResource
from echelon.controller.service.api.app import create_app
from echelon.controller.service.api.server import ServerSettings
from echelon.controller.service.api.settings import ApiSettings
from echelon.controller.service.api.tokens import TokensFile, new_token
from echelon.controller.service.config_file import ListenAddress
from tests.echelon.service.api.memory import JOB, MemoryService, standby
from tests.echelon.service.api.serving import serving
from tests.faults import coded

T = TypeVar("T")


@asynccontextmanager
async def in_process() -> AsyncIterator[tuple[AsyncClient, MemoryService]]:
    """Yield a client of an application in this event loop, and its service."""
    service = MemoryService()
    await service.open()
    try:
        transport = httpx.ASGITransport(
            create_app(service, metrics=lambda: (b"x 1\n", "text/plain"))
        )
        async with AsyncClient(transport=transport) as client:
            yield client, service
    finally:
        await service.close()


async def error_of(call: Awaitable[object]) -> ClientError:
    with pytest.raises(ClientError) as caught:
        await call
    assert "\n" not in str(caught.value)
    return caught.value


# -- calls -----------------------------------------------------------------------------------------


async def test_calls_in_process() -> None:
    async with in_process() as (client, service):
        job: JobResource = await client.register_job(JOB)
        assert job.spec == JOB
        assert (await client.register_job({**JOB, "weight": 2}, replace=True)).spec["weight"] == 2
        assert (await client.job("d", wait_s=0.01)).state != "installed"
        await service.planned()
        assert {flow.job for flow in (await client.plan(job="d")).flows} == {"d"}
        assert (await client.set_policy("varys")).name == (await client.policy()).name == "varys"
        assert [switch.name for switch in await client.switches()] == ["s1", "s2"]
        assert not (await client.difference("s1")).reachable
        assert (await client.set_link("s1", "s2", "drained", force=True)).state == "drained"
        assert (await client.rehearse_removal("d")).unpredicted is None
        assert (await client.status()).jobs == 1
        assert await client.metrics() == "x 1\n"
        assert "choose policy" in [event.action for event in await client.events(subject="varys")]
        await client.remove_job("d")
        assert await client.jobs() == []
        assert await client.is_alive()
        assert await client.not_ready() is None
        service.store.problem = "no store"
        assert await client.not_ready() == "no store"


async def test_refusals_keep_status_reason_and_path() -> None:
    async with in_process() as (client, _):
        await client.register_job(JOB)
        conflict = await error_of(client.register_job({**JOB, "weight": 2}))
        assert (conflict.status, conflict.path) == (409, "job")
        assert (await error_of(client.job("x"))).status == 404
        assert (await error_of(client.set_link("s1", "s2", "down"))).path == "state"


async def test_a_call_that_waits_does_not_hold_up_others() -> None:
    async with in_process() as (client, service):
        await client.register_job(JOB)
        waiting = asyncio.ensure_future(client.job("d", wait_s=30))
        while not service.waiting:
            await asyncio.sleep(0.001)
        assert (await client.status()).jobs == 1
        assert not waiting.done()
        await service.installed()
        assert (await waiting).state == "installed"


# -- sockets ---------------------------------------------------------------------------------------


async def test_calls_over_tcp_and_a_unix_socket(tmp_path: Path) -> None:
    made = new_token("ci", "operator")
    (tmp_path / "tokens.yaml").write_text(f"tokens:\n{made.entry}")
    settings = ApiSettings(tokens=TokensFile(tmp_path / "tokens.yaml"))
    unix = ServerSettings(ListenAddress(None, 0, tmp_path / "a.sock"))
    for server in (None, unix):
        with serving(create_app(MemoryService(), settings), server) as running:
            async with AsyncClient(running.url, token=made.token) as client:
                assert (await client.register_job(JOB)).name == "d"
                jobs = await asyncio.gather(*(client.job("d") for _ in range(20)))
                assert {job.name for job in jobs} == {"d"}
            async with AsyncClient(running.url, token="echelon_x") as client:
                assert (await error_of(client.jobs())).status == 401


async def test_the_leader_is_followed_over_sockets() -> None:
    with (
        serving(create_app(MemoryService())) as leading,
        serving(create_app(standby(leading.url))) as other,
    ):
        async with AsyncClient(other.url) as client:
            await client.register_job(JOB)
            assert [job.name for job in await client.jobs()] == ["d"]


async def test_a_call_that_is_cancelled() -> None:
    service = MemoryService()
    with serving(create_app(service)) as running:
        async with AsyncClient(running.url) as client:
            await client.register_job(JOB)
            waiting = asyncio.ensure_future(client.job("d", wait_s=30))
            while not service.waiting:
                await asyncio.sleep(0.001)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert [job.name for job in await client.jobs()] == ["d"]


async def test_a_closed_client_may_be_used_again() -> None:
    with serving(create_app(MemoryService())) as running:
        client = AsyncClient(running.url)
        for _ in range(2):
            assert await client.is_alive()
            await client.close()
            await client.close()


async def test_a_service_that_is_not_there(tmp_path: Path) -> None:
    async with AsyncClient(f"unix:{tmp_path}/x.sock", retry_s=0.2) as client:
        error = await error_of(client.status())
        assert (error.status, error.code) == (None, "no-answer")
        assert not await client.is_alive()


# -- both clients by the same script ---------------------------------------------------------------


class Script:
    """Answers by the host that is asked; each host gives its answers one after the other, and the
    last again and again.
    """

    def __init__(self, **answers: Sequence[httpx.Response | Exception]) -> None:
        self._answers = {host: list(sequence) for host, sequence in answers.items()}
        self.hosts: list[str] = []
        """The hosts that were asked."""

    def answer(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        self.hosts.append(host)
        answers = self._answers[host]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def both(script: Callable[[], Script], call: Callable[[Client], T], retry_s: float = 0.0) -> T:
    """Return what both clients of http://a,http://b return or raise by the script.

    Assert that it is the same, and that they ask the same hosts.
    """
    results: list[tuple[object, list[str]]] = []
    url = "http://a,http://b"
    first = script()
    with Client(url, retry_s=retry_s, transport=httpx.MockTransport(first.answer)) as client:
        try:
            results.append((call(client), first.hosts))
        except ClientError as error:
            results.append((error, first.hosts))

    async def awaited() -> object:
        transport = httpx.MockTransport(second.answer)
        async with AsyncClient(url, retry_s=retry_s, transport=transport) as client:
            coroutine: Awaitable[object] = call(client)  # type: ignore[arg-type, assignment]
            return await coroutine

    second = script()
    try:
        results.append((asyncio.run(awaited()), second.hosts))
    except ClientError as error:
        results.append((error, second.hosts))
    (blocking, asked), (later, also_asked) = results
    assert asked == also_asked
    if isinstance(blocking, ClientError):
        assert isinstance(later, ClientError)
        assert (str(blocking), blocking.status) == (str(later), later.status)
        raise blocking
    assert blocking == later
    return blocking  # type: ignore[return-value]


EMPTY = httpx.Response(200, json=[])
LATER = httpx.Response(503, json={"error": {"reason": "not now", "path": ""}})
LOST = httpx.ReadError("connection lost")
REFUSED = httpx.ConnectError("refused")
NOT_HERE = httpx.Response(404, json={"error": {"reason": "no such job", "path": ""}})


def leader_at(url: str) -> httpx.Response:
    return httpx.Response(503, headers={"Location": f"{url}/jobs"}, json=LATER.json())


def test_the_next_controller_is_asked_when_one_is_silent() -> None:
    assert both(lambda: Script(a=[REFUSED], b=[EMPTY]), lambda client: client.jobs()) == []


def test_an_answer_tells_more_than_silence() -> None:
    with pytest.raises(ClientError, check=coded("failed", "not now", status=503)):
        both(lambda: Script(a=[REFUSED], b=[LATER]), lambda client: client.jobs())
    with pytest.raises(ClientError, check=coded("no-answer", "http://a ", "refused", status=None)):
        both(lambda: Script(a=[REFUSED], b=[LOST]), lambda client: client.jobs())


def test_a_call_is_repeated_until_it_succeeds() -> None:
    def script() -> Script:
        return Script(a=[REFUSED, LATER, EMPTY], b=[LOST, LATER])

    assert both(script, lambda client: client.jobs(), retry_s=60) == []


def test_a_removal_whose_answer_was_lost_has_worked() -> None:
    assert (
        both(
            lambda: Script(a=[LOST, NOT_HERE], b=[LATER]),
            lambda client: client.remove_job("d"),  # type: ignore[func-returns-value]
            retry_s=60,
        )
        is None
    )
    with pytest.raises(ClientError, check=coded("failed", "no such job", status=404)):
        both(
            lambda: Script(a=[REFUSED, NOT_HERE], b=[LATER]),
            lambda client: client.remove_job("d"),  # type: ignore[func-returns-value]
            retry_s=60,
        )


def test_standbys_that_name_each_other_are_not_followed_for_ever() -> None:
    with pytest.raises(ClientError, check=coded("failed", "not now", status=503)):
        both(
            lambda: Script(a=[leader_at("http://b")], b=[leader_at("http://a")]),
            lambda client: client.jobs(),
        )


def test_answers_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echelon.controller.client.answers.MAX_ANSWER_BYTES", 1 << 10)
    large = httpx.Response(200, content=b" " * 2000)
    with pytest.raises(ClientError, check=coded("no-answer", "http://a ", "0 MiB", status=None)):
        both(lambda: Script(a=[large], b=[large]), lambda client: client.jobs())


def test_pages_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echelon.controller.client.calls.PAGE", 2)
    job = {"state": "accepted", "parallelism": "data", "workers": [], "flow_count": 0}
    names = "abcde"

    def page(request: httpx.Request) -> httpx.Response:
        after, limit = request.url.params.get("after", ""), int(request.url.params["limit"])
        later = [{"name": name, **job} for name in names if name > after]
        return httpx.Response(200, json=later[:limit])

    with Client(transport=httpx.MockTransport(page)) as client:
        assert [one.name for one in client.jobs()] == [*names]
        assert [one.name for one in client.jobs(limit=3)] == [*"abc"]
        assert [one.name for one in client.jobs(limit=3, after="c")] == [*"de"]


# -- what both are ---------------------------------------------------------------------------------


def test_both_clients_have_every_call_with_its_signature_and_text() -> None:
    calls = {name: call for name, call in vars(Calls).items() if isinstance(call, Call)}
    assert len(calls) > 30
    blocking, awaited = Client("http://a"), AsyncClient("http://a")
    for name, call in calls.items():
        method = getattr(blocking, name)
        assert inspect.signature(method) == inspect.signature(getattr(awaited, name))
        assert method.__name__ == name
        assert method.__doc__ == call.__doc__
        assert call.__doc__


def test_clients_import_nothing_of_the_controller() -> None:
    program = (
        "import sys, echelon.controller.client;"
        "print([name for name in sys.modules if name.startswith(('fastapi', 'uvicorn',"
        " 'echelon.controller.service', 'echelon.controller.machine'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
