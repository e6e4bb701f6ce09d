"""`echelon watch`: the service at a glance, again and again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli import calls, tables
from echelon.cli.frame import History, View, frame, shown_jobs
from echelon.cli.usage import fail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from echelon.client import Client
    from echelon.service.api.jobs import JobSummary

_TIMEOUT_S = 5.0
"""Timeout of an answer; meanwhile no key is read."""
_KEPT = 64
"""Number of iterations of a job."""
_ALL_LINES = 10**6
_ASKED = 32
"""Maximum number of jobs whose history is requested at a time."""


def watch(
    once: Annotated[bool, typer.Option("--once", help="Show one frame and exit.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between frames.", min=0.1, max=3600)] = 1.0,
    url: calls.Url = calls.DEFAULT_URL,
    token_file: calls.TokenFile = None,
    ca: calls.Authority = None,
    certificate: calls.Certificate = None,
    as_json: tables.AsJson = False,
) -> None:
    """Watch switches and jobs live: states, iteration times and tardiness. q or Ctrl-C ends it.

    If the service does not answer, it keeps trying.

    Example: echelon watch --interval 2
    """
    from rich.console import Console

    console = Console(highlight=False)
    if not once and (as_json or not console.is_terminal):
        fail(f"watch: {'one document is one frame' if as_json else 'the output is not a terminal'} (use --once)")
    with calls.service(url, token_file, ca, certificate, timeout_s=_TIMEOUT_S, as_json=as_json) as client:
        watcher = Watcher(client, url)
        if as_json:
            view = watcher.look()
            tables.show_json({"status": view.status, "switches": view.switches, "jobs": view.jobs})
        elif once:
            console.print(frame(watcher.look(), console.width, _ALL_LINES))
        else:
            try:
                _watch(watcher, console, interval)
            except KeyboardInterrupt:
                return


class Watcher:
    """A watcher of the service, which remembers what a frame needs of earlier answers."""

    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._view = View(url=url, at=time.time())
        self._histories: dict[str, History] = {}

    def look(self) -> View:
        """Return the service's state now. Raise `ClientError`."""
        status, switches, jobs = self._client.status(), self._client.switches(), self._client.jobs()
        self._remember(jobs)
        now = time.time()
        self._view = View(
            url=self._view.url,
            at=now,
            status=status,
            switches=switches,
            jobs=jobs,
            histories=self._histories,
            answered_at=now,
        )
        return self._view

    def look_or_say_why_not(self) -> View:
        """Return the service's last state, and why there is no newer one. Raise `ClientError` if waiting cannot
        help."""
        from dataclasses import replace

        from echelon.client import ClientError

        try:
            return self.look()
        except ClientError as error:
            if error.status is not None and error.status < 500:
                raise
            return replace(self._view, at=time.time(), problem=error.reason)

    def _remember(self, jobs: Sequence[JobSummary]) -> None:
        histories = {job.name: self._histories[job.name] for job in jobs if job.name in self._histories}
        for job in jobs:
            if job.name in histories:
                histories[job.name] = _extended(histories[job.name], job)
        for job in shown_jobs([job for job in jobs if job.name not in histories], _ASKED):
            histories[job.name] = self._past(job.name)
        self._histories = histories

    def _past(self, name: str) -> History:
        from echelon.client import ClientError

        try:
            job = self._client.job(name)
        except ClientError as error:
            if error.status == 404:  # removed at this moment
                return History()
            raise
        # The largest of its EchelonFlows in each iteration, as far back as all of them go.
        tardiness = [flow.tardiness_s for flow in job.echelonflows if flow.tardiness_s]
        known = min(map(len, tardiness), default=0)
        return History(
            job.iteration_times_s[-_KEPT:],
            tuple(max(values) for values in zip(*(seen[-known:] for seen in tardiness), strict=True))[-_KEPT:],
        )


def _extended(history: History, job: JobSummary) -> History:
    return History(
        _appended(history.iterations_s, job.last_iteration_s), _appended(history.tardiness_s, job.last_tardiness_s)
    )


def _appended(values: tuple[float, ...], last: float | None) -> tuple[float, ...]:
    """Append `last`, which belongs to the same iteration as before until it changes."""
    if last is None or values[-1:] == (last,):
        return values
    return (*values, last)[-_KEPT:]


def _watch(watcher: Watcher, console: Console, interval_s: float) -> None:
    from rich.live import Live

    from echelon.cli.keys import single_keys

    with single_keys() as key, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            view = watcher.look_or_say_why_not()
            live.update(frame(view, console.width, console.height), refresh=True)
            if key(interval_s) in ("q", "Q"):
                return
