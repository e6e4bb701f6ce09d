"""The calls of the API, each once for both clients."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace as changed
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload
from urllib.parse import quote

from pydantic import BaseModel, SecretStr

from echelon.controller.client.answers import read_list, read_resource
from echelon.controller.client.conversation import Controllers, Conversation, Request
from echelon.controller.client.credentials import (
    Certificate,
    checked_token,
    client_context,
    token_from_environment,
)
from echelon.controller.client.endpoints import (
    DEFAULT_URL,
    URL_VARIABLE,
    ServiceEndpoint,
    parse_endpoints,
)
from echelon.controller.resources.dryruns import DryRunResource
from echelon.controller.resources.jobs import (
    ConnectionsResource,
    HostMeasurement,
    JobResource,
    JobSummary,
    ReportedIteration,
)
from echelon.controller.resources.links import LinkResource, MoveResource
from echelon.controller.resources.plan import ClassesResource, PlanResource
from echelon.controller.resources.policy import PolicyResource
from echelon.controller.resources.status import EventResource, StatusResource
from echelon.controller.resources.story import StoryResource
from echelon.controller.resources.switches import (
    IntentResource,
    SwitchDifference,
    SwitchQueues,
    SwitchResource,
)
from echelon.model.documents import parse_document, read_document
from echelon.model.fabric.load import FabricSpec
from echelon.model.foreign import foreign_files_named
from echelon.model.jobs.spec import JobSpec
from echelon.switches.telemetry.sizes import HostIteration

PAGE = 1000
"""Jobs that are asked for at a time."""

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=BaseModel)

JobDocument = str | Path | Mapping[str, Any]
"""A job: the path of its file, or its mapping."""
FabricDocument = str | Path | Mapping[str, Any]
"""A fabric: the path of its file, or its mapping."""


class Blocking(Protocol):
    """A client whose calls return their results."""

    def carry_out(self, conversation: Conversation[R]) -> R: ...


class Awaited(Protocol):
    """A client whose calls return coroutines."""

    def carry_out(self, conversation: Conversation[R]) -> Coroutine[Any, Any, R]: ...


class Call(Generic[P, R]):
    """A method of both clients.

    It decorates a function that returns the conversation of the call. `Client` carries the
    conversation out and returns its result; `AsyncClient` returns a coroutine of the same. So a
    call stands once, and type checkers see the right type in each client.
    """

    def __init__(self, converse: Callable[Concatenate[Any, P], Conversation[R]]) -> None:
        self._converse = converse
        self.__doc__ = converse.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, R]: ...
    @overload
    def __get__(self, client: Awaited, owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...

    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self

        @wraps(self._converse)
        def call(*arguments: P.args, **options: P.kwargs) -> Any:
            return client.carry_out(self._converse(client, *arguments, **options))

        return call


class Calls:
    """The calls of the API, and what both clients know of the service.

    Every call raises `ClientError`. A call that fails is repeated for up to `retry_s` seconds where
    that can help: when no answer comes, and when the service answers that it is not ready. Every
    call may be repeated: registering the same job or distances again changes nothing, and removing
    a job twice is the same as once.
    """

    def __init__(
        self,
        url: str | None,
        token: str | SecretStr | None,
        ca: str | Path | None,
        certificate: Certificate | None,
        timeout_s: float,
        retry_s: float,
    ) -> None:
        endpoints = parse_endpoints(url or os.environ.get(URL_VARIABLE) or DEFAULT_URL)
        self._token = token_from_environment() if token is None else checked_token(token)
        self._controllers = Controllers(
            endpoints, timeout_s, retry_s, has_token=self._token is not None
        )
        # Files may be faulty, so they are read now; the system's authorities take a while and are
        # read when needed.
        if ca is None and certificate is None:
            self._tls = None
        else:
            self._tls = client_context(ca, certificate)

    # -- jobs --------------------------------------------------------------------------------------

    @Call
    def jobs(
        self,
        state: str | None = None,
        worker: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Conversation[Sequence[JobSummary]]:
        """Return jobs in the order of their names, page after page, and at most `limit` of them.

        `state`, `worker` and `after` leave only jobs in that state, with that host, and with later
        names.
        """
        jobs: list[JobSummary] = []
        while limit is None or len(jobs) < limit:
            size = PAGE if limit is None else min(PAGE, limit - len(jobs))
            query = {
                "state": state,
                "worker": worker,
                "limit": str(size),
                "after": jobs[-1].name if jobs else after,
            }
            page = yield from self._list(JobSummary, "/jobs", query)
            jobs += page
            if len(page) < size:
                break
        return jobs

    @Call
    def job(self, name: str, wait_s: float | None = None) -> Conversation[JobResource]:
        """Return a job.

        With `wait_s` (up to 60) the answer comes when the job is installed or refused, at the
        latest after that time.
        """
        path = _path("jobs", name)
        if wait_s is None:
            return self._get(JobResource, path)
        return self._get(JobResource, path, {"wait_s": f"{wait_s:g}"}, more_s=wait_s)

    @Call
    def story(self, job: str) -> Conversation[StoryResource]:
        """Return the last events and effects that concern a job, oldest first.

        A job that was removed is remembered for a while.
        """
        return self._get(StoryResource, _path("jobs", job, "story"))

    @Call
    def register_job(self, job: JobDocument, *, replace: bool = False) -> Conversation[JobResource]:
        """Register a job, given as the path of a job file or as its mapping.

        Registering the same job again changes nothing; another job of that name is refused, or
        replaced with `replace`. Raise `DocumentError` for a file or mapping that is not a job;
        nothing was sent then.
        """
        return self._change(JobResource, _registration(job, replace))

    @Call
    def remove_job(self, name: str) -> Conversation[None]:
        """Remove a job."""
        yield from self._controllers.converse(Request("DELETE", _path("jobs", name), removes=True))

    @Call
    def rehearse_job(
        self, job: JobDocument, *, replace: bool = False
    ) -> Conversation[DryRunResource]:
        """Return what `register_job` would change, and change nothing. Raise as it does."""
        return self._rehearse(_registration(job, replace))

    @Call
    def rehearse_removal(self, name: str) -> Conversation[DryRunResource]:
        """Return what `remove_job` would change."""
        return self._rehearse(Request("DELETE", _path("jobs", name)))

    @Call
    def report_distances(
        self,
        job: str,
        echelonflow: str,
        offsets: Sequence[str | float],
    ) -> Conversation[JobResource]:
        """Replace the arrangement function of an EchelonFlow by a measured one.

        `offsets` are the ideal finish times of the flows after that of the first, ascending, in
        seconds or as text with a unit (``"12 ms"``).
        """
        report = {"echelonflow": echelonflow, "offsets": [_duration(offset) for offset in offsets]}
        return self._change(
            JobResource, Request("POST", _path("jobs", job, "distances"), body=report)
        )

    @Call
    def connections(self, job: str) -> Conversation[ConnectionsResource]:
        """Return the connections of a job that agents reported, and the addresses of its hosts."""
        return self._get(ConnectionsResource, _path("jobs", job, "connections"))

    @Call
    def report_connections(
        self,
        job: str,
        host: str,
        connections: Iterable[tuple[str, int, str, int]],
    ) -> Conversation[ConnectionsResource]:
        """Replace the connections of a job that a host sees.

        Each is the host's own address and port, and the other host's address and port. Reporting
        the same connections again changes nothing.
        """
        ends = [
            {"local": f"{local}:{local_port}", "remote": f"{remote}:{remote_port}"}
            for local, local_port, remote, remote_port in connections
        ]
        path = _path("jobs", job, "connections", host)
        return self._change(ConnectionsResource, Request("PUT", path, body={"connections": ends}))

    @Call
    def report_iterations(
        self,
        job: str,
        host: str,
        iterations: Iterable[HostIteration],
    ) -> Conversation[HostMeasurement]:
        """Replace what a host measured of a job's latest iterations, oldest first."""
        measured = [ReportedIteration.written(iteration) for iteration in iterations]
        path = _path("jobs", job, "iterations", host)
        return self._change(HostMeasurement, Request("PUT", path, body={"iterations": measured}))

    # -- plan, policy ------------------------------------------------------------------------------

    @Call
    def plan(
        self,
        job: str | None = None,
        switch: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        *,
        why: bool = False,
    ) -> Conversation[PlanResource]:
        """Return the plan in force.

        `job`, `switch` and `after` (as ``job/flow``) select its flows, and `limit` is the most of
        them. With `why`, the plan has its reasons instead of its flows.
        """
        query = {
            "job": job,
            "switch": switch,
            "limit": None if limit is None else str(limit),
            "after": after,
            "why": "true" if why else None,
        }
        return self._get(PlanResource, "/plan", query)

    @Call
    def classes(self, job: str) -> Conversation[ClassesResource]:
        """Return the traffic classes that a job's program has to ask for."""
        return self._get(ClassesResource, _path("jobs", job, "classes"))

    @Call
    def policy(self) -> Conversation[PolicyResource]:
        """Return the policy in force, and all that can be chosen."""
        return self._get(PolicyResource, "/policy")

    @Call
    def set_policy(
        self, name: str, parameters: Mapping[str, str] | None = None
    ) -> Conversation[PolicyResource]:
        """Choose the policy, which the next plan is made by."""
        return self._change(PolicyResource, _policy_choice(name, parameters))

    @Call
    def rehearse_policy(
        self, name: str, parameters: Mapping[str, str] | None = None
    ) -> Conversation[DryRunResource]:
        """Return what `set_policy` would change."""
        return self._rehearse(_policy_choice(name, parameters))

    # -- switches, links ---------------------------------------------------------------------------

    @Call
    def switches(self) -> Conversation[Sequence[SwitchResource]]:
        """Return all switches and their states."""
        return self._list(SwitchResource, "/switches")

    @Call
    def switch(self, name: str) -> Conversation[SwitchResource]:
        """Return one switch."""
        return self._get(SwitchResource, _path("switches", name))

    @Call
    def take_switch(self, name: str) -> Conversation[SwitchResource]:
        """Let the controller take a switch back from another one, to which it has left it."""
        return self._change(
            SwitchResource, Request("POST", _path("switches", name, "take"), body={})
        )

    @Call
    def intent(self, switch: str) -> Conversation[IntentResource]:
        """Return what the switch should hold."""
        return self._get(IntentResource, _path("switches", switch, "intent"))

    @Call
    def difference(self, switch: str) -> Conversation[SwitchDifference]:
        """Return what would be written to the switch now.

        This reads the switch and writes nothing.
        """
        return self._get(SwitchDifference, _path("switches", switch, "difference"))

    @Call
    def queues(self, switch: str) -> Conversation[SwitchQueues]:
        """Return what has passed each queue of a switch's ports, read at this moment."""
        return self._get(SwitchQueues, _path("switches", switch, "queues"))

    @Call
    def links(self) -> Conversation[Sequence[LinkResource]]:
        """Return all links and their states."""
        return self._list(LinkResource, "/links")

    @Call
    def set_link(
        self,
        a: str,
        b: str,
        state: str,
        *,
        force: bool = False,
    ) -> Conversation[LinkResource]:
        """Set the state of a link: 'up', or 'drained'.

        Draining is refused if jobs need the link, unless `force`.
        """
        return self._change(LinkResource, _link_setting(a, b, state, force))

    @Call
    def rehearse_link(
        self,
        a: str,
        b: str,
        state: str,
        *,
        force: bool = False,
    ) -> Conversation[DryRunResource]:
        """Return what `set_link` would change."""
        return self._rehearse(_link_setting(a, b, state, force))

    @Call
    def move(self) -> Conversation[MoveResource]:
        """Return the move of links that is under way."""
        return self._get(MoveResource, "/links/move")

    @Call
    def move_links(self, fabric: FabricDocument) -> Conversation[MoveResource]:
        """Let the fabric have other links, those of a fabric file or of its mapping.

        The present links end a move under way. Raise `DocumentError` for what is no fabric; nothing
        was sent then.
        """
        return self._change(MoveResource, Request("PUT", "/links", body=_fabric_mapping(fabric)))

    @Call
    def rehearse_move(self, fabric: FabricDocument) -> Conversation[DryRunResource]:
        """Return what `move_links` would change."""
        return self._rehearse(Request("PUT", "/links", body=_fabric_mapping(fabric)))

    @Call
    def confirm_move(self) -> Conversation[MoveResource]:
        """Say that the links of the move under way stand."""
        return self._change(MoveResource, Request("POST", "/links/move", body={}))

    # -- the service -------------------------------------------------------------------------------

    @Call
    def status(self) -> Conversation[StatusResource]:
        """Return the service at a glance."""
        return self._get(StatusResource, "/status")

    @Call
    def events(
        self,
        limit: int = 100,
        client: str | None = None,
        subject: str | None = None,
        before: str | None = None,
    ) -> Conversation[Sequence[EventResource]]:
        """Return the latest changes that clients asked for, oldest first.

        Only those by the token `client`, only those of the job, link, policy or switch `subject`,
        and only those before the request `before`, if given.
        """
        query = {"limit": str(limit), "client": client, "object": subject, "before": before}
        return self._list(EventResource, "/events", query)

    @Call
    def is_alive(self) -> Conversation[bool]:
        """Return whether the controller answers at all. Raises nothing."""
        problem = yield from self._controllers.probe("/healthz")
        return problem is None

    @Call
    def not_ready(self) -> Conversation[str | None]:
        """Return why the controller is not ready, in one line; None: it is ready.

        Raises nothing.
        """
        return self._controllers.probe("/readyz")

    @Call
    def metrics(self) -> Conversation[str]:
        """Return the metrics in Prometheus' text format."""
        response = yield from self._controllers.converse(Request("GET", "/metrics"))
        return response.text

    # -- conversations about one request -----------------------------------------------------------

    def _get(
        self,
        resource: type[M],
        path: str,
        query: Mapping[str, str | None] | None = None,
        more_s: float = 0.0,
    ) -> Conversation[M]:
        return self._change(resource, Request("GET", path, _without_none(query), more_s=more_s))

    def _list(
        self,
        resource: type[M],
        path: str,
        query: Mapping[str, str | None] | None = None,
    ) -> Conversation[Sequence[M]]:
        request = Request("GET", path, _without_none(query))
        response = yield from self._controllers.converse(request)
        return read_list(resource, response)

    def _change(self, resource: type[M], request: Request) -> Conversation[M]:
        response = yield from self._controllers.converse(request)
        return read_resource(resource, response)

    def _rehearse(self, request: Request) -> Conversation[DryRunResource]:
        return self._change(DryRunResource, changed(request, query={"dry_run": "true"}))

    # -- connections -------------------------------------------------------------------------------

    def _headers(self) -> Mapping[str, str]:
        headers = {"User-Agent": "echelon-client", "Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.get_secret_value()}"
        return headers

    def _verify(self, endpoint: ServiceEndpoint) -> ssl.SSLContext | bool:
        """Return the context for TLS with a controller; False: it is reached without TLS."""
        if not endpoint.base.startswith("https:"):
            return False
        if self._tls is None:
            self._tls = client_context(None, None)
        return self._tls


def _without_none(query: Mapping[str, str | None] | None) -> Mapping[str, str]:
    return {name: value for name, value in (query or {}).items() if value is not None}


def _registration(job: JobDocument, replace: bool) -> Request:
    """Return the request that registers a job. Raise `DocumentError`."""
    mapping, source = _document(job, "job")
    name = parse_document(JobSpec, mapping, source).job
    if replace:
        return Request("PUT", _path("jobs", name), body=mapping)
    return Request("POST", "/jobs", body=mapping)


def _fabric_mapping(fabric: FabricDocument) -> Mapping[str, Any]:
    """Return the mapping of a fabric. Raise `DocumentError`."""
    with foreign_files_named("" if isinstance(fabric, Mapping) else fabric):
        mapping, source = _document(fabric, "fabric")
        parse_document(FabricSpec, mapping, source)
    return mapping


def _document(document: str | Path | Mapping[str, Any], kind: str) -> tuple[Mapping[str, Any], str]:
    """Return the mapping of a document, and what errors call it. Raise `DocumentError`."""
    if isinstance(document, Mapping):
        return dict(document), kind
    return read_document(document), str(document)


def _policy_choice(name: str, parameters: Mapping[str, str] | None) -> Request:
    return Request("PUT", "/policy", body={"name": name, "parameters": dict(parameters or {})})


def _link_setting(
    a: str,
    b: str,
    state: str,
    force: bool,
) -> Request:
    return Request("PUT", _path("links", a, b), body={"state": state, "force": force})


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
