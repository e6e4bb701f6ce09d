"""What pictures show: a `results.json`, the `network.json` beside it, and the part of them that is
drawn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from echelon.model.documents import DocumentError
from echelon.planning.paths import links_of

RESULTS, NETWORK = "results.json", "network.json"
_BITS = 8
_UNCHANGED = 0.0005
"""The part below which a change counts as none."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A scenario under several policies, as measured (`echelon_lab.scenarios.results`)."""

    policies: Mapping[str, Any]
    """The results by policy, the one to compare with first."""

    network: Mapping[str, Any] = field(default_factory=dict)
    """The fabric and the paths of flows by policy, job and flow
    (`echelon_lab.scenarios.results`).
    """

    @property
    def jobs(self) -> Sequence[str]:
        """The names of the jobs."""
        return list(next(iter(self.policies.values()))["jobs"])

    @property
    def ends(self) -> tuple[str, str]:
        """The policy to compare with, and the one that is compared: the first and the last."""
        first, *others = self.policies
        return first, others[-1] if others else first

    def slowdowns(self, policy: str, job: str, selection: Excerpt) -> Mapping[int, float]:
        """Return the time of each iteration that is drawn, over that of the job alone."""
        of = self.policies[policy]["jobs"][job]
        times = enumerate(of["iteration_times_s"], start=1)
        return {
            number: time_s / of["alone_iteration_s"]
            for number, time_s in times
            if selection.takes(number)
        }

    def mean_slowdown(self, policy: str, selection: Excerpt) -> float:
        """Return the mean over the jobs, each counting once."""
        return fmean(mean(self.slowdowns(policy, job, selection)) for job in self.jobs)

    def headline(self, policy: str, selection: Excerpt) -> str:
        """Return what iterations take under a policy."""
        return f"{policy}: {self.mean_slowdown(policy, selection):.2f} times the time alone"

    def message(self, selection: Excerpt) -> str:
        """Return in a sentence how iterations under the last policy compare with those under the
        first.
        """
        first, last = self.ends
        before = self.mean_slowdown(first, selection)
        after = self.mean_slowdown(last, selection)
        if first == last:
            return f"Iterations under {self.headline(last, selection)}{selection.part}"
        return f"Under {last} iterations take {change(before, after)} under {first}{selection.part}"

    def flows(self, policy: str, job: str, selection: Excerpt) -> Sequence[Mapping[str, Any]]:
        """Return the flows of the iterations that are drawn."""
        return [
            flow
            for flow in self.policies[policy]["jobs"][job]["flows"]
            if selection.takes(flow["iteration"])
        ]

    def shortest_s(self, selection: Excerpt) -> float:
        """Return when the shortest run ends, up to which all can be compared; note it if others
        take longer.
        """
        ends = [
            max(
                (
                    flow["finish_s"]
                    for job in self.jobs
                    for flow in self.flows(policy, job, selection)
                ),
                default=0.0,
            )
            for policy in self.policies
        ]
        if max(ends) > min(ends):
            selection.note(f"the first {min(ends):.4g} s, when the shortest run ends")
        return min(ends) or 1.0

    def links(self, policy: str, job: str, flow: str) -> Sequence[tuple[str, str]]:
        """Return the links of a flow's path, each as the nodes at its ends; none if the path is not
        known.
        """
        path = self.network.get("paths", {}).get(policy, {}).get(job, {}).get(flow, ())
        return links_of(path)

    @property
    def rates_bps(self) -> Mapping[tuple[str, str], int]:
        """The rate of each direction of each link."""
        cables = self.network.get("links", ())
        return {
            ends: of["rate_bps"]
            for of in cables
            for ends in ((of["a"], of["b"]), (of["b"], of["a"]))
        }


def mean(slowdowns: Mapping[int, float]) -> float:
    """Return the mean of iterations; raise `DocumentError` if there are none."""
    if not slowdowns:
        raise DocumentError(
            "--iterations", "", "there are not so many iterations (choose smaller numbers)"
        )
    return fmean(slowdowns.values())


def change(before: float, after: float) -> str:
    """Return how `after` compares with `before`, as in "12 % less time than"."""
    by = after / before - 1
    if abs(by) < _UNCHANGED:
        return "as long as"
    if by >= 1:
        return f"{by + 1:.2g} times as long as"
    return f"{100 * abs(by):.2g} % {'less' if by < 0 else 'more'} time than"


EVENLY = "a flow's bytes are spread evenly over its time"
"""What pictures say of `loads_bps`: that several flows may seem to send more than a link
carries.
"""


def within(uses: Sequence[float]) -> list[float]:
    """Return the parts of a link's rate that are used in steps of time, none of them more than all:
    what is more waits for the next step, and from the last on, for an earlier one."""
    out = list(uses)
    more = 0.0
    for place in (*range(len(out)), *range(len(out) - 1, -1, -1)):
        more += out[place]
        out[place] = min(more, 1.0)
        more -= out[place]
    return out


def loads_bps(flows: Sequence[Mapping[str, Any]], end_s: float, bins: int) -> list[float]:
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
    """What the pictures leave out, for the person who made them."""

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def takes(self, iteration: int) -> bool:
        """Return whether an iteration is drawn."""
        return (self.first is None or iteration >= self.first) and (
            self.last is None or iteration <= self.last
        )

    @property
    def part(self) -> str:
        """What a title adds where not all iterations count."""
        if self.first is None and self.last is None:
            return ""
        return f" (iterations {self.first or 1} to {self.last or 'the last'})"

    def most(self, found: Sequence[str], what: str, option: str, limit: int) -> Sequence[str]:
        """Return the first of what is found, as many as can be told apart, and note how many others
        there are.
        """
        if len(found) > limit:
            self.note(f"the first {limit} {what} of {len(found)} (choose with {option})")
        return found[:limit]


def load_whole(path: Path) -> MeasuredRun:
    """Return the results in a file, with every number that pictures and tables need.

    Raise `DocumentError`.
    """
    run = load(path, Excerpt())
    for policy, of in run.policies.items():
        for job, measured in of["jobs"].items():
            where = f"results.{policy}.jobs.{job}"
            try:
                mean(run.slowdowns(policy, job, Excerpt()))
                loads_bps(measured["flows"], 1.0, 1)
                _ = {
                    (flow["name"], flow["iteration"], flow["src"], flow["dst"])
                    for flow in measured["flows"]
                }
            except DocumentError:
                raise DocumentError(str(path), where, "has no iteration (run it again)") from None
            except (KeyError, TypeError, ZeroDivisionError) as error:
                reason = f"is damaged: {type(error).__name__} {error} (run it again)"
                raise DocumentError(str(path), where, reason) from None
    return run


def load(path: Path, selection: Excerpt, policies: Sequence[str] = ()) -> MeasuredRun:
    """Return what a directory of `echelon run`, or its `results.json`, holds of `policies`, or of
    all.

    Raise `DocumentError`. A policy that was not run, or a job that a policy lacks, is a note.
    """
    file = path / RESULTS if path.is_dir() else path
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        results = dict(document["results"])
        beside = file.with_name(NETWORK)
        if beside.is_file():
            network = dict(json.loads(beside.read_text(encoding="utf-8")))
        else:
            network = {}
    except OSError as error:
        reason = f"{error.strerror or error} (name a directory that echelon run has written)"
        raise DocumentError(str(file), "", reason, code="unreadable-file") from None
    except (ValueError, KeyError, TypeError):
        raise DocumentError(
            str(file), "", "is not the results of a run (name what echelon run has written)"
        ) from None
    missing = [policy for policy in policies if policy not in results]
    if missing:
        selection.note(
            f"not run, and not drawn: {', '.join(missing)} (there is {', '.join(results)})"
        )
    shown = {policy: results[policy] for policy in policies or results if policy in results}
    if not shown:
        raise DocumentError(
            str(file), "results", f"none of the policies was run (there is {', '.join(results)})"
        )
    wanted = selection.jobs or tuple(next(iter(shown.values()))["jobs"])
    common = [job for job in wanted if all(job in of["jobs"] for of in shown.values())]
    if absent := [job for job in wanted if job not in common]:
        selection.note(f"not measured under every policy, and not drawn: {', '.join(absent)}")
    if not common:
        raise DocumentError(str(file), "results", "there is no job to draw (check --job)")
    return MeasuredRun(
        {
            policy: {**of, "jobs": {job: of["jobs"][job] for job in common}}
            for policy, of in shown.items()
        },
        network,
    )
