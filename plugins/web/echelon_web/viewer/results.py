"""The results of a finished run, as the page shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from echelon.controller.service.api.flows import FlowTable, WaitResource, WaitsResource
from echelon.model.documents import DocumentError, path_text
from echelon.switches.telemetry.waits import FlowSpan, Link, links_of, waits

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
        return {
            ends: one.rate_bps
            for one in self.network.links
            for ends in ((one.a, one.b), (one.b, one.a))
        }

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Return everything but single flows."""
        uses = {policy: self.uses(policy) for policy in self.measured.results}
        known = any(self.network.paths.get(policy) for policy in uses)
        return {
            "scenario": self.measured.scenario,
            "target": self.measured.target,
            "policies": [
                {"name": name, "jobs": [_summary(job, of) for job, of in policy.jobs.items()]}
                for name, policy in self.measured.results.items()
            ],
            "switches": list(self.network.switches),
            "links": [
                {
                    "a": one.a,
                    "b": one.b,
                    "rate_bps": one.rate_bps,
                    "uses": [
                        [use.get((one.a, one.b), 0.0), use.get((one.b, one.a), 0.0)]
                        for use in uses.values()
                    ],
                }
                for one in self.network.links
            ]
            if known
            else [],
        }

    def flows(self, policy: str) -> FlowTable:
        """Return all flows under a policy. Raises `KeyError` for one that was not run."""
        jobs = self.measured.results[policy].jobs
        rows = [(place, flow) for place, job in enumerate(jobs.values()) for flow in job.flows]
        names: dict[str, int] = {}
        return FlowTable(
            count=len(rows),
            jobs=tuple(jobs),
            number=tuple(range(1, len(rows) + 1)),
            job=tuple(place for place, _ in rows),
            flow=tuple(names.setdefault(flow.name, len(names)) for _, flow in rows),
            flows=tuple(names),
            iteration=tuple(flow.iteration for _, flow in rows),
            start_s=tuple(flow.start_s for _, flow in rows),
            finish_s=tuple(flow.finish_s for _, flow in rows),
            tardiness_s=tuple(flow.tardiness_s for _, flow in rows),
        )

    def waits(self, policy: str) -> WaitsResource:
        """Return who waited for whom under a policy. Raises `KeyError` for one that was not run."""
        spans = self._spans(policy)
        return WaitsResource(
            flows=len(spans),
            from_s=min((span.start_s for span in spans), default=None),
            to_s=max((span.finish_s for span in spans), default=None),
            waits=tuple(
                WaitResource.model_validate(wait, from_attributes=True)
                for wait in waits(spans, self.rates_bps)
            ),
        )

    def uses(self, policy: str) -> dict[Link, float]:
        """Return the part of each direction of a link that flows used, from the beginning of the
        run to its end.
        """
        spans = self._spans(policy)
        end_s = max((span.finish_s for span in spans), default=0.0)
        carried: dict[Link, int] = {}
        for span in spans:
            for link in span.links:
                carried[link] = carried.get(link, 0) + span.size_bytes
        return {
            link: size * 8 / end_s / self.rates_bps[link] for link, size in carried.items() if end_s
        }

    def _spans(self, policy: str) -> list[FlowSpan]:
        paths = self.network.paths.get(policy, {})
        return [
            FlowSpan(
                name, flow.start_s, flow.finish_s, flow.bytes, links_of(paths[name][flow.name])
            )
            for name, job in self.measured.results[policy].jobs.items()
            for flow in job.flows
            if flow.name in paths.get(name, {})
        ]


def _summary(name: str, job: StoredJob) -> dict[str, Any]:
    tardiness_s = [value for one in job.echelonflows.values() for value in one.tardiness_s]
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
    beside = file.with_name(NETWORK)
    run = Run(
        _read(file, StoredResults),
        _read(beside, StoredNetwork) if beside.is_file() else StoredNetwork(),
    )
    if not run.measured.results:
        raise DocumentError(
            str(file), "results", "is empty (run a scenario with 'echelon run ... --out DIR')"
        )
    for policy, jobs in run.network.paths.items():
        for job, flows in jobs.items():
            for flow, nodes in flows.items():
                if not all(link in run.rates_bps for link in pairwise(nodes)):
                    at = path_text(["paths", policy, job, flow])
                    raise DocumentError(
                        str(beside), at, "goes along a link that is not in 'links' (run it again)"
                    )
    return run


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
        reason = f"{fault['msg'][0].lower()}{fault['msg'][1:]} (name the results of 'echelon run')"
        raise DocumentError(str(file), path_text(fault["loc"]), reason) from None
