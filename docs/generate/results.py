"""The tables of docs/results.md, which `python -m docs.generate.results` writes anew.

All of them follow from the sources alone: from the fluid engine, from packets in virtual time, and
from files of the repository. The page marks the place of each table by its name. It takes about
a minute of one processor.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import echelon
from docs.generate.text import table, tables

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results.md"
PLACE = re.compile(r"<!-- results: (\w+) -->\n.*?<!-- results: end -->", re.DOTALL)

POLICIES = (
    "echelon",
    "mfs",
    "srpt",
    "mltcp",
    "sincronia",
    "varys",
    "aalo",
    "cassini",
    "fifo",
    "fair",
    "crux",
    "unfair",
)
ON_PACKETS = ("echelon", "srpt", "cassini", "fifo", "fair")
"""Policies that decide before a run, so that packets take seconds."""
PUBLISHED_LAST_S = {"fair": "8.5", "varys": "10", "echelon": "8"}
"""The end of the last computing in Fig. 2 of the paper."""
PUBLISHED_FLOWS_S = {"fair": "4.5, 6.5, 7", "varys": "7, 7, 7", "echelon": "3, 5, 7"}
"""The ends of the three flows in Fig. 2 of the paper."""

PIPELINES = ((2, 3), (2, 4), (2, 8), (3, 3), (3, 4), (3, 8), (4, 3), (4, 4), (4, 8))
ON_ONE_LINK = ("mix_dp4", "mix_dp6", "mix_dpsame4", "mix_mixed4", "mix_mixed6", "mix_pp6")
OTHERS = (
    "dp_pair",
    "overlap",
    "parameter_server",
    "pipedream",
    "pipeline_1f1b",
    "shared_link",
)
CHIPS = {
    "Tofino 1": "p4src/build/tna",
    "Tofino 2": "p4src/build/t2na",
    "Tofino 1, aggregation": "plugins/aggregation/echelon_aggregation/p4src/build/tna",
}
"""The folders of the compiled programs."""
RESOURCES = {
    "logical_tables": "logical tables",
    "sram_blocks": "SRAM blocks",
    "tcam_blocks": "TCAM blocks",
    "hash_distribution_units": "hash units",
    "stateful_and_meter_alus": "stateful ALUs",
}


def scenario(name: str) -> str:
    """Return the path of a scenario of the repository."""
    return str(ROOT / "topologies" / "scenarios" / f"{name}.yaml")


def slowdowns(name: str, policy: str, target: str) -> str:
    """Return the mean slowdown of a scenario's jobs, and that of the worst if there are several."""
    outcomes = list(echelon.simulate(scenario(name), [policy], target=target))
    values = [outcome.mean_slowdown for outcome in outcomes]
    mean = f"{fmean(values):.3f}"
    if len(values) == 1:
        return mean
    return f"{mean} / {max(values):.3f}"


def by_policy(names: Sequence[str], policies: Sequence[str], target: str) -> str:
    """Return a table of slowdowns with a row for each policy."""
    rows = [
        [f"`{policy}`", *(slowdowns(name, policy, target) for name in names)] for policy in policies
    ]
    return table(["policy", *(f"`{name}`" for name in names)], rows)


def fig2() -> str:
    """Return what Fig. 2 of the paper says, and what packets give."""
    compared = echelon.simulate(scenario("fig2"), list(PUBLISHED_LAST_S), target="softswitch")
    rows = []
    for policy, published in PUBLISHED_LAST_S.items():
        job = compared.results["results"][policy]["jobs"]["pipeline"]
        ends = [flow["finish_s"] for flow in job["flows"] if flow["iteration"] == 1]
        flows = ", ".join(f"{end:.3f}" for end in sorted(ends))
        last = f"{job['compute_finish_s']:.3f}"
        rows.append((f"`{policy}`", flows, PUBLISHED_FLOWS_S[policy], last, published))
    head = ("policy", "flows finish at", "published", "last computing ends at", "published")
    return table(head, rows)


def pipelines() -> str:
    """Return the slowdowns of pipelines alone."""
    rows = []
    for stages, micro_batches in PIPELINES:
        name = f"pipeline_{stages}_{micro_batches}"
        fluid = [slowdowns(name, policy, "fluid") for policy in PUBLISHED_LAST_S]
        packets = slowdowns(name, "echelon", "softswitch")
        rows.append((f"{stages}, {micro_batches}", *fluid, packets))
    policies = [f"`{policy}`" for policy in PUBLISHED_LAST_S]
    return table(("stages, micro-batches", *policies, "`echelon`, packets"), rows)


def one_link() -> str:
    return by_policy(ON_ONE_LINK, POLICIES, "fluid")


def other_scenarios() -> str:
    return by_policy(OTHERS, POLICIES, "fluid")


def packets() -> str:
    names = ("dp_pair", "shared_link", "mix_dp4", "mix_dp6", "mix_pp6")
    return by_policy(names, ON_PACKETS, "softswitch")


def printed(*command: str) -> str:
    """Return what a command prints, without its notes. Raises `CalledProcessError`."""
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def document(*arguments: str) -> Any:
    """Return the document that a command of `echelon` prints."""
    program = "from echelon.cli import main; main()"
    return json.loads(printed(sys.executable, "-c", program, *arguments, "--json"))


def training_runs() -> str:
    """Return the table of published training runs."""
    (runs,) = tables(printed(sys.executable, "-m", "research.published_runs"))
    return runs.replace(" |  |\n", " | |\n") + "\n"


def flow_sizes() -> str:
    """Return the means of the distributions of flow sizes."""
    rows = []
    for sizes in document("traffic", "sizes"):
        drawn, between = (f"{sizes['mean_bytes'][reading]:,.0f}" for reading in READINGS)
        rows.append((f"`{sizes['name']}`", drawn, between))
    return table(("`--sizes`", "mean, `points`, bytes", "mean, `linear`, bytes"), rows)


READINGS = ("points", "linear")


def aggregation_rates() -> str:
    """Return the rates of one job by the ways to add up, as fluids."""
    parts = []
    for rates in document("aggregation", "compare", "rate"):
        title = rates["title"].split(": ", 1)[1]
        parts.append(f"{title[0].upper()}{title[1:]}:\n\n{table(rates['columns'], rates['rows'])}")
    return "\n".join(parts)


def aggregation_packets() -> str:
    """Return the rates of one job by the ways to add up, packet by packet."""
    rates: dict[int, dict[str, str]] = {}
    for outcome in document("aggregation", "demo"):
        if outcome["values"] == 4096:
            rate = f"{outcome['rate_bps'] / 1e9:.2f}"
            rates.setdefault(outcome["workers"], {})[outcome["way"]] = rate
    ways = list(rates[2])
    rows = [(str(workers), *(of_way[way] for way in ways)) for workers, of_way in rates.items()]
    return table(("workers", *ways), rows)


def tofino() -> str:
    """Return what the compiled programs take of each chip."""
    reports: Mapping[str, Mapping[str, Any]] = {
        chip: json.loads((ROOT / folder / "resources.json").read_text())
        for chip, folder in CHIPS.items()
    }
    rows = [("stages", *(stages(report) for report in reports.values()))]
    for key, name in RESOURCES.items():
        rows.append((name, *(resource(report, key) for report in reports.values())))
    return table(("resource", *CHIPS), rows)


def stages(report: Mapping[str, Any]) -> str:
    return f"{len(report['stages'])} of {report['available']['stages']}"


def resource(report: Mapping[str, Any], key: str) -> str:
    """Return how much of a resource a program takes in all stages."""
    used = sum(stage[key] for stage in report["stages"])
    available = report["available"]["stages"] * report["available"]["per_stage"][key]
    return f"{used:,} of {available:,}"


TABLES: Mapping[str, Callable[[], str]] = {
    "fig2": fig2,
    "pipelines": pipelines,
    "one_link": one_link,
    "other_scenarios": other_scenarios,
    "packets": packets,
    "training_runs": training_runs,
    "flow_sizes": flow_sizes,
    "aggregation_rates": aggregation_rates,
    "aggregation_packets": aggregation_packets,
    "tofino": tofino,
}


def names(page: str) -> Iterator[str]:
    """Yield the names of the tables that a page has."""
    for place in PLACE.finditer(page):
        yield place[1]


def written(page: str) -> str:
    """Return the page with its tables made anew. Raises `KeyError` for one that nothing makes."""

    def made(place: re.Match[str]) -> str:
        text = TABLES[place[1]]()
        return f"<!-- results: {place[1]} -->\n\n{text}\n<!-- results: end -->"

    return PLACE.sub(made, page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
