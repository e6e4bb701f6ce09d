"""report.md: what was run, the results, what every job gained or lost, and what the figures leave
out.
"""

from __future__ import annotations

import platform
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from statistics import fmean
from typing import Any

from echelon_lab.scenarios.results import PolicyRun, Results
from echelon_lab.scenarios.scenario import Scenario
from echelon_lab.scenarios.traffic_spec import TrafficSource
from echelon_lab.traffic.schedule import Schedule

_UNCHANGED_PERCENT = 0.05
"""Smallest change shown, in percent; smaller ones would be shown as 0.0 %."""
_NONE = "–"
_SHOWN_PAIRS = 4
"""Maximum number of hosts listed for each source of cross traffic."""


def write(
    scenario: Scenario,
    results: Results,
    runs: Mapping[str, PolicyRun],
    pictures: Sequence[str],
    notes: Sequence[str],
) -> str:
    """Return the report as Markdown.

    `pictures` are files next to it; `notes` say what they leave out.
    """
    by_policy: Mapping[str, Any] = results["results"]
    labels = list(runs)
    target = results["target"]
    parts = [
        f"# {scenario.name} on {target}",
        scenario.description,
        _what_ran(scenario, target, runs),
        "## Policies",
        _policies(scenario, by_policy, labels, runs),
        "## Jobs",
        _jobs(scenario, by_policy, labels),
        "## Tardiness",
        _tardiness(scenario, by_policy, labels),
        "## Pictures",
        *(f"![{name}]({name})" for name in pictures),
        "\n".join(f"- {note}" for note in notes),
        (
            ""
            if pictures
            else "Not drawn: matplotlib is not installed (`pip install 'echelon-p4[plot]'`)."
        ),
    ]
    if scenario.traffic:
        parts += ["## Cross traffic", _cross_traffic(scenario, by_policy, labels)]
    if any(by_policy[label]["switches"] for label in labels):
        parts += [
            "## Packets",
            _packets(scenario, labels, runs),
            "## Switches",
            _switches(by_policy, labels),
        ]
    parts += ["## How to read this", _reading(scenario, by_policy, runs)]
    return "\n\n".join(part for part in parts if part) + "\n"


def change_percent(before: float, after: float) -> float:
    """Return by how many percent `after` is more than `before`."""
    return (after / before - 1) * 100


def _what_ran(scenario: Scenario, target: str, runs: Mapping[str, PolicyRun]) -> str:
    fabric = scenario.fabric
    transport = scenario.transport
    lasting = {
        "all-done": f"every job until the slowest has done {scenario.iterations}",
        "exactly": f"{scenario.iterations} of each job",
    }
    rows = [
        ("scenario file", f"`{scenario.file.name}`"),
        ("target", target),
        ("policies", ", ".join(runs)),
        ("jobs", ", ".join(job.name for job in scenario.jobs)),
        ("iterations", lasting[scenario.until]),
        ("fabric", f"{fabric.name}: {len(fabric.hosts)} hosts, {len(fabric.switches)} switches"),
        ("transport", f"packets of {transport.packet_bytes} B, window {transport.window_packets}"),
        (
            "retransmission",
            f"after {_number(float(transport.retransmit_after_s))} s without acknowledgement",
        ),
        ("seed", str(scenario.seed)),
        ("version", f"echelon-p4 {_version()}, Python {platform.python_version()}"),
    ]
    if scenario.control_latency_s:
        rows.append(("control latency", f"{_number(float(scenario.control_latency_s))} s"))
    if scenario.stop_controller_after_iteration is not None:
        rows.append(
            (
                "controller",
                f"stopped after iteration {scenario.stop_controller_after_iteration} of every job",
            )
        )
    if scenario.profile_error:
        rows.append(
            (
                "profile error",
                f"{float(scenario.profile_error * 100):+.4g} % on what the controller believes",
            )
        )
    rows += [
        (
            "delay",
            (
                f"job {d.job}, worker {d.worker}, iteration {d.iteration}:"
                f" {_number(float(d.delay_s))} s longer"
            ),
        )
        for d in scenario.delays
    ]
    rows += [
        (
            "background",
            (
                f"{b.name}: {b.src} to {b.dst}, {_number(b.rate_bps / 1e6)} Mbit/s, packets of"
                f" {b.packet_bytes} B"
            ),
        )
        for b in scenario.background
    ]
    tcp = (
        f"segments of up to {transport.packet_bytes} B, time-out at least"
        f" {_number(float(transport.min_rto_s))} s"
    )
    by_bytes = {
        name: spec.recognition
        for name, spec in scenario.specs.items()
        if spec.recognition.by == "bytes"
    }
    if over_tcp := [name for name, of in by_bytes.items() if of.mtu is None]:
        rows.append(("jobs over TCP", f"{', '.join(over_tcp)}: {tcp}"))
    rows += [
        ("jobs over RoCE", f"{name}: MTU {of.mtu} B, messages of {transport.message_bytes} B")
        for name, of in by_bytes.items()
        if of.mtu is not None
    ]
    observed = {job for run in runs.values() for job in run.observed}
    rows += [
        ("program", f"{name}: `{shlex.join(words)}`")
        for name, words in scenario.commands.items()
        if name in observed
    ]
    rows += [
        (
            "cross traffic",
            f"{source.name}: {_source(source)}, TCP{' with ECN' if source.ecn else ''}, {tcp}",
        )
        for source in scenario.traffic
    ]
    if scenario.queue_bytes is not None:
        rows.append(("queues", f"{scenario.queue_bytes} B each"))
    if scenario.ecn_threshold_packets is not None:
        rows.append(("ECN marks", f"from {scenario.ecn_threshold_packets} packets in a queue"))
    return _table(("", ""), rows)


def _policies(
    scenario: Scenario,
    by_policy: Mapping[str, Any],
    labels: Sequence[str],
    runs: Mapping[str, PolicyRun],
) -> str:
    header = (
        "policy",
        "first iteration computed (s)",
        "mean iteration (s)",
        "mean slowdown",
        "worst job's slowdown",
        "mean tardiness (s)",
        "max. tardiness (s)",
        "packets dropped",
        "packets reordered",
    )
    rows = []
    for label in labels:
        jobs = by_policy[label]["jobs"]
        switches = by_policy[label]["switches"]
        slowdowns = [job["mean_slowdown"] for job in jobs.values()]
        tardiness = [
            value
            for job in jobs.values()
            for of in job["echelonflows"].values()
            for value in of["tardiness_s"]
        ]
        finishes = [
            job["compute_finish_s"] for job in jobs.values() if job["compute_finish_s"] is not None
        ]
        rows.append(
            (
                label,
                _mean(finishes),
                _mean([_mean_iteration_s(job) for job in jobs.values()]),
                _measured(fmean(slowdowns)),
                _measured(max(slowdowns)),
                _mean(tardiness),
                _measured(max(tardiness)) if tardiness else _NONE,
                (
                    str(sum(stats["packets_dropped"] for stats in switches.values()))
                    if switches
                    else _NONE
                ),
                str(sum(runs[label].reordered.values())) if switches else _NONE,
            )
        )
    if len(scenario.jobs) == 1:
        of_jobs = ""
    else:
        of_jobs = "Times are means over the jobs, each job counting once. "
    return (
        _table(header, rows)
        + f"\n\n{of_jobs}Slowdown is a job's mean iteration time divided by the least that it can"
        " take alone on its hosts, whatever the policy and the paths (fluid model). Tardiness is"
        " that of EchelonFlows, over all iterations; it is negative when every flow came before"
        " its ideal finish time."
    )


def _jobs(scenario: Scenario, by_policy: Mapping[str, Any], labels: Sequence[str]) -> str:
    first, *others = labels
    header = ["job", "alone (s)", f"{first} (s)"]
    for label in others:
        header += [f"{label} (s)", f"against {first}"]
    rows = []
    changes: dict[str, list[tuple[str, float]]] = {label: [] for label in others}
    for job in scenario.jobs:
        before = _mean_iteration_s(by_policy[first]["jobs"][job.name])
        row = [
            job.name,
            _measured(by_policy[first]["jobs"][job.name]["alone_iteration_s"]),
            _measured(before),
        ]
        for label in others:
            after = _mean_iteration_s(by_policy[label]["jobs"][job.name])
            changes[label].append((job.name, change_percent(before, after)))
            row += [_measured(after), _change(changes[label][-1][1])]
        rows.append(row)
    sentences = [_verdict(label, first, changes[label]) for label in others]
    return "\n".join(
        [
            _table(header, rows),
            "\nMean time of an iteration.\n",
            *(f"- {text}" for text in sentences),
        ]
    ).rstrip()


def _verdict(label: str, first: str, changes: Sequence[tuple[str, float]]) -> str:
    faster = [(name, by) for name, by in changes if by < -_UNCHANGED_PERCENT]
    slower = [(name, by) for name, by in changes if by > _UNCHANGED_PERCENT]

    def listed(some: Iterable[tuple[str, float]], key: Callable[[tuple[str, float]], float]) -> str:
        return ", ".join(f"{name} ({_change(by)})" for name, by in sorted(some, key=key))

    parts = []
    if faster:
        parts.append(f"faster: {listed(faster, lambda c: c[1])}")
    if slower:
        parts.append(f"**slower: {listed(slower, lambda c: -c[1])}**")
    same = len(changes) - len(faster) - len(slower)
    if same:
        parts.append(f"unchanged: {same}")
    return f"{label} against {first}: {'; '.join(parts)}."


def _tardiness(scenario: Scenario, by_policy: Mapping[str, Any], labels: Sequence[str]) -> str:
    header = ["job", "EchelonFlow"]
    for label in labels:
        header += [f"{label}: mean (s)", "max. (s)"]
    rows = []
    for job in scenario.jobs:
        # Ranks of programs tell when their operations end, not when flows do.
        of_job = {label: by_policy[label]["jobs"][job.name]["echelonflows"] for label in labels}
        for h in (h for h in job.echelonflows if all(h.name in of_job[label] for label in labels)):
            row = [job.name, h.name]
            for label in labels:
                values = of_job[label][h.name]["tardiness_s"]
                row += [_mean(values), _measured(max(values))]
            rows.append(row)
    if rows:
        return _table(header, rows)
    return "No job has an EchelonFlow whose flows were measured."


def _packets(scenario: Scenario, labels: Sequence[str], runs: Mapping[str, PolicyRun]) -> str:
    rows = [
        (
            label,
            job.name,
            str(runs[label].reordered.get(job.name, 0)),
            str(runs[label].retransmitted.get(job.name, 0)),
        )
        for label in labels
        for job in scenario.jobs
    ]
    return (
        _table(("policy", "job", "reordered", "retransmitted"), rows)
        + "\n\nReordered: arrived after a packet of the same flow that was sent later,"
        " retransmissions apart."
    )


def _source(source: TrafficSource) -> str:
    flows = source.flows
    pairs = source.pairs
    if isinstance(flows, Schedule):
        what = f"{len(flows.flows)} scheduled flows"
    else:
        what = f"{flows.name}, {_number(flows.load_bps / 1e6)} Mbit/s"
    ways = ", ".join(f"{src} to {dst}" for src, dst in pairs[:_SHOWN_PAIRS])
    if len(pairs) > _SHOWN_PAIRS:
        more = f" and {len(pairs) - _SHOWN_PAIRS} more pairs"
    else:
        more = ""
    return f"{what}, {ways}{more}"


def _cross_traffic(scenario: Scenario, by_policy: Mapping[str, Any], labels: Sequence[str]) -> str:
    header = (
        "source",
        "policy",
        "flows",
        "unfinished",
        "failed",
        "offered (Mbit/s)",
        "achieved (Mbit/s)",
        "mean completion (s)",
        "median (s)",
        "99 % (s)",
    )

    def completion(summary: Mapping[str, Any], which: str) -> str:
        value = summary[f"{which}_completion_s"]
        return _NONE if value is None else _measured(value)

    rows = []
    for source in scenario.traffic:
        for label in labels:
            summary = by_policy[label]["traffic"].get(source.name)
            if summary is None:
                continue
            rows.append(
                (
                    source.name,
                    label,
                    *(str(summary[key]) for key in ("flows", "unfinished", "failed")),
                    *(_measured(summary[f"{key}_bps"] / 1e6) for key in ("offered", "achieved")),
                    *(completion(summary, which) for which in ("mean", "p50", "p99")),
                )
            )
    return (
        _table(header, rows)
        + f"\n\nAll policies are compared over the same time: {_window(by_policy)}. Loads are of"
        " payload. Completion times are those of flows that finished in it, from their scheduled"
        " start to their last byte's arrival; they say little if many are unfinished."
    )


def _window(by_policy: Mapping[str, Any]) -> str:
    """Return the time over which cross traffic is compared, in words."""
    summaries = [summary for of in by_policy.values() for summary in of["traffic"].values()]
    if not summaries:
        return "none"
    begin, end = (_measured(summaries[0][key]) for key in ("from_s", "to_s"))
    return f"from {begin} to {end} s, the end of the shortest run"


def _switches(by_policy: Mapping[str, Any], labels: Sequence[str]) -> str:
    columns = ("packets_in", "packets_out", "packets_dropped", "entries", "digests")
    rows = [
        (label, switch, *(str(stats[column]) for column in columns))
        for label in labels
        for switch, stats in sorted(by_policy[label]["switches"].items())
    ]
    return _table(("policy", "switch", *(column.replace("_", " ") for column in columns)), rows)


def _reading(
    scenario: Scenario, by_policy: Mapping[str, Any], runs: Mapping[str, PolicyRun]
) -> str:
    labels = list(runs)
    points = [
        (
            "One run of each policy, the same each time it is repeated. Other start times or"
            " fabrics may differ."
        ),
        (
            "Every finished iteration counts, the first ones included, in which jobs have not yet"
            " found their rhythm."
        ),
    ]
    if scenario.until == "all-done":
        counts = "; ".join(
            f"{label}"
            f" {', '.join(str(len(job['iteration_times_s'])) for job in _in_order(scenario, by_policy[label]))}"
            for label in labels
        )
        points.append(
            "Faster jobs go on until the slowest is done, so a job may do more iterations under"
            f" one policy than under another. Iterations by job: {counts}."
        )
    if any(spec.recognition.by == "bytes" for spec in scenario.specs.values()):
        points.append(
            "Sizes of jobs over TCP and RoCE are payload: what they need alone is computed without"
            " headers, so that their slowdown has the headers in it."
        )
    if any(run.observed for run in runs.values()):
        points.append(
            "The workers of some jobs are programs. Their iterations were measured in their ranks."
            " The time that they take alone is computed from their descriptions."
        )
    if not any(by_policy[label]["switches"] for label in labels):
        points.append(
            "This target has no packets, switches or controller: it executes each plan as the"
            " queues of switches would. Rates change at once, and link delays are left out. A"
            " policy marked 'ideal' has the rates that it would give if switches had a queue for"
            " each flow; the difference is what levels and queues cost."
        )
    return "\n".join(f"- {point}" for point in points)


def _in_order(scenario: Scenario, policy: Mapping[str, Any]) -> list[Any]:
    return [policy["jobs"][job.name] for job in scenario.jobs]


def _mean_iteration_s(job: Mapping[str, Any]) -> float:
    return fmean(job["iteration_times_s"])


def _mean(values: Sequence[float]) -> str:
    return _measured(fmean(values)) if values else _NONE


def _number(value: float) -> str:
    """Return a setting as people write it."""
    return f"{value:.10g}"


def _measured(value: float) -> str:
    """Return four significant digits, zeros at the end included, but all digits before the
    point.
    """
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:#.4g}"


def _change(percent: float) -> str:
    if abs(percent) > _UNCHANGED_PERCENT:
        return f"{percent:+.1f} %"
    return "0.0 %"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(header), "|" + " --- |" * len(header), *(line(row) for row in rows)])


def _version() -> str:
    try:
        return metadata.version("echelon-p4")
    except metadata.PackageNotFoundError:
        return "(not installed)"
