"""The results of a finished run, as the page shows them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from echelon.controller.resources.flows import FlowTable, WaitResource, WaitsResource
from echelon.model.documents import DocumentError, path_text
from echelon.planning.allocation import Link
from echelon.planning.paths import links_of
from echelon.switches.telemetry.waits import FlowSpan, waits

M = TypeVar("M", bound="_Model")

RESULTS, NETWORK = "results.json", "network.json"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class StoredFlow(_Model):
    """A flow of one iteration. Times are seconds from the beginning of the run."""

    name: str
    iteration: int
    src: str
    dst: str
    bytes: int
    start_s: float
    finish_s: float
    tardiness_s: float | None = None


class StoredEchelonFlow(_Model):
    """The tardiness of an EchelonFlow in each iteration."""

    tardiness_s: tuple[float, ...] = ()


class StoredJob(_Model):
    """A job under one policy."""

    iteration_times_s: tuple[float, ...]
    alone_iteration_s: float
    mean_slowdown: float
    reordered_packets: int = 0
    echelonflows: dict[str, StoredEchelonFlow] = {}
    flows: tuple[StoredFlow, ...] = ()


class StoredPolicy(_Model):
    """All jobs under one policy."""

    jobs: dict[str, StoredJob]


class StoredResults(_Model):
    """The document ``results.json`` (`echelon_lab.scenarios.results`)."""

    scenario: str
    target: str
    results: dict[str, StoredPolicy]


class Cable(_Model):
    """A link of the fabric."""

    a: str
    b: str
    rate_bps: int


class StoredNetwork(_Model):
    """The document ``network.json`` (`echelon_lab.scenarios.results`)."""

    switches: tuple[str, ...] = ()
    links: tuple[Cable, ...] = ()
    paths: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {}


@dataclass(frozen=True)
class Run:
    """A finished run."""

    measured: StoredResults
    network: StoredNetwork

    @cached_property
    def rates_bps(self) -> Mapping[Link, int]:
        """Return the rate of each direction of each link."""
        rates: dict[Link, int] = {}
        for link in self.network.links:
            rates[link.a, link.b] = link.rate_bps
            rates[link.b, link.a] = link.rate_bps
        return rates

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Return everything but single flows."""
        policies = []
        uses = []
        has_paths = False
        for name, policy in self.measured.results.items():
            jobs = [_job_summary(job, stored) for job, stored in policy.jobs.items()]
            policies.append({"name": name, "jobs": jobs})
            uses.append(self.uses(name))
            if self.network.paths.get(name):
                has_paths = True

        links = []
        if has_paths:
            links = [_link_summary(link, uses) for link in self.network.links]

        return {
            "scenario": self.measured.scenario,
            "target": self.measured.target,
            "policies": policies,
            "switches": list(self.network.switches),
            "links": links,
        }

    def flows(self, policy: str) -> FlowTable:
        """Return all flows under a policy. Raises `KeyError` for one that was not run."""
        jobs = self.measured.results[policy].jobs
        places: list[int] = []
        flows: list[StoredFlow] = []
        for place, job in enumerate(jobs.values()):
            places += [place] * len(job.flows)
            flows += job.flows

        # A flow comes once an iteration: rows have the number of its name.
        names: dict[str, int] = {}
        name_numbers: list[int] = []
        for flow in flows:
            number = names.setdefault(flow.name, len(names))
            name_numbers.append(number)
        rows = range(1, len(flows) + 1)
        return FlowTable(
            count=len(flows),
            jobs=tuple(jobs),
            number=tuple(rows),
            job=tuple(places),
            flow=tuple(name_numbers),
            flows=tuple(names),
            iteration=tuple(flow.iteration for flow in flows),
            start_s=tuple(flow.start_s for flow in flows),
            finish_s=tuple(flow.finish_s for flow in flows),
            tardiness_s=tuple(flow.tardiness_s for flow in flows),
        )

    def waits(self, policy: str) -> WaitsResource:
        """Return who waited for whom under a policy. Raises `KeyError` for one that was not run."""
        spans = self._spans(policy)
        starts_s = [span.start_s for span in spans]
        finishes_s = [span.finish_s for span in spans]
        resources = []
        for wait in waits(spans, self.rates_bps):
            resource = WaitResource.model_validate(wait, from_attributes=True)
            resources.append(resource)
        return WaitsResource(
            flows=len(spans),
            from_s=min(starts_s, default=None),
            to_s=max(finishes_s, default=None),
            waits=tuple(resources),
        )

    def uses(self, policy: str) -> dict[Link, float]:
        """Return the part of each direction of a link that flows used in the whole run."""
        end_s = 0.0
        carried: Counter[Link] = Counter()
        for span in self._spans(policy):
            end_s = max(end_s, span.finish_s)
            for link in span.links:
                carried[link] += span.size_bytes
        if not end_s:
            return {}
        uses = {}
        for link, size_bytes in carried.items():
            used_bps = size_bytes * 8 / end_s
            uses[link] = used_bps / self.rates_bps[link]
        return uses

    def _spans(self, policy: str) -> list[FlowSpan]:
        paths = self.network.paths.get(policy, {})
        spans = []
        for name, job in self.measured.results[policy].jobs.items():
            job_paths = paths.get(name, {})
            for flow in job.flows:
                path = job_paths.get(flow.name)
                if path is None:
                    continue
                links = links_of(path)
                span = FlowSpan(name, flow.start_s, flow.finish_s, flow.bytes, links)
                spans.append(span)
        return spans


def _link_summary(link: Cable, uses: Iterable[Mapping[Link, float]]) -> dict[str, Any]:
    forward = (link.a, link.b)
    back = (link.b, link.a)
    both_ways = [[use.get(forward, 0.0), use.get(back, 0.0)] for use in uses]
    return {"a": link.a, "b": link.b, "rate_bps": link.rate_bps, "uses": both_ways}


def _job_summary(name: str, job: StoredJob) -> dict[str, Any]:
    tardiness_s: list[float] = []
    for flow in job.echelonflows.values():
        tardiness_s += flow.tardiness_s
    return {
        "name": name,
        "iteration_times_s": job.iteration_times_s,
        "alone_iteration_s": job.alone_iteration_s,
        "mean_slowdown": job.mean_slowdown,
        "reordered_packets": job.reordered_packets,
        "largest_tardiness_s": max(tardiness_s, default=None),
    }


def load(path: Path) -> Run:
    """Return the run whose results are in a directory, or in the file ``results.json`` itself.

    Raises `DocumentError`.

    Without ``network.json`` beside it, the fabric is not known.
    """
    file = path / RESULTS if path.is_dir() else path
    network_file = file.with_name(NETWORK)
    measured = _read(file, StoredResults)
    network = StoredNetwork()
    if network_file.is_file():
        network = _read(network_file, StoredNetwork)
    if not measured.results:
        raise DocumentError(
            str(file), "results", "is empty (run a scenario with 'echelon run ... --out DIR')"
        )
    run = Run(measured, network)
    for keys, nodes in _stored_paths(network):
        links = links_of(nodes)
        if not all(link in run.rates_bps for link in links):
            raise DocumentError(
                str(network_file),
                path_text(keys),
                "goes along a link that is not in 'links' (run it again)",
            )
    return run


def _stored_paths(network: StoredNetwork) -> Iterator[tuple[list[str | int], tuple[str, ...]]]:
    """Yield the nodes of each path, behind the keys at which they stand."""
    for policy, jobs in network.paths.items():
        for job, flows in jobs.items():
            for flow, nodes in flows.items():
                yield ["paths", policy, job, flow], nodes


def _read(file: Path, model: type[M]) -> M:
    try:
        document = json.loads(file.read_bytes())
    except OSError as error:
        reason = f"{error.strerror or error} (name the directory that 'echelon run --out' wrote)"
        raise DocumentError(str(file), "", reason, code="unreadable-file") from None
    except (ValueError, RecursionError) as error:
        raise DocumentError(
            str(file), "", f"is not JSON: {error} (run it again)", code="bad-syntax"
        ) from None
    try:
        return model.model_validate(document)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        message = fault["msg"]
        key = path_text(fault["loc"])
        reason = f"{message[0].lower()}{message[1:]} (name the results of 'echelon run')"
        raise DocumentError(str(file), key, reason) from None
