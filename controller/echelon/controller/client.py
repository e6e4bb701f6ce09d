"""The Python client of the service.

```python
with Client("https://ctl1:8080", ca="ca.pem") as client:   # token: the file that ECHELON_TOKEN_FILE names
    job = client.register_job("bert.yaml")
    client.job(job.name, wait_s=10)
```
"""

from __future__ import annotations

import os
import random
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar, cast
from urllib.parse import quote, urlsplit

import httpx
from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError

from echelon.controller.machine.errors import one_line
from echelon.controller.service.api.dryruns import DryRunResource
from echelon.controller.service.api.jobs import (
    ConnectionsResource,
    HostMeasurement,
    JobResource,
    JobSummary,
    ReportedIteration,
)
from echelon.controller.service.api.links import LinkResource, MoveResource
from echelon.controller.service.api.plan import ClassesResource, PlanResource
from echelon.controller.service.api.policy import PolicyResource
from echelon.controller.service.api.status import EventResource, StatusResource
from echelon.controller.service.api.story import StoryResource
from echelon.controller.service.api.switches import (
    IntentResource,
    SwitchDifference,
    SwitchQueues,
    SwitchResource,
)
from echelon.controller.service.hazards import is_loopback
from echelon.model.documents import parse_document, read_document
from echelon.model.errors import Code, CodedError
from echelon.model.fabric.load import FabricSpec
from echelon.model.jobs.spec import JobSpec
from echelon.model.quantities import shown
from echelon.switches.telemetry.sizes import HostIteration

UNIX = "unix:"


@dataclass(frozen=True, slots=True)
class ServiceEndpoint:
    base: str
    """``http://host:port``, without a path."""
    socket: str | None = None
    """Path of a Unix socket; `base` is then only a name."""

    @property
    def is_private(self) -> bool:
        """Whether no third party can listen on the connection."""
        return (
            self.socket is not None
            or self.base.startswith("https:")
            or is_loopback(urlsplit(self.base).hostname or "")
        )

    def __str__(self) -> str:
        if self.socket is not None:
            return f"{UNIX}{self.socket}"
        return self.base


def parse_endpoint(url: str) -> ServiceEndpoint:
    """Parse a controller's URL. Raise `ClientError`."""
    text = url.strip()
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX).removeprefix("//")
        if path:
            return ServiceEndpoint("http://localhost", path)
    try:
        parts = urlsplit(text)
        valid = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        valid = False
    if (
        not valid
        or parts.username is not None
        or parts.path.strip("/")
        or parts.query
        or parts.fragment
    ):
        # The part before an @, or after it, may be a password.
        text = "the URL" if "@" in text else shown(text)
        raise ClientError(
            None,
            f"{text} is not the URL of a controller (write it as https://ctl1:8080 or unix:/path)",
        )
    return ServiceEndpoint(f"{parts.scheme}://{parts.netloc}")


def parse_endpoints(urls: str) -> Sequence[ServiceEndpoint]:
    """Parse one URL, or several controllers' URLs separated by commas."""
    return tuple(dict.fromkeys(parse_endpoint(url) for url in urls.split(",")))


def client_context(
    ca: str | Path | None, certificate: str | Path | tuple[str | Path, str | Path] | None
) -> ssl.SSLContext:
    """Return a context for TLS 1.2 or later. Raise `ClientError`.

    `ca` must have signed the server's certificate (None: the system's authorities); `certificate`
    is the client's own, with its key, in one file or as a pair of files.
    """
    pair = (certificate, None) if isinstance(certificate, str | Path) else certificate
    for path in (ca, *(pair or ())):
        if path is not None:
            _check_readable(path)
    try:
        context = ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        raise ClientError(
            None, f"{ca} does not hold certificates in PEM form (correct the file)"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if pair is not None:
        try:
            context.load_cert_chain(pair[0], pair[1], password=_no_password)
        except (ssl.SSLError, PermissionError):
            names = " and ".join(str(path) for path in pair if path is not None)
            reason = (
                f"{names} do not hold a certificate and its unencrypted key in PEM form (correct"
                " the files)"
            )
            raise ClientError(None, reason) from None
    return context


def _no_password() -> str:
    raise PermissionError


def _check_readable(path: str | Path) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise ClientError(None, f"{path}: {error.strerror or error} (check the path)") from None


class ClientError(CodedError):
    """The service refused, or did not answer. One line, without any token."""

    def __init__(
        self, status: int | None, reason: str, path: str = "", *, code: Code | None = None
    ) -> None:
        super().__init__(status, reason, path, code=code)
        self.status = status
        """The HTTP status; None: there was no answer."""
        self.reason = reason
        self.path = path
        """The key of the request that is at fault; empty: none."""

    def __str__(self) -> str:
        return " ".join(": ".join(part for part in (self.path, self.reason) if part).split())


DEFAULT_URL = "http://127.0.0.1:8080"
URL_VARIABLE = "ECHELON_URL"
TOKEN_FILE_VARIABLE = "ECHELON_TOKEN_FILE"

CONNECT_S = 5.0
"""Timeout for connecting.

A machine that is gone never answers, and there may be other controllers to ask.
"""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
MAX_HOPS = 4
"""Maximum number of redirections from controller to controller in search of the leader."""
LONGEST_ANSWERS = 4
"""The longest time for a whole answer, as a multiple of the timeout for its beginning."""
MAX_ANSWER_BYTES = 1 << 28
_MAX_REASON = 1000
"""The most characters of an error that are passed on. The service's own are shorter."""
TRY_LATER = frozenset({429, 503})

_PAGE = 1000
"""Jobs that are asked for at a time."""

R = TypeVar("R", bound=BaseModel)


class Client:
    """A client of one service; use it as a context manager. Not safe for use by several threads at
    a time.

    Every call raises `ClientError`. A call that fails is repeated for up to `retry_s` seconds where
    that can help: when no answer comes, and when the service answers that it is not ready. Every
    call may be repeated: registering the same job or distances again changes nothing, and removing
    a job twice is the same as once.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | SecretStr | None = None,
        ca: str | Path | None = None,
        certificate: str | Path | tuple[str | Path, str | Path] | None = None,
        timeout_s: float = 30.0,
        retry_s: float = 0.0,
    ) -> None:
        """Args:
            url: ``https://host:port``, ``http://host:port`` or ``unix:/path``; several controllers
            of one service are
                separated by commas. Default: the variable ECHELON_URL, else http://127.0.0.1:8080.
            token: default: the first line of the file that the variable ECHELON_TOKEN_FILE names;
            else none is sent. ca: file of the authorities that may have signed the server's
            certificate; default: those of the system. certificate: the client's certificate, if the
            server asks for one: a file with its key, or a pair of files. timeout_s: timeout of one
            answer. retry_s: how long to repeat a failed call; 0: not at all.

        Proxies that the environment names are not used: a controller is near.
        """
        self._endpoints = parse_endpoints(url or os.environ.get(URL_VARIABLE) or DEFAULT_URL)
        self._current = self._endpoints[0]
        self._token = _token_from_environment() if token is None else _checked_token(token)
        self._timeout_s = timeout_s
        self._retry_s = retry_s
        # Files may be faulty, so they are read now; the system's authorities take a while and are
        # read when needed.
        self._tls = (
            client_context(ca, certificate) if ca is not None or certificate is not None else None
        )
        self._clients: dict[ServiceEndpoint, httpx.Client] = {}
        # Pauses differ between clients, so that they do not all come back at once; nothing else
        # depends on it.
        self._random = random.Random()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    # -- jobs --------------------------------------------------------------------------------------

    def jobs(
        self,
        state: str | None = None,
        worker: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Sequence[JobSummary]:
        """Return jobs in the order of their names, page after page, and at most `limit` of them.
        `state`, `worker` and `after` leave only jobs in that state, with that host, and with later
        names."""
        found: list[JobSummary] = []
        while limit is None or len(found) < limit:
            if limit is None:
                size = _PAGE
            else:
                size = min(_PAGE, limit - len(found))
            page = self._list(
                JobSummary,
                "/jobs",
                {
                    "state": state,
                    "worker": worker,
                    "limit": str(size),
                    "after": found[-1].name if found else after,
                },
            )
            found += page
            if len(page) < size:
                break
        return found

    def job(self, name: str, wait_s: float | None = None) -> JobResource:
        """Return a job. With `wait_s` (up to 60) the answer comes when the job is installed or
        refused, at the latest after that time."""
        if wait_s is None:
            parameters = {}
        else:
            parameters = {"wait_s": f"{wait_s:g}"}
        return self._get(JobResource, _path("jobs", name), parameters, more_s=wait_s or 0.0)

    def story(self, job: str) -> StoryResource:
        """Return the last events and effects that concern a job, oldest first.

        A job that was removed is remembered for a while.
        """
        return self._get(StoryResource, _path("jobs", job, "story"))

    def register_job(
        self, job: str | Path | Mapping[str, Any], *, replace: bool = False
    ) -> JobResource:
        """Register a job, given as the path of a job file or as its mapping.

        Registering the same job again changes nothing; another job of that name is refused, or
        replaced with `replace`. Raise `DocumentError` for a file or mapping that is not a job;
        nothing was sent then.
        """
        return self._send(JobResource, *_registration(job, replace))

    def remove_job(self, name: str) -> None:
        self._call("DELETE", _path("jobs", name), gone_is_done=True)

    def rehearse_job(
        self, job: str | Path | Mapping[str, Any], *, replace: bool = False
    ) -> DryRunResource:
        """Return what `register_job` would change, and change nothing. Raise as it does."""
        return self._rehearse(*_registration(job, replace))

    def rehearse_removal(self, name: str) -> DryRunResource:
        """Return what `remove_job` would change."""
        return self._rehearse("DELETE", _path("jobs", name))

    def report_distances(
        self, job: str, echelonflow: str, offsets: Sequence[str | float]
    ) -> JobResource:
        """Replace the arrangement function of an EchelonFlow by a measured one.

        `offsets` are the ideal finish times of the flows after that of the first, ascending, in
        seconds or as text with a unit (``"12 ms"``).
        """
        report = {"echelonflow": echelonflow, "offsets": [_duration(offset) for offset in offsets]}
        return self._send(JobResource, "POST", _path("jobs", job, "distances"), report)

    def connections(self, job: str) -> ConnectionsResource:
        """Return the connections of a job that agents reported, and the addresses of its hosts."""
        return self._get(ConnectionsResource, _path("jobs", job, "connections"))

    def report_connections(
        self, job: str, host: str, connections: Iterable[tuple[str, int, str, int]]
    ) -> ConnectionsResource:
        """Replace the connections of a job that a host sees: own address and port, the other host's
        address and port.

        Reporting the same connections again changes nothing.
        """
        seen = [
            {"local": f"{own}:{port}", "remote": f"{other}:{its}"}
            for own, port, other, its in connections
        ]
        return self._send(
            ConnectionsResource,
            "PUT",
            _path("jobs", job, "connections", host),
            {"connections": seen},
        )

    def report_iterations(
        self, job: str, host: str, iterations: Iterable[HostIteration]
    ) -> HostMeasurement:
        """Replace what a host measured of a job's latest iterations, oldest first."""
        measured = [ReportedIteration.written(one) for one in iterations]
        return self._send(
            HostMeasurement, "PUT", _path("jobs", job, "iterations", host), {"iterations": measured}
        )

    # -- plan, policy ------------------------------------------------------------------------------

    def plan(
        self,
        job: str | None = None,
        switch: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        *,
        why: bool = False,
    ) -> PlanResource:
        """Return the plan in force. `job`, `switch` and `after` (as ``job/flow``) select its flows,
        and `limit` is the most of them. With `why`, the plan has its reasons instead of its flows.
        """
        most = None if limit is None else str(limit)
        asked = "true" if why else None
        wanted = {"job": job, "switch": switch, "limit": most, "after": after, "why": asked}
        return self._get(PlanResource, "/plan", wanted)

    def classes(self, job: str) -> ClassesResource:
        """Return the traffic classes that a job's program has to ask for."""
        return self._get(ClassesResource, _path("jobs", job, "classes"))

    def policy(self) -> PolicyResource:
        return self._get(PolicyResource, "/policy")

    def set_policy(self, name: str, parameters: Mapping[str, str] | None = None) -> PolicyResource:
        return self._send(
            PolicyResource, "PUT", "/policy", {"name": name, "parameters": dict(parameters or {})}
        )

    def rehearse_policy(
        self, name: str, parameters: Mapping[str, str] | None = None
    ) -> DryRunResource:
        """Return what `set_policy` would change."""
        return self._rehearse(
            "PUT", "/policy", {"name": name, "parameters": dict(parameters or {})}
        )

    # -- switches, links ---------------------------------------------------------------------------

    def switches(self) -> Sequence[SwitchResource]:
        return self._list(SwitchResource, "/switches")

    def switch(self, name: str) -> SwitchResource:
        return self._get(SwitchResource, _path("switches", name))

    def take_switch(self, name: str) -> SwitchResource:
        """Let the controller take a switch back from another one, to which it has left it."""
        return self._send(SwitchResource, "POST", _path("switches", name, "take"), {})

    def intent(self, switch: str) -> IntentResource:
        """Return what the switch should hold."""
        return self._get(IntentResource, _path("switches", switch, "intent"))

    def difference(self, switch: str) -> SwitchDifference:
        """Return what would be written to the switch now.

        This reads the switch and writes nothing.
        """
        return self._get(SwitchDifference, _path("switches", switch, "difference"))

    def queues(self, switch: str) -> SwitchQueues:
        """Return what has passed each queue of a switch's ports, read at this moment."""
        return self._get(SwitchQueues, _path("switches", switch, "queues"))

    def links(self) -> Sequence[LinkResource]:
        return self._list(LinkResource, "/links")

    def set_link(self, a: str, b: str, state: str, *, force: bool = False) -> LinkResource:
        """Set the state of a link: 'up', or 'drained', which is refused if jobs need it unless
        `force`.
        """
        return self._send(
            LinkResource, "PUT", _path("links", a, b), {"state": state, "force": force}
        )

    def rehearse_link(self, a: str, b: str, state: str, *, force: bool = False) -> DryRunResource:
        """Return what `set_link` would change."""
        return self._rehearse("PUT", _path("links", a, b), {"state": state, "force": force})

    def move(self) -> MoveResource:
        """Return the move of links that is under way."""
        return self._get(MoveResource, "/links/move")

    def move_links(self, fabric: str | Path | Mapping[str, Any]) -> MoveResource:
        """Let the fabric have other links, those of the path of a fabric file or of its mapping.
        The links that there are end a move under way. Raise `DocumentError` for what is no fabric;
        nothing was sent then."""
        return self._send(MoveResource, "PUT", "/links", _fabric(fabric))

    def rehearse_move(self, fabric: str | Path | Mapping[str, Any]) -> DryRunResource:
        """Return what `move_links` would change."""
        return self._rehearse("PUT", "/links", _fabric(fabric))

    def confirm_move(self) -> MoveResource:
        """Say that the links of the move under way stand."""
        return self._send(MoveResource, "POST", "/links/move", {})

    # -- the service -------------------------------------------------------------------------------

    def status(self) -> StatusResource:
        return self._get(StatusResource, "/status")

    def events(
        self,
        limit: int = 100,
        client: str | None = None,
        of: str | None = None,
        before: str | None = None,
    ) -> Sequence[EventResource]:
        """Return the latest changes that clients asked for, oldest first.

        Only those by the token `client`, only those of the job, link, policy or switch `of`, and
        only those before the request `before`, if given.
        """
        return self._list(
            EventResource,
            "/events",
            {"limit": str(limit), "client": client, "object": of, "before": before},
        )

    def is_alive(self) -> bool:
        """Return whether the controller answers at all. Raises nothing."""
        return self._probe("/healthz") is None

    def not_ready(self) -> str | None:
        """Return why the controller is not ready, in one line; None: it is ready.

        Raises nothing.
        """
        return self._probe("/readyz")

    def metrics(self) -> str:
        """Return the metrics in Prometheus' text format."""
        return self._call("GET", "/metrics").text

    # -- how ---------------------------------------------------------------------------------------

    def _get(
        self,
        resource: type[R],
        path: str,
        parameters: Mapping[str, str | None] | None = None,
        more_s: float = 0.0,
    ) -> R:
        return _as(resource, self._call("GET", path, parameters=parameters, more_s=more_s))

    def _list(
        self, resource: type[R], path: str, parameters: Mapping[str, str | None] | None = None
    ) -> Sequence[R]:
        response = self._call("GET", path, parameters=parameters)
        try:
            return TypeAdapter(list[resource]).validate_json(response.content)  # type: ignore[valid-type]
        except ValidationError as error:
            raise _not_understood(response, error) from None

    def _send(self, resource: type[R], method: str, path: str, body: Mapping[str, Any]) -> R:
        return _as(resource, self._call(method, path, body=body))

    def _rehearse(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> DryRunResource:
        return _as(
            DryRunResource, self._call(method, path, parameters={"dry_run": "true"}, body=body)
        )

    def _probe(self, path: str) -> str | None:
        try:
            response = self._client(self._current).get(path)
        except (httpx.HTTPError, ClientError) as error:
            if isinstance(error, httpx.HTTPError):
                return self._no_answer(self._current, error).reason
            return error.reason
        if response.is_success:
            return None
        return _refusal(response).reason

    def _call(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str | None] | None = None,
        body: Mapping[str, Any] | None = None,
        more_s: float = 0.0,
        gone_is_done: bool = False,
    ) -> httpx.Response:
        """Make a call. `parameters`: of the query, but for those that are None. `more_s`: extra
        time for the answer. `gone_is_done`: after a call whose answer was lost, 404 means that it
        had worked."""
        query = {name: value for name, value in (parameters or {}).items() if value is not None}
        give_up_at = time.monotonic() + self._retry_s
        pause_s = FIRST_PAUSE_S
        unanswered = False
        while True:
            fault: ClientError | None = None
            for endpoint in self._round():
                try:
                    response = self._follow(endpoint, method, path, query, body, more_s)
                except httpx.HTTPError as error:
                    # An answer of one controller tells more than the silence of another.
                    fault = fault or self._no_answer(self._current, error)
                    # A leader that is gone is not asked first again.
                    if endpoint in self._endpoints:
                        self._current = endpoint
                    else:
                        self._current = self._endpoints[0]
                    unanswered = unanswered or not isinstance(
                        error, httpx.ConnectError | httpx.ConnectTimeout
                    )
                    continue
                if response.is_success or (
                    response.status_code == 404 and gone_is_done and unanswered
                ):
                    return response
                fault = _refusal(response)
                if response.status_code not in TRY_LATER:
                    raise fault
            assert fault is not None
            left_s = give_up_at - time.monotonic()
            if left_s <= 0:
                raise fault
            time.sleep(min(left_s, pause_s * self._random.uniform(0.5, 1.0)))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _round(self) -> Sequence[ServiceEndpoint]:
        """Return the controllers to try, the one that answered last first."""
        return tuple(dict.fromkeys((self._current, *self._endpoints)))

    def _follow(
        self,
        endpoint: ServiceEndpoint,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
        more_s: float,
    ) -> httpx.Response:
        """Return the answer of the leader, if `endpoint` knows of it; else its own."""
        for _ in range(MAX_HOPS):
            self._current = endpoint
            if endpoint.socket is not None and not Path(endpoint.socket).is_socket():
                raise httpx.ConnectError("there is no such socket")
            with self._client(endpoint).stream(
                method, path, params=query, json=body, timeout=self._timeout(more_s)
            ) as answer:
                response = self._read(
                    answer, time.monotonic() + more_s + LONGEST_ANSWERS * self._timeout_s
                )
            leader = _leader(response)
            if leader is None or leader == endpoint:
                break
            if self._token is not None and endpoint.is_private and not leader.is_private:
                break  # others could read the token on the way
            endpoint = leader
        return response

    def _read(self, answer: httpx.Response, give_up_at: float) -> httpx.Response:
        """Return the answer with its content.

        Whoever answers may not be a controller, and may never stop sending.
        """
        content = bytearray()
        for chunk in answer.iter_bytes():
            content += chunk
            if len(content) > MAX_ANSWER_BYTES:
                raise httpx.RemoteProtocolError(
                    f"the answer is larger than {MAX_ANSWER_BYTES >> 20} MiB"
                )
            if time.monotonic() > give_up_at:
                raise httpx.ReadTimeout("the answer has no end")
        headers = {
            name: text
            for name, text in answer.headers.items()
            if name in ("location", "retry-after", "link")
        }
        return httpx.Response(
            answer.status_code, headers=headers, content=bytes(content), request=answer.request
        )

    def _client(self, endpoint: ServiceEndpoint) -> httpx.Client:
        if endpoint not in self._clients:
            headers = {"User-Agent": "echelon-client", "Accept": "application/json"}
            if self._token is not None:
                headers["Authorization"] = f"Bearer {self._token.get_secret_value()}"
            self._clients[endpoint] = httpx.Client(
                base_url=endpoint.base,
                headers=headers,
                timeout=self._timeout(),
                transport=self._transport(endpoint),
                trust_env=False,
                follow_redirects=False,
            )
        return self._clients[endpoint]

    def _transport(self, endpoint: ServiceEndpoint) -> httpx.HTTPTransport:
        if not endpoint.base.startswith("https:"):
            return httpx.HTTPTransport(uds=endpoint.socket, verify=False)
        if self._tls is None:
            self._tls = client_context(None, None)
        return httpx.HTTPTransport(verify=self._tls)

    def _timeout(self, more_s: float = 0.0) -> httpx.Timeout:
        return httpx.Timeout(self._timeout_s + more_s, connect=min(self._timeout_s, CONNECT_S))

    def _no_answer(self, endpoint: ServiceEndpoint, error: httpx.HTTPError) -> ClientError:
        if isinstance(error, httpx.ConnectTimeout):
            why = f"no connection in {min(self._timeout_s, CONNECT_S):g} s"
        elif isinstance(error, httpx.TimeoutException):
            why = f"no answer in {self._timeout_s:g} s"
        else:
            why = one_line(str(error)) or type(error).__name__
        if "SSL" in why:
            hint = "check ca, certificate and address"
        else:
            hint = "check that the service runs at that address"
        return ClientError(None, f"{endpoint} does not answer: {why} ({hint})", code="no-answer")


def _fabric(fabric: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping of a fabric, checked."""
    if isinstance(fabric, Mapping):
        data = dict(fabric)
        source = "fabric"
    else:
        data = read_document(fabric)
        source = str(fabric)
    parse_document(FabricSpec, data, source)
    return data


def _registration(
    job: str | Path | Mapping[str, Any], replace: bool
) -> tuple[str, str, Mapping[str, Any]]:
    """Return method, path and body that register a job, given as a file or as its mapping.

    Raise `DocumentError`.
    """
    if isinstance(job, Mapping):
        data = dict(job)
        source = "job"
    else:
        data = read_document(job)
        source = str(job)
    name = parse_document(JobSpec, data, source).job
    if replace:
        return ("PUT", _path("jobs", name), data)
    return ("POST", "/jobs", data)


def _path(*parts: str) -> str:
    return "".join(f"/{_quoted(part)}" for part in parts)


def _quoted(part: str) -> str:
    # A part that is "." or ".." would change the path before it.
    if part.strip("."):
        return quote(part, safe="")
    return part.replace(".", "%2E")


def _duration(value: str | float) -> str:
    """Return the duration as files write it.

    The shortest text of a float names exactly that float.
    """
    if isinstance(value, str):
        return value
    return f"{float(value)!r} s"


def _as(resource: type[R], response: httpx.Response) -> R:
    try:
        return resource.model_validate_json(response.content)
    except ValidationError as error:
        raise _not_understood(response, error) from None


def _not_understood(response: httpx.Response, error: ValidationError) -> ClientError:
    first = error.errors(include_url=False, include_input=False)[0]
    what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".strip(": ")
    reason = (
        f"the answer is not understood: {what} (check that a controller of this version runs there)"
    )
    return ClientError(response.status_code, reason)


def _refusal(response: httpx.Response) -> ClientError:
    """Return the error in the service's own form, or what a proxy in between said."""
    status = response.status_code
    try:
        error = response.json()["error"]
        found = (error["reason"], error["path"], error.get("code", "failed"))
        reason, path, code = (one_line(str(one)[:_MAX_REASON]) for one in found)
        return ClientError(status, reason, path, code=cast(Code, code))
    except (ValueError, KeyError, TypeError, RecursionError):
        said = one_line(response.text[:2000])[:200] or response.reason_phrase
        return ClientError(
            status,
            f"{response.url.scheme}://{response.url.netloc.decode()} answers {status}: {said}",
        )


def _leader(response: httpx.Response) -> ServiceEndpoint | None:
    """Return the leader that a standby names."""
    location = response.headers.get("location")
    if response.status_code != 503 or not location:
        return None
    try:
        parts = urlsplit(location)
        return parse_endpoint(f"{parts.scheme}://{parts.netloc}")
    except (ValueError, ClientError):
        return None


def _token_from_environment() -> SecretStr | None:
    file = os.environ.get(TOKEN_FILE_VARIABLE)
    return read_token(file) if file else None


def read_token(path: str | Path) -> SecretStr:
    """Return the token in the first line of the file at `path`.

    Raise `ClientError` if it has none.
    """
    try:
        with Path(path).open(encoding="ascii") as stream:
            line = stream.readline(4096).strip()
    except OSError as error:
        raise ClientError(
            None, f"{path}: {error.strerror or error} (check the path of the token's file)"
        ) from None
    except UnicodeDecodeError:
        raise ClientError(
            None, f"{path} does not hold a token in its first line (check the path)"
        ) from None
    if not line:
        raise ClientError(None, f"{path} is empty (write the token into its first line)")
    return _checked_token(line, str(path))


def _checked_token(token: str | SecretStr, source: str = "the token") -> SecretStr:
    if isinstance(token, SecretStr):
        secret = token
    else:
        secret = SecretStr(token)
    if not secret or not all("!" <= character <= "~" for character in secret.get_secret_value()):
        raise ClientError(
            None,
            f"{source} has characters that tokens never contain (copy the output of 'echelon"
            " token')",
        )
    return secret
