"""The data of pictures: a `results.json`, its `network.json`, and the part that is drawn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from echelon.model.documents import DocumentError
from echelon.planning.paths import links_of

RESULTS = "results.json"
NETWORK = "network.json"
_BITS = 8
_UNCHANGED = 0.0005
"""The part below which a change counts as none."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A scenario under several policies, as measured (`echelon_lab.scenarios.results`)."""

    policies: Mapping[str, Any]
    """The results by policy, the one to compare with first."""

    network: Mapping[str, Any] = field(default_factory=dict)
    """The fabric and the paths of flows, as `echelon_lab.scenarios.results` describes them."""

    @property
    def jobs(self) -> Sequence[str]:
        """The names of the jobs."""
        return list(next(iter(self.policies.values()))["jobs"])

    @property
    def ends(self) -> tuple[str, str]:
        """The policy to compare with, and the one that is compared: the first and the last."""
        policies = list(self.policies)
        return policies[0], policies[-1]

    def slowdowns(
        self,
        policy: str,
        job: str,
        selection: Excerpt,
    ) -> Mapping[int, float]:
        """Return the time of each iteration that is drawn, over that of the job alone."""
        measured = self.policies[policy]["jobs"][job]
        slowdowns = {}
        for number, time_s in enumerate(measured["iteration_times_s"], start=1):
            if selection.takes(number):
                slowdowns[number] = time_s / measured["alone_iteration_s"]
        return slowdowns

    def mean_slowdown(self, policy: str, selection: Excerpt) -> float:
        """Return the mean over the jobs, each counting once."""
        return fmean(mean(self.slowdowns(policy, job, selection)) for job in self.jobs)

    def headline(self, policy: str, selection: Excerpt) -> str:
        """Return what iterations take under a policy."""
        return f"{policy}: {self.mean_slowdown(policy, selection):.2f} times the time alone"

    def message(self, selection: Excerpt) -> str:
        """Return in a sentence how the last policy's iterations compare with the first's."""
        first, last = self.ends
        before = self.mean_slowdown(first, selection)
        after = self.mean_slowdown(last, selection)
        if first == last:
            return f"Iterations under {self.headline(last, selection)}{selection.part}"
        return f"Under {last} iterations take {change(before, after)} under {first}{selection.part}"

    def flows(
        self,
        policy: str,
        job: str,
        selection: Excerpt,
    ) -> Sequence[Mapping[str, Any]]:
        """Return the flows of the iterations that are drawn.

        Raise `DocumentError` if the results list none because there are too many.
        """
        measured = self.policies[policy]["jobs"][job]
        if listed(measured, "flows", selection) == 0:
            raise DocumentError(
                RESULTS, "flows", "the run has too many to list (run it again with --every-flow)"
            )
        flows = measured["flows"]
        return [flow for flow in flows if selection.takes(flow["iteration"])]

    def shortest_s(self, selection: Excerpt) -> float:
        """Return when the shortest run ends, up to which all can be compared.

        It is noted if others take longer.
        """
        ends_s = []
        for policy in self.policies:
            end_s = 0.0
            for job in self.jobs:
                for flow in self.flows(policy, job, selection):
                    end_s = max(end_s, flow["finish_s"])
            ends_s.append(end_s)
        shortest_s = min(ends_s)
        if max(ends_s) > shortest_s:
            selection.note(f"the first {shortest_s:.4g} s, when the shortest run ends")
        # An axis has a length even if nothing was sent.
        return shortest_s or 1.0

    def links(
        self,
        policy: str,
        job: str,
        flow: str,
    ) -> Sequence[tuple[str, str]]:
        """Return the links of a flow's path, each as the nodes at its ends.

        There are none if the path is not known.
        """
        path = self.network.get("paths", {}).get(policy, {}).get(job, {}).get(flow, ())
        return links_of(path)

    @property
    def rates_bps(self) -> Mapping[tuple[str, str], int]:
        """The rate of each direction of each link."""
        rates_bps = {}
        for cable in self.network.get("links", ()):
            rates_bps[cable["a"], cable["b"]] = cable["rate_bps"]
            rates_bps[cable["b"], cable["a"]] = cable["rate_bps"]
        return rates_bps


def listed(
    job: Mapping[str, Any],
    kind: str,
    selection: Excerpt,
) -> int:
    """Return of how many iterations, the first ones, the flows or compute units are listed.

    It is noted if they are not all (`echelon_lab.scenarios.results`).
    """
    iterations = len(job["iteration_times_s"])
    counts = job.get("listed_iterations", {})
    count: int = min(iterations, counts.get(kind, iterations))
    if count < iterations and selection.takes(count + 1):
        if count:
            words = f"iterations after the first {count}"
        else:
            words = "all of them"
        selection.note(f"no single {kind}: {words} (list them with echelon run --every-flow)")
    return count


def mean(slowdowns: Mapping[int, float]) -> float:
    """Return the mean of iterations; raise `DocumentError` if there are none."""
    if not slowdowns:
        raise DocumentError(
            "--iterations", "", "there are not so many iterations (choose smaller numbers)"
        )
    return fmean(slowdowns.values())


def change(before: float, after: float) -> str:
    """Return how `after` compares with `before`, as in "12 % less time than"."""
    increase = after / before - 1
    if abs(increase) < _UNCHANGED:
        return "as long as"
    if increase >= 1:
        return f"{increase + 1:.2g} times as long as"
    direction = "more"
    if increase < 0:
        direction = "less"
    return f"{100 * abs(increase):.2g} % {direction} time than"


EVENLY = "a flow's bytes are spread evenly over its time"
"""The remark about `loads_bps`: several flows may seem to send more than a link carries."""


def within(uses: Sequence[float]) -> list[float]:
    """Return the parts of a link's rate that are used in steps of time, none of them more than all.

    What is more waits for the next step, and from the last on, for an earlier one.
    """
    parts = list(uses)
    more = 0.0
    for place in (*range(len(parts)), *range(len(parts) - 1, -1, -1)):
        more += parts[place]
        parts[place] = min(more, 1.0)
        more -= parts[place]
    return parts


def loads_bps(
    flows: Sequence[Mapping[str, Any]],
    end_s: float,
    bins: int,
) -> list[float]:
    """Return what flows send in each of so many equal parts of the time until `end_s`.

    The bytes of a flow are spread evenly between its start and its finish.
    """
    step_s = end_s / bins
    bits = [0.0] * bins
    for flow in flows:
        begin = flow["start_s"]
        end = flow["finish_s"]
        if end > begin:
            rate = flow["bytes"] * _BITS / (end - begin)
        else:
            rate = 0.0
        for place in range(int(begin / step_s), min(int(end / step_s) + 1, bins)):
            overlap = min(end, (place + 1) * step_s) - max(begin, place * step_s)
            bits[place] += rate * max(overlap, 0.0)
    return [amount / step_s for amount in bits]


@dataclass(slots=True)
class Excerpt:
    """The part of a run to draw. None and nothing: all of it."""

    first: int | None = None
    last: int | None = None
    """Iterations from `first` to `last`, counted from 1."""
    jobs: tuple[str, ...] = ()
    most_pages: int | None = None
    notes: list[str] = field(default_factory=list)
    """The notes about what the pictures leave out, for the person who made them."""

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def takes(self, iteration: int) -> bool:
        """Return whether an iteration is drawn."""
        if self.first is not None and iteration < self.first:
            return False
        return self.last is None or iteration <= self.last

    @property
    def part(self) -> str:
        """Return the words that a title adds where not all iterations count."""
        if self.first is None and self.last is None:
            return ""
        return f" (iterations {self.first or 1} to {self.last or 'the last'})"

    def most(
        self,
        names: Sequence[str],
        plural: str,
        option: str,
        limit: int,
    ) -> Sequence[str]:
        """Return the first names, as many as can be told apart, and note how many there are."""
        if len(names) > limit:
            self.note(f"the first {limit} {plural} of {len(names)} (choose with {option})")
        return names[:limit]


def load_whole(path: Path) -> MeasuredRun:
    """Return the results in a file, with every number that pictures and tables need.

    Raise `DocumentError`.
    """
    run = load(path, Excerpt())
    for policy, results in run.policies.items():
        for job, measured in results["jobs"].items():
            where = f"results.{policy}.jobs.{job}"
            try:
                _use_all(run, policy, job, measured)
            except DocumentError:
                raise DocumentError(str(path), where, "has no iteration (run it again)") from None
            except (KeyError, TypeError, ZeroDivisionError) as error:
                reason = f"is damaged: {type(error).__name__} {error} (run it again)"
                raise DocumentError(str(path), where, reason) from None
    return run


def _use_all(
    run: MeasuredRun,
    policy: str,
    job: str,
    measured: Mapping[str, Any],
) -> None:
    """Read what pictures and tables read of a job, for the errors of damaged results."""
    mean(run.slowdowns(policy, job, Excerpt()))
    loads_bps(measured["flows"], 1.0, 1)
    for flow in measured["flows"]:
        _ = flow["name"], flow["iteration"], flow["src"], flow["dst"]


def load(
    path: Path,
    selection: Excerpt,
    policies: Sequence[str] = (),
) -> MeasuredRun:
    """Return what a directory of `echelon run`, or its `results.json`, holds.

    It is that of `policies`, or of all. Raise `DocumentError`. A policy that was not run, or a job
    that a policy lacks, is a note.
    """
    file = path
    if path.is_dir():
        file = path / RESULTS
    results, network = _read(file)
    missing = [policy for policy in policies if policy not in results]
    if missing:
        selection.note(
            f"not run, and not drawn: {', '.join(missing)} (there is {', '.join(results)})"
        )
    chosen = {policy: results[policy] for policy in policies or results if policy in results}
    if not chosen:
        raise DocumentError(
            str(file), "results", f"none of the policies was run (there is {', '.join(results)})"
        )

    wanted = selection.jobs or tuple(next(iter(chosen.values()))["jobs"])
    common = []
    for job in wanted:
        if all(job in policy["jobs"] for policy in chosen.values()):
            common.append(job)
    absent = [job for job in wanted if job not in common]
    if absent:
        selection.note(f"not measured under every policy, and not drawn: {', '.join(absent)}")
    if not common:
        raise DocumentError(str(file), "results", "there is no job to draw (check --job)")
    by_policy = {}
    for name, policy in chosen.items():
        by_policy[name] = {**policy, "jobs": {job: policy["jobs"][job] for job in common}}
    return MeasuredRun(by_policy, network)


def _read(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the results by policy, and the network, which is empty if its file is missing."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        results = dict(document["results"])
        network = {}
        network_file = file.with_name(NETWORK)
        if network_file.is_file():
            network = dict(json.loads(network_file.read_text(encoding="utf-8")))
    except OSError as error:
        reason = f"{error.strerror or error} (name a directory that echelon run has written)"
        raise DocumentError(str(file), "", reason, code="unreadable-file") from None
    except (ValueError, KeyError, TypeError):
        raise DocumentError(
            str(file), "", "is not the results of a run (name what echelon run has written)"
        ) from None
    return results, network
