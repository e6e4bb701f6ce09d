"""report.md: what was run, the results, and what the figures leave out."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, TypeAlias

from echelon_lab.machine import version
from echelon_lab.scenarios.results import PolicyRun, Results
from echelon_lab.scenarios.scenario import Scenario, Transport
from echelon_lab.scenarios.traffic_spec import TrafficSource
from echelon_lab.tables import markdown_table, with_half_width
from echelon_lab.traffic.schedule import Schedule

Row: TypeAlias = tuple[str, str]
"""A setting and its value."""
JobChange: TypeAlias = tuple[str, float]
"""A job and by how many percent its iterations take longer."""

_UNCHANGED_PERCENT = 0.05
"""Smallest change shown, in percent; smaller ones would be shown as 0.0 %."""
ENDS = {"precise": "within 1 %", "budget": "budget spent"}
"""What ended a run that goes on until it is precise, by its key in results.json."""
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
        _plans(by_policy, labels),
        "## Jobs",
        _jobs(scenario, by_policy, labels),
        "## Tardiness",
        _tardiness(scenario, by_policy, labels),
        "## Pictures",
    ]
    parts += [f"![{name}]({name})" for name in pictures]
    parts.append("\n".join(f"- {note}" for note in notes))
    if not pictures:
        parts.append("Not drawn: matplotlib is not installed (`pip install 'echelon-p4[plot]'`).")
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


def _what_ran(
    scenario: Scenario,
    target: str,
    runs: Mapping[str, PolicyRun],
) -> str:
    rows = _main_settings(scenario, target, list(runs))
    rows += [("too small", note) for note in scenario.notes]
    rows += _coarse_jobs(scenario)
    rows += _disturbances(scenario)
    rows += _recognised_jobs(scenario)
    rows += _programs(scenario, runs)
    rows += _cross_traffic_settings(scenario)
    if scenario.queue_bytes is not None:
        rows.append(("queues", f"{scenario.queue_bytes} B each"))
    if scenario.ecn_threshold_packets is not None:
        rows.append(("ECN marks", f"from {scenario.ecn_threshold_packets} packets in a queue"))
    return markdown_table(("", ""), rows)


def _coarse_jobs(scenario: Scenario) -> Iterator[Row]:
    for name, together in scenario.together.items():
        if together > 1:
            yield "coarse", f"{together} iterations of {name} are simulated as one"


def _main_settings(
    scenario: Scenario,
    target: str,
    labels: Sequence[str],
) -> list[Row]:
    fabric = scenario.fabric
    transport = scenario.transport
    if scenario.precise_from is not None:
        budget = f"at most until the slowest job has done {scenario.iterations}"
        lasting = f"until the steady slowdown is within 1 %, {budget}"
    elif scenario.until == "exactly":
        lasting = f"{scenario.iterations} of each job"
    else:
        lasting = f"every job until the slowest has done {scenario.iterations}"
    retransmit_after = _number(float(transport.retransmit_after_s))
    return [
        ("scenario file", f"`{scenario.file.name}`"),
        ("target", target),
        ("policies", ", ".join(labels)),
        ("jobs", ", ".join(job.name for job in scenario.jobs)),
        ("iterations", lasting),
        ("fabric", f"{fabric.name}: {len(fabric.hosts)} hosts, {len(fabric.switches)} switches"),
        ("transport", f"packets of {transport.packet_bytes} B, {_window_text(transport)}"),
        ("retransmission", f"after {retransmit_after} s without acknowledgement"),
        ("seed", str(scenario.seed)),
        ("version", f"echelon-p4 {version()}, Python {platform.python_version()}"),
    ]


def _window_text(transport: Transport) -> str:
    if transport.window_packets is None:
        return "windows as each path needs"
    return f"window {transport.window_packets}"


def _disturbances(scenario: Scenario) -> list[Row]:
    """Return the rows of what makes the run worse: a slow or wrong controller, delays, traffic."""
    rows = []
    if scenario.control_latency_s:
        rows.append(("control latency", f"{_number(float(scenario.control_latency_s))} s"))
    stop_after = scenario.stop_controller_after_iteration
    if stop_after is not None:
        rows.append(("controller", f"stopped after iteration {stop_after} of every job"))
    if scenario.profile_error:
        percent = float(scenario.profile_error * 100)
        rows.append(("profile error", f"{percent:+.4g} % on what the controller believes"))
    for delay in scenario.delays:
        place = f"job {delay.job}, worker {delay.worker}, iteration {delay.iteration}"
        rows.append(("delay", f"{place}: {_number(float(delay.delay_s))} s longer"))
    for background in scenario.background:
        ends = f"{background.src} to {background.dst}"
        rate = f"{_number(background.rate_bps / 1e6)} Mbit/s"
        packets = f"packets of {background.packet_bytes} B"
        rows.append(("background", f"{background.name}: {ends}, {rate}, {packets}"))
    return rows


def _recognised_jobs(scenario: Scenario) -> list[Row]:
    """Return the rows of the jobs that switches recognise by bytes, over TCP and over RoCE."""
    over_tcp = []
    over_roce = []
    for name, spec in scenario.specs.items():
        recognition = spec.recognition
        if recognition.by != "bytes":
            continue
        if recognition.mtu is None:
            over_tcp.append(name)
        else:
            messages = f"messages of {scenario.transport.message_bytes} B"
            over_roce.append(("jobs over RoCE", f"{name}: MTU {recognition.mtu} B, {messages}"))

    rows = []
    if over_tcp:
        rows.append(("jobs over TCP", f"{', '.join(over_tcp)}: {_tcp(scenario)}"))
    return rows + over_roce


def _programs(scenario: Scenario, runs: Mapping[str, PolicyRun]) -> list[Row]:
    observed = {job for run in runs.values() for job in run.observed}
    programs = []
    for name, words in scenario.commands.items():
        if name in observed:
            programs.append(("program", f"{name}: `{shlex.join(words)}`"))
    return programs


def _cross_traffic_settings(scenario: Scenario) -> list[Row]:
    rows = []
    for source in scenario.traffic:
        protocol = "TCP"
        if source.ecn:
            protocol = "TCP with ECN"
        text = f"{source.name}: {_source(source)}, {protocol}, {_tcp(scenario)}"
        rows.append(("cross traffic", text))
    return rows


def _tcp(scenario: Scenario) -> str:
    transport = scenario.transport
    min_rto = _number(float(transport.min_rto_s))
    return f"segments of up to {transport.packet_bytes} B, time-out at least {min_rto} s"


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
        "steady slowdown (95 %)",
        "mean tardiness (s)",
        "max. tardiness (s)",
        "packets dropped",
        "packets reordered",
    )
    rows = []
    for label in labels:
        rows.append(_policy_row(label, by_policy[label], runs[label]))
    explanation = (
        "Slowdown is a job's mean iteration time divided by the least that it can"
        " take alone on its hosts, whatever the policy and the paths (fluid model). The steady"
        " slowdown leaves out the first third of the run; that of a much longer run lies within"
        " its 95 % interval in 95 of 100 cases (–: too few iterations to tell). Tardiness is"
        " that of EchelonFlows, over all iterations; it is negative when every flow came before"
        " its ideal finish time."
    )
    if len(scenario.jobs) > 1:
        explanation = f"Times are means over the jobs, each job counting once. {explanation}"
    return f"{markdown_table(header, rows)}\n\n{explanation}"


def _policy_row(
    label: str,
    policy: Mapping[str, Any],
    run: PolicyRun,
) -> tuple[str, ...]:
    jobs = policy["jobs"].values()
    switches = policy["switches"].values()
    steady = policy["steady"]
    slowdowns = [job["mean_slowdown"] for job in jobs]
    finishes_s = [job["compute_finish_s"] for job in jobs if job["compute_finish_s"] is not None]
    tardiness: list[float] = []
    for job in jobs:
        for echelonflow in job["echelonflows"].values():
            tardiness += echelonflow["tardiness_s"]

    dropped = reordered = _NONE
    if switches:
        dropped = str(sum(stats["packets_dropped"] for stats in switches))
        reordered = str(sum(run.reordered.values()))
    return (
        label,
        _mean(finishes_s),
        _mean([_mean_iteration_s(job) for job in jobs]),
        _measured(fmean(slowdowns)),
        _measured(max(slowdowns)),
        with_half_width(steady["mean_slowdown"], steady["half_width"]),
        _mean(tardiness),
        _measured(max(tardiness)) if tardiness else _NONE,
        dropped,
        reordered,
    )


def _plans(by_policy: Mapping[str, Any], labels: Sequence[str]) -> str:
    """Return the plans that policies have chosen, who judged them, and what was foreseen."""
    rows = []
    for label in labels:
        for plan in by_policy[label]["plans"]:
            row = (
                label,
                ", ".join(plan["jobs"]),
                plan["plan"],
                plan["judge"],
                _foreseen(plan["slowdowns"]),
                _foreseen(plan["by_model"] or plan["slowdowns"]),
            )
            rows.append(row)
    if not rows:
        return ""
    header = ("policy", "jobs", "plan", "judged by", "foreseen", "by the model")
    parts = [markdown_table(header, rows)]
    for label in labels:
        for plan in by_policy[label]["plans"]:
            if plan["unjudged"]:
                jobs = ", ".join(plan["jobs"])
                parts.append(
                    f"The model chose the plan of {jobs} under {label}: {plan['unjudged']}."
                )
    return "\n\n".join(parts)


def _foreseen(slowdowns: Mapping[str, float]) -> str:
    """Return the mean slowdown that a plan was chosen for."""
    if not slowdowns:
        return _NONE
    return _measured(fmean(slowdowns.values()))


def _jobs(
    scenario: Scenario,
    by_policy: Mapping[str, Any],
    labels: Sequence[str],
) -> str:
    first, *compared = labels
    header = ["job", "alone (s)", f"{first} (s)"]
    for label in compared:
        header += [f"{label} (s)", f"against {first}"]

    rows = []
    changes: dict[str, list[JobChange]] = {label: [] for label in compared}
    for job in scenario.jobs:
        measured = by_policy[first]["jobs"][job.name]
        before_s = _mean_iteration_s(measured)
        row = [job.name, _measured(measured["alone_iteration_s"]), _measured(before_s)]
        for label in compared:
            after_s = _mean_iteration_s(by_policy[label]["jobs"][job.name])
            percent = change_percent(before_s, after_s)
            changes[label].append((job.name, percent))
            row += [_measured(after_s), _change(percent)]
        rows.append(row)

    text = f"{markdown_table(header, rows)}\n\nMean time of an iteration.\n"
    for label in compared:
        text += f"\n- {_verdict(label, first, changes[label])}"
    return text.rstrip()


def _verdict(
    label: str,
    first: str,
    changes: Sequence[JobChange],
) -> str:
    by_percent = sorted(changes, key=_percent)
    faster = [change for change in by_percent if _percent(change) < -_UNCHANGED_PERCENT]
    slower = [change for change in by_percent if _percent(change) > _UNCHANGED_PERCENT]
    unchanged = len(changes) - len(faster) - len(slower)
    parts = []
    if faster:
        parts.append(f"faster: {_listed(faster)}")
    if slower:
        # The job that loses most stands first; jobs that lose the same stay in their order.
        worst_first = sorted(slower, key=_percent, reverse=True)
        parts.append(f"**slower: {_listed(worst_first)}**")
    if unchanged:
        parts.append(f"unchanged: {unchanged}")
    return f"{label} against {first}: {'; '.join(parts)}."


def _percent(change: JobChange) -> float:
    _, percent = change
    return percent


def _listed(changes: Iterable[JobChange]) -> str:
    return ", ".join(f"{name} ({_change(percent)})" for name, percent in changes)


def _tardiness(
    scenario: Scenario,
    by_policy: Mapping[str, Any],
    labels: Sequence[str],
) -> str:
    header = ["job", "EchelonFlow"]
    for label in labels:
        header += [f"{label}: mean (s)", "max. (s)"]
    rows = []
    for job in scenario.jobs:
        measured = []
        for label in labels:
            measured.append(by_policy[label]["jobs"][job.name]["echelonflows"])
        for h in job.echelonflows:
            # Ranks of programs tell when their operations end, not when flows do.
            if not all(h.name in echelonflows for echelonflows in measured):
                continue
            row = [job.name, h.name]
            for echelonflows in measured:
                values = echelonflows[h.name]["tardiness_s"]
                row += [_mean(values), _measured(max(values))]
            rows.append(row)
    if rows:
        return markdown_table(header, rows)
    return "No job has an EchelonFlow whose flows were measured."


def _packets(
    scenario: Scenario,
    labels: Sequence[str],
    runs: Mapping[str, PolicyRun],
) -> str:
    rows = []
    for label in labels:
        run = runs[label]
        for job in scenario.jobs:
            reordered = run.reordered.get(job.name, 0)
            retransmitted = run.retransmitted.get(job.name, 0)
            rows.append((label, job.name, str(reordered), str(retransmitted)))
    table = markdown_table(("policy", "job", "reordered", "retransmitted"), rows)
    return (
        f"{table}\n\nReordered: arrived after a packet of the same flow that was sent later,"
        " retransmissions apart."
    )


def _source(source: TrafficSource) -> str:
    flows = source.flows
    if isinstance(flows, Schedule):
        sent = f"{len(flows.flows)} scheduled flows"
    else:
        sent = f"{flows.name}, {_number(flows.load_bps / 1e6)} Mbit/s"
    pairs = source.pairs
    ways = ", ".join(f"{src} to {dst}" for src, dst in pairs[:_SHOWN_PAIRS])
    if len(pairs) > _SHOWN_PAIRS:
        ways += f" and {len(pairs) - _SHOWN_PAIRS} more pairs"
    return f"{sent}, {ways}"


def _cross_traffic(
    scenario: Scenario,
    by_policy: Mapping[str, Any],
    labels: Sequence[str],
) -> str:
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
    rows = []
    for source in scenario.traffic:
        for label in labels:
            summary = by_policy[label]["traffic"].get(source.name)
            if summary is not None:
                rows.append([source.name, label, *_traffic_cells(summary)])
    return (
        markdown_table(header, rows)
        + f"\n\nAll policies are compared over the same time: {_window(by_policy)}. Loads are of"
        " payload. Completion times are those of flows that finished in it, from their scheduled"
        " start to their last byte's arrival; they say little if many are unfinished."
    )


def _traffic_cells(summary: Mapping[str, Any]) -> list[str]:
    cells = [str(summary[key]) for key in ("flows", "unfinished", "failed")]
    cells += [_measured(summary[f"{load}_bps"] / 1e6) for load in ("offered", "achieved")]
    for statistic in ("mean", "p50", "p99"):
        completion_s = summary[f"{statistic}_completion_s"]
        cells.append(_NONE if completion_s is None else _measured(completion_s))
    return cells


def _window(by_policy: Mapping[str, Any]) -> str:
    """Return the time over which cross traffic is compared, in words."""
    for policy in by_policy.values():
        # All summaries are of the same time.
        for summary in policy["traffic"].values():
            begin = _measured(summary["from_s"])
            end = _measured(summary["to_s"])
            return f"from {begin} to {end} s, the end of the shortest run"
    return "none"


def _switches(by_policy: Mapping[str, Any], labels: Sequence[str]) -> str:
    columns = ("packets_in", "packets_out", "packets_dropped", "entries", "digests")
    rows = []
    for label in labels:
        for switch, stats in sorted(by_policy[label]["switches"].items()):
            rows.append([label, switch, *(str(stats[column]) for column in columns)])
    titles = [column.replace("_", " ") for column in columns]
    return markdown_table(["policy", "switch", *titles], rows)


def _reading(
    scenario: Scenario,
    by_policy: Mapping[str, Any],
    runs: Mapping[str, PolicyRun],
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
        counts = "; ".join(_iteration_counts(scenario, label, by_policy[label]) for label in labels)
        points.append(
            "Faster jobs go on until the slowest is done, so a job may do more iterations under"
            f" one policy than under another. Iterations by job: {counts}."
        )
    if scenario.precise_from is not None:
        ends = []
        for label in labels:
            ended = by_policy[label]["steady"]["ended"]
            ends.append(f"{label}: {ENDS[ended]}")
        points.append(f"What ended the runs: {', '.join(ends)}.")
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


def _iteration_counts(
    scenario: Scenario,
    label: str,
    policy: Mapping[str, Any],
) -> str:
    jobs = [policy["jobs"][job.name] for job in scenario.jobs]
    counts = ", ".join(str(len(job["iteration_times_s"])) for job in jobs)
    return f"{label} {counts}"


def _mean_iteration_s(job: Mapping[str, Any]) -> float:
    return fmean(job["iteration_times_s"])


def _mean(values: Sequence[float]) -> str:
    if values:
        return _measured(fmean(values))
    return _NONE


def _number(value: float) -> str:
    """Return a setting as people write it."""
    return f"{value:.10g}"


def _measured(value: float) -> str:
    """Return four significant digits, zeros at the end included.

    Of larger numbers all digits before the point stay.
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
