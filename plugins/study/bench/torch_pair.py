"""Two real training jobs on one bottleneck: each alone, then both under several policies, run after run.

`python -m plugins.study.bench.torch_pair OUT [OPTIONS]` needs root and PyTorch. It adds runs to those that the
directory has, and prints a table of all of them. Each run takes all policies in turn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
SCENARIO = ROOT / "topologies" / "scenarios" / "torch_ddp_pair.yaml"
PATIENCE_S = 900.0


def measure(options: argparse.Namespace, document: Mapping[str, Any], policies: Sequence[str], out: Path) -> None:
    """Run a scenario, and keep its results in `out`."""
    with TemporaryDirectory() as temporary:
        file = Path(temporary) / "scenario.yaml"
        file.write_text(yaml.safe_dump(dict(document), sort_keys=False))
        done = subprocess.run(
            [
                *(sys.executable, "-m", "echelon", "run", str(file), "--on", options.on, "--target", options.target),
                *("-o", str(out), *(word for policy in policies for word in ("--policy", policy))),
            ],
            timeout=PATIENCE_S,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        sys.exit(done.stderr)


def scenario(options: argparse.Namespace) -> dict[str, Any]:
    """Return the scenario, whose files are named by whole paths."""
    document: dict[str, Any] = yaml.safe_load(options.scenario.read_text())
    here = options.scenario.resolve().parent
    for job in document["jobs"]:
        job["file"] = str(here / job["file"])
    if isinstance(document["fabric"], str):
        document["fabric"] = str(here / document["fabric"])
    document["commands"] = {
        job: " ".join(str(here / word) if word.endswith(".py") else word for word in command.split())
        for job, command in document["commands"].items()
    }
    document |= yaml.safe_load(options.set)
    if options.start is not None:
        document["jobs"][-1]["start"] = options.start
    return document


def alone(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the scenario with one of its jobs."""
    jobs = [{**job, "start": 0} for job in document["jobs"] if job["job"] == name]
    return {**document, "jobs": jobs, "commands": {name: document["commands"][name]}}


def times_s(out: Path) -> dict[str, dict[str, float]]:
    """Return the mean iteration time of each job of a run, by policy."""
    found = json.loads((out / "results.json").read_text())["results"]
    return {
        policy: {name: fmean(job["iteration_times_s"]) for name, job in of["jobs"].items()}
        for policy, of in found.items()
    }


def show(options: argparse.Namespace, names: Sequence[str]) -> None:
    """Print the mean iteration times of all runs in the directory, and what they show."""
    alone_s = {name: times_s(options.out / f"alone-{name}")["fair"][name] for name in names}
    print("alone: " + ", ".join(f"{name} {time_s:.3f} s" for name, time_s in alone_s.items()))
    runs = {int(path.parent.name.removeprefix("run-")): path.parent for path in options.out.glob("run-*/results.json")}
    of_runs = {number: times_s(run) for number, run in sorted(runs.items())}
    policies = list(dict.fromkeys(policy for of in of_runs.values() for policy in of))
    columns = [(policy, name) for policy in policies for name in names]
    print("| run | " + " | ".join(f"{policy}: {name}" for policy, name in columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    in_order = 0
    means: dict[str, list[float]] = {policy: [] for policy in policies}
    worse: list[str] = []
    for run, of in of_runs.items():
        cells = [f"{of[policy][name]:.3f}" if policy in of else "" for policy, name in columns]
        print(f"| {run} | " + " | ".join(cells) + " |")
        for policy, measured in of.items():
            means[policy].append(fmean(measured.values()))
        in_order += means["echelon"][-1] < means["fair"][-1]
        worse += [
            f"{name} in run {run} ({of['echelon'][name] / of['fair'][name] - 1:+.1%})"
            for name in names
            if of["echelon"][name] > of["fair"][name]
        ]
    if not runs:
        return
    base, fair, echelon = fmean(alone_s.values()), fmean(means["fair"]), fmean(means["echelon"])
    print(f"means: alone {base:.3f}, " + ", ".join(f"{policy} {fmean(of):.3f}" for policy, of in means.items()))
    print(
        f"echelon against fair {echelon / fair - 1:+.1%}, against alone {echelon / base - 1:+.1%}; "
        f"in order (echelon < fair) in {in_order} of {len(runs)} runs"
    )
    print(f"slower under echelon than under fair: {', '.join(worse) or 'no job in any run'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=10, help="how many runs are added; 0: none")
    parser.add_argument("--policies", default="fifo,fair,echelon")
    parser.add_argument("--target", default="softswitch")
    parser.add_argument("--on", default="namespaces")
    parser.add_argument("--scenario", type=Path, default=SCENARIO)
    parser.add_argument("--start", help="when the last job begins, instead of the scenario's")
    parser.add_argument("--set", default="{}", help="keys of the scenario with other values, as YAML")
    options = parser.parse_args()
    document = scenario(options)
    names = [job["job"] for job in document["jobs"]]
    options.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        if not (options.out / f"alone-{name}" / "results.json").exists():
            measure(options, alone(document, name), ["fair"], options.out / f"alone-{name}")
    first = len(list(options.out.glob("run-*/results.json"))) + 1
    for number in range(first, first + options.runs):
        measure(options, document, options.policies.split(","), options.out / f"run-{number}")
    show(options, names)


if __name__ == "__main__":
    main()
