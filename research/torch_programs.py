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
        taken = []
        for file in self._results(out):
            results = json.loads(file.read_text())["results"]
            first = results["echelon"]["plans"][0]
            taken.append(first["plan"])
        return taken

    def runs(self, out: Path) -> list[dict[str, dict[str, float]]]:
        """Return the mean iteration time of each job by policy, of each run."""
        return [times_s(file) for file in self._results(out)]

    def _results(self, out: Path) -> list[Path]:

        def number(file: Path) -> tuple[int, Path]:
            # run-10 comes after run-9.
            return len(str(file)), file

        files = out.glob(f"{self.name}/run-*/results.json")
        return sorted(files, key=number)

    def foreseen(self, out: Path) -> dict[str, dict[str, float]]:
        """Return the mean iteration time of each job by policy, as a fluid."""
        fluid = out / self.name.removesuffix("-polled") / "fluid"
        self.measure(fluid, "--target", "fluid")
        return times_s(fluid / "results.json")

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
            command = [sys.executable, "-m", "echelon", "run", str(file), "-o", str(out)]
            command += options
            for policy in self.policies:
                command += ["--policy", policy]
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
    means = {}
    by_policy = json.loads(results.read_text())["results"]
    for policy, outcome in by_policy.items():
        jobs = outcome["jobs"]
        means[policy] = {name: fmean(job["iteration_times_s"]) for name, job in jobs.items()}
    return means


def scenario(file: Path) -> dict[str, Any]:
    """Return a scenario, whose fabric is in it, and whose files are named by whole paths."""
    document: dict[str, Any] = yaml.safe_load(file.read_text())
    folder = file.resolve().parent
    for job in document["jobs"]:
        job["file"] = str(folder / job["file"])
    if isinstance(document["fabric"], str):
        fabric_file = folder / document["fabric"]
        document["fabric"] = yaml.safe_load(fabric_file.read_text())
    commands = document["commands"]
    for job, command in commands.items():
        words = command.split()
        for place, word in enumerate(words):
            if word.endswith(".py"):
                words[place] = str(folder / word)
        commands[job] = " ".join(words)
    return document


def with_jobs(
    document: Mapping[str, Any],
    names: Sequence[str],
    polled: bool = False,
) -> dict[str, Any]:
    """Return the scenario with these jobs, in the places and at the starts of its first ones."""
    jobs = []
    commands = {}
    hosts: set[str] = set()
    places = zip(names, document["jobs"], strict=False)
    for number, (name, place) in enumerate(places, start=1):
        [job] = [each for each in document["jobs"] if each["job"] == name]
        unique = name if names.count(name) == 1 else f"{name}-{number}"
        placed = dict(job)
        placed.pop("start", None)
        placed["job"] = unique
        placed["workers"] = place["workers"]
        placed["start"] = place.get("start", 0)
        jobs.append(placed)
        hosts.update(place["workers"])
        words = document["commands"][name].split()
        if polled:
            words = [f"{POLLED} {word}" if word.endswith(".py") else word for word in words]
        commands[unique] = " ".join(words)
    fabric = _part_of(document["fabric"], hosts)
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
    switches = {*fabric["switches"]}
    links = []
    for link in fabric["links"]:
        if switches.issuperset(link["between"]):
            links.append({**link, "rate": f"{mbps} Mbit/s"})
        else:
            links.append(link)
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
    cases = []
    for rate in options.rates.split(","):
        for name in names:
            program = with_jobs(document, [name])
            case = Case(f"alone-{name}-{rate}", at_rate(program, rate), ["fair"])
            cases.append(case)
    rounds(options, cases)
    print(
        "| program | Mbit/s | runs | measured, s | predicted, s | error"
        " |\n|---|---|---|---|---|---|"
    )
    for case in cases:
        runs = case.runs(options.out)
        if not runs:
            continue
        measured: list[float] = []
        for times in runs:
            measured += times["fair"].values()
        [predicted] = case.foreseen(options.out)["fair"].values()
        _, name, rate = case.name.split("-")
        mean = fmean(measured)
        spread = f"{mean:.3f} ({min(measured):.3f} to {max(measured):.3f})"
        error = predicted / mean - 1
        print(f"| {name} | {rate} | {len(runs)} | {spread} | {predicted:.3f} | {error:+.1%} |")


def pairs(options: argparse.Namespace, document: Mapping[str, Any]) -> None:
    """Measure each pair under each policy and each of its programs alone, and print what is gained
    and foreseen.
    """
    pairs_of_names = options.names or PAIRS.split(",")
    policies = options.policies.split(",")
    cases = []
    single = {}
    for pair in pairs_of_names:
        programs = pair.split("+")
        for name in programs:
            single[name] = Case(f"alone-{name}", with_jobs(document, [name]), ["fair"])
        if options.polled in ("no", "both"):
            cases.append(Case(pair, with_jobs(document, programs), policies))
        if options.polled in ("yes", "both"):
            polled = with_jobs(document, programs, polled=True)
            cases.append(Case(f"{pair}-polled", polled, policies))
    rounds(options, [*single.values(), *cases])
    columns = ["alone", *policies, "change", "planned", "fluid", "verdict"]
    print(f"| pair | runs | job | {' | '.join(columns)} |\n{'|---' * (3 + len(columns))}|")
    for case in cases:
        runs = case.runs(options.out)
        if not runs:
            continue
        foreseen = case.foreseen(options.out)
        alone_s = []
        for name in case.name.removesuffix("-polled").split("+"):
            single_runs = single[name].runs(options.out)
            alone_s.append(fmean(run["fair"][name] for run in single_runs))
        promised = case.promised()
        taken = [promised[plan] for plan in case.plans(options.out)]
        planned = {}
        for job, fair in promised["fair"].items():
            slowdown = fmean(plan[job] for plan in taken)
            planned[job] = slowdown / fair - 1
        for row in rows(case.name, runs, foreseen, planned, alone_s):
            print(row)


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
    means: dict[str, dict[str, float]] = {}
    for policy, first_times in runs[0].items():
        means[policy] = {}
        for job in first_times:
            times = [run[policy][job] for run in runs]
            means[policy][job] = fmean(times)
    changes = _changes(means)
    simulated_changes = _changes(foreseen)
    for (job, change), job_alone_s in zip(changes.items(), alone_s, strict=True):
        each = " | ".join(f"{by_job[job]:.3f}" for by_job in means.values())
        simulated = simulated_changes[job]
        if change <= WORSE:
            verdict = ""
        elif change <= WORSE + planned[job]:
            verdict = "worse, as planned"
        else:
            verdict = "worse"
        figures = f"{change:+.1%} | {planned[job]:+.1%} | {simulated:+.1%}"
        alone_text = f"{job_alone_s:.3f}"
        yield f"| {name} | {len(runs)} | {job} | {alone_text} | {each} | {figures} | {verdict} |"
    change = _mean_change(means)
    simulated = _mean_change(foreseen)
    if -simulated <= FORESEEN:
        verdict = ""
    else:
        holds = "holds" if change <= SHARE * simulated else "fails"
        verdict = f"{holds}: {change / simulated:.0%} of it"
    each = " | ".join(f"{fmean(by_job.values()):.3f}" for by_job in means.values())
    yield (
        f"| {name} | | mean | {fmean(alone_s):.3f} | {each} | {change:+.1%} | | {simulated:+.1%} |"
        f" {verdict} |"
    )


def _changes(times: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the change of each job from fair to echelon."""
    echelon = times["echelon"]
    return {job: echelon[job] / fair_s - 1 for job, fair_s in times["fair"].items()}


def _mean_change(times: Mapping[str, Mapping[str, float]]) -> float:
    echelon_s = fmean(times["echelon"].values())
    fair_s = fmean(times["fair"].values())
    return echelon_s / fair_s - 1


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
    policies = options.policies.split(",")
    if "fair" not in policies or "echelon" not in policies:
        parser.error("--policies needs fair and echelon, which are compared")
    if options.scenario is None:
        name = "torch_programs_10" if options.target == "bmv2" else "torch_programs"
        options.scenario = SCENARIOS / f"{name}.yaml"
    document = scenario(options.scenario)
    document.update(yaml.safe_load(options.set))
    if options.programs == "alone":
        alone(options, document)
    else:
        pairs(options, document)


if __name__ == "__main__":
    main()
