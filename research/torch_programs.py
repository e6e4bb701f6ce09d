"""Training programs that use PyTorch on one bottleneck, measured on real hosts beside what `fluid`
foresees.

`python -m research.torch_programs alone OUT` runs each program of a scenario alone, at several
rates of the bottleneck. `... pairs OUT` runs them two at a time, under several policies, and says
where a pair gains two thirds of what is foreseen, and whether a job that loses does so because the
plan that was taken says so. Both need root and PyTorch. They go round after round, leave out what
the directory has, and print a table of all that it has; `--runs 0` only prints.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from echelon.planning.policies.echelon.policy import Echelon
from echelon_lab.scenarios.scenario import load_scenario

ROOT = Path(__file__).resolve().parents[1]
SCENARIOS = ROOT / "topologies" / "scenarios"
POLLED = f"{ROOT / 'examples' / 'torch' / 'polled.py'} 0.2"
PAIRS = "accumulated+accumulated,accumulated+prefetch,mesh+prefetch,pipeline+pipeline"
PATIENCE_S = 1800.0
FORESEEN, SHARE, WORSE = 0.10, 2 / 3, 0.02
"""A foreseen gain that counts, the part of it that is to be measured, and what a job may lose."""


@dataclass(frozen=True)
class Case:
    """A scenario that is run several times."""

    name: str
    document: Mapping[str, Any]
    policies: Sequence[str]

    def promised(self) -> dict[str, dict[str, float]]:
        """Return the slowdown of each job under each plan that the service simulates, by the plan's
        name.
        """
        with TemporaryDirectory() as temporary:
            file = Path(temporary) / "scenario.yaml"
            file.write_text(yaml.safe_dump(dict(self.document), sort_keys=False))
            loaded = load_scenario(file)
        policy = Echelon(Echelon.Parameters(phases="unknown"))
        policy.best_plan(loaded.jobs, loaded.fabric)
        [choice] = [chosen.choice for chosen in policy.choices.values()]
        if choice is None:
            return {}
        return {each.candidate.label: dict(each.slowdowns) for each in choice.tried}

    def plans(self, out: Path) -> list[str]:
        """Return the plan that each run has taken under `echelon`."""
        return [
            json.loads(file.read_text())["results"]["echelon"]["plans"][0]["plan"]
            for file in self._results(out)
        ]

    def runs(self, out: Path) -> list[dict[str, dict[str, float]]]:
        """Return the mean iteration time of each job by policy, of each run."""
        return [times_s(file) for file in self._results(out)]

    def _results(self, out: Path) -> list[Path]:
        files = out.glob(f"{self.name}/run-*/results.json")
        # By number: run-10 comes after run-9.
        return sorted(files, key=lambda file: (len(str(file)), file))

    def measure(self, out: Path, *options: str) -> None:
        """Run the scenario, and keep its results in `out`, unless they are there."""
        if (out / "results.json").exists():
            return
        out.mkdir(parents=True, exist_ok=True)
        print(
            f"{out} (load {os.getloadavg()[0]:.1f})",
            file=sys.stderr,
            flush=True,
        )
        with TemporaryDirectory() as temporary:
            file = Path(temporary) / "scenario.yaml"
            file.write_text(yaml.safe_dump(dict(self.document), sort_keys=False))
            named = (word for policy in self.policies for word in ("--policy", policy))
            command = [sys.executable, "-m", "echelon", "run", str(file), "-o", str(out)]
            command += [*options, *named]
            done = subprocess.run(
                command,
                timeout=PATIENCE_S,
                capture_output=True,
                text=True,
            )
        if done.returncode:
            sys.exit(f"{out}: {done.stderr}")


def times_s(results: Path) -> dict[str, dict[str, float]]:
    """Return the mean iteration time of each job of a run, by policy."""
    by_policy = json.loads(results.read_text())["results"]
    return {
        policy: {name: fmean(job["iteration_times_s"]) for name, job in outcome["jobs"].items()}
        for policy, outcome in by_policy.items()
    }


def scenario(file: Path) -> dict[str, Any]:
    """Return a scenario, whose fabric is in it, and whose files are named by whole paths."""
    document: dict[str, Any] = yaml.safe_load(file.read_text())
    folder = file.resolve().parent
    for job in document["jobs"]:
        job["file"] = str(folder / job["file"])
    if isinstance(document["fabric"], str):
        document["fabric"] = yaml.safe_load((folder / document["fabric"]).read_text())
    document["commands"] = {
        job: " ".join(
            str(folder / word) if word.endswith(".py") else word for word in command.split()
        )
        for job, command in document["commands"].items()
    }
    return document


def with_jobs(
    document: Mapping[str, Any],
    names: Sequence[str],
    polled: bool = False,
) -> dict[str, Any]:
    """Return the scenario with these jobs, in the places and at the starts of its first ones."""
    jobs = []
    commands = {}
    for number, (name, place) in enumerate(zip(names, document["jobs"], strict=False)):
        [job] = [each for each in document["jobs"] if each["job"] == name]
        unique = name if names.count(name) == 1 else f"{name}-{number + 1}"
        placed = dict(job)
        placed.pop("start", None)
        placed["job"] = unique
        placed["workers"] = place["workers"]
        placed["start"] = place.get("start", 0)
        jobs.append(placed)
        words = document["commands"][name].split()
        if polled:
            words = [f"{POLLED} {word}" if word.endswith(".py") else word for word in words]
        commands[unique] = " ".join(words)
    fabric = _part_of(document["fabric"], {host for job in jobs for host in job["workers"]})
    return {**document, "fabric": fabric, "jobs": jobs, "commands": commands}


def _part_of(fabric: Mapping[str, Any], hosts: set[str]) -> dict[str, Any]:
    """Return the fabric with no other hosts than these."""
    ends = hosts | {*fabric["switches"]}
    links = [link for link in fabric["links"] if {*link["between"]} <= ends]
    present = [host for host in fabric["hosts"] if host in hosts]
    return {**fabric, "hosts": present, "links": links}


def at_rate(document: Mapping[str, Any], mbps: str) -> dict[str, Any]:
    """Return the scenario with another rate of the links between switches."""
    fabric = document["fabric"]
    between = {*fabric["switches"]}
    links = [
        {**link, "rate": f"{mbps} Mbit/s"} if {*link["between"]} <= between else link
        for link in fabric["links"]
    ]
    return {**document, "fabric": {**fabric, "links": links}}


def rounds(options: argparse.Namespace, cases: Sequence[Case]) -> None:
    """Run each case once, then each a second time, and so on."""
    for number in range(1, options.runs + 1):
        for case in cases:
            out = options.out / case.name / f"run-{number}"
            case.measure(out, "--on", options.on, "--target", options.target)


def alone(options: argparse.Namespace, document: Mapping[str, Any]) -> None:
    """Measure each program alone at each rate, and print it beside what its description takes."""
    names = options.names or [job["job"] for job in document["jobs"]]
    cases = [
        Case(f"alone-{name}-{rate}", at_rate(with_jobs(document, [name]), rate), ["fair"])
        for rate in options.rates.split(",")
        for name in names
    ]
    rounds(options, cases)
    print(
        "| program | Mbit/s | runs | measured, s | predicted, s | error"
        " |\n|---|---|---|---|---|---|"
    )
    for case in cases:
        if not (runs := case.runs(options.out)):
            continue
        case.measure(options.out / case.name / "fluid", "--target", "fluid")
        measured = [time_s for times in runs for time_s in times["fair"].values()]
        [predicted] = times_s(options.out / case.name / "fluid" / "results.json")["fair"].values()
        _, name, rate = case.name.split("-")
        spread = f"{fmean(measured):.3f} ({min(measured):.3f} to {max(measured):.3f})"
        error = predicted / fmean(measured) - 1
        print(f"| {name} | {rate} | {len(runs)} | {spread} | {predicted:.3f} | {error:+.1%} |")


def pairs(options: argparse.Namespace, document: Mapping[str, Any]) -> None:
    """Measure each pair under each policy and each of its programs alone, and print what is gained
    and foreseen.
    """
    programs = [pair.split("+") for pair in options.names or PAIRS.split(",")]
    policies = options.policies.split(",")
    kinds = {"no": [False], "yes": [True], "both": [False, True]}[options.polled]
    cases = [
        Case("+".join(pair) + "-polled" * polled, with_jobs(document, pair, polled), policies)
        for pair in programs
        for polled in kinds
    ]
    names = dict.fromkeys(name for pair in programs for name in pair)
    single = {name: Case(f"alone-{name}", with_jobs(document, [name]), ["fair"]) for name in names}
    rounds(options, [*single.values(), *cases])
    columns = ["alone", *policies, "change", "planned", "fluid", "verdict"]
    print(f"| pair | runs | job | {' | '.join(columns)} |\n{'|---' * (3 + len(columns))}|")
    for pair, of_pair in groupby(cases, lambda case: case.name.removesuffix("-polled")):
        for case in of_pair:
            if runs := case.runs(options.out):
                case.measure(options.out / pair / "fluid", "--target", "fluid")
                foreseen = times_s(options.out / pair / "fluid" / "results.json")
                alone_s = [
                    fmean(run["fair"][name] for run in single[name].runs(options.out))
                    for name in pair.split("+")
                ]
                promised = case.promised()
                taken = [promised[plan] for plan in case.plans(options.out)]
                planned = {
                    job: fmean(plan[job] for plan in taken) / fair - 1
                    for job, fair in promised["fair"].items()
                }
                print("\n".join(rows(case.name, runs, foreseen, planned, alone_s)))


def rows(
    name: str,
    runs: Sequence[Mapping[str, Mapping[str, float]]],
    foreseen: Mapping[str, Mapping[str, float]],
    planned: Mapping[str, float],
    alone_s: Sequence[float],
) -> Iterator[str]:
    """Yield a row for each job, and one for the pair.

    The change is from fair to echelon, and `planned` is what the plans that were taken say of it.
    """
    means = {
        policy: {job: fmean(run[policy][job] for run in runs) for job in times}
        for policy, times in runs[0].items()
    }
    changes = {job: means["echelon"][job] / means["fair"][job] - 1 for job in means["fair"]}
    for (job, change), one_s in zip(changes.items(), alone_s, strict=True):
        each = " | ".join(f"{times[job]:.3f}" for times in means.values())
        simulated = foreseen["echelon"][job] / foreseen["fair"][job] - 1
        if change <= WORSE:
            verdict = ""
        elif change <= WORSE + planned[job]:
            verdict = "worse, as planned"
        else:
            verdict = "worse"
        figures = f"{change:+.1%} | {planned[job]:+.1%} | {simulated:+.1%}"
        yield f"| {name} | {len(runs)} | {job} | {one_s:.3f} | {each} | {figures} | {verdict} |"
    change, simulated = (
        fmean(times["echelon"].values()) / fmean(times["fair"].values()) - 1
        for times in (means, foreseen)
    )
    if -simulated <= FORESEEN:
        verdict = ""
    else:
        verdict = (
            f"{'holds' if change <= SHARE * simulated else 'fails'}: {change / simulated:.0%} of it"
        )
    each = " | ".join(f"{fmean(times.values()):.3f}" for times in means.values())
    yield (
        f"| {name} | | mean | {fmean(alone_s):.3f} | {each} | {change:+.1%} | | {simulated:+.1%} |"
        f" {verdict} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", choices=["alone", "pairs"])
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "names",
        nargs="*",
        help="programs, or pairs as first+second (default: those of torch_programs)",
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=3,
        help="how many runs of each the directory is to have",
    )
    parser.add_argument(
        "--rates",
        default="50,100",
        help="of the bottleneck in Mbit/s, for programs alone",
    )
    parser.add_argument("--policies", default="fifo,fair,echelon")
    parser.add_argument(
        "--polled",
        choices=["no", "yes", "both"],
        default="no",
        help="each rank polls a store",
    )
    parser.add_argument("--target", default="softswitch")
    parser.add_argument("--on", default="namespaces")
    parser.add_argument(
        "--scenario",
        type=Path,
        help="default: torch_programs, for bmv2 torch_programs_10",
    )
    parser.add_argument(
        "--set",
        default="{}",
        help="keys of the scenario with other values, as YAML",
    )
    options = parser.parse_args()
    if not {"fair", "echelon"} <= {*options.policies.split(",")}:
        parser.error("--policies needs fair and echelon, which are compared")
    if options.scenario is None:
        options.scenario = SCENARIOS / f"torch_programs{'_10' * (options.target == 'bmv2')}.yaml"
    document = {**scenario(options.scenario), **yaml.safe_load(options.set)}
    if options.programs == "alone":
        alone(options, document)
    else:
        pairs(options, document)


if __name__ == "__main__":
    main()
