"""The same jobs and fabric in MonkeyTree and here: `python -m research.monkeytree DIR` prints the
tables of research/notebook/monkeytree.md.

DIR has three programs of hipersys-team/MonkeyTree (commit 536f589): golden_spine, compat and
spine_snapshot_cassini. Each job is a ring: its workers compute, each sends to the next one, and an
iteration ends when all have received. All links have one rate, and all jobs start together, since
MonkeyTree places no other jobs where it is told. Ratios are to `fair` in the same simulator, over
the paths that MonkeyTree's hash chooses, and each is the mean over jobs, then cases.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean

from echelon.model.fabric.builders import LINK_BPS, leaf_spine
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser, Routes
from echelon.model.jobs import build_job
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Job
from echelon.model.jobs.spec import JobSpec
from echelon.model.quantities import duration_s as seconds_of
from echelon.model.quantities import size_bytes
from echelon.planning.execution import duration_s
from echelon.planning.fluid import simulate
from echelon.planning.policies import make_policy
from echelon.planning.policies.crux.routes import LeastCongested
from echelon_lab.evaluation.draw import draw
from echelon_lab.scenarios.scenario import PolicyChoice

ITERATIONS = 100
"""The number that spine_snapshot_cassini has built in."""
COMPAT_ITERATIONS = 1000
RATE_BPS = 400 * 10**9
"""The rate of golden_spine's links, and of ours."""
SLOW_BPS = 50 * 10**9
"""The rate of the links of the other two programs, whose jobs get an eighth of the bytes."""
SEEDS = (2, 4, 14, 56, 64, 126, 140, 154, 156, 168, 224, 230)
"""The first scenarios of the tuning half whose jobs are all data-parallel."""

Times = Mapping[int, float]
"""Mean iteration time in seconds by number of job; a job that never ends is absent."""


@dataclass(frozen=True, slots=True)
class Ring:
    """A job on these hosts, counted from 0 leaf by leaf."""

    hosts: tuple[int, ...]
    compute_us: int
    send_us: int
    """Microseconds for which a flow of the ring takes a whole link."""

    def model_bytes(self, rate_bps: int) -> int:
        """Return the size of the model whose all-reduce sends that much, in whole chunks, to a few
        bytes.
        """
        workers = len(self.hosts)
        sent_bytes = Fraction(self.send_us * rate_bps, 8 * 10**6)
        chunk_bytes = sent_bytes / (2 * (workers - 1))
        return workers * round(chunk_bytes)


@dataclass(frozen=True, slots=True)
class Case:
    """Jobs on a leaf-spine fabric with six hosts at each leaf."""

    family: str
    leaves: int
    spines: int
    rings: tuple[Ring, ...]


def pairs(*times_us: tuple[int, int]) -> Case:
    """Return jobs of two workers each, at either end of one link; compat has this fabric."""
    rings = []
    for number, times in enumerate(times_us):
        hosts = (number, number + 6)
        rings.append(Ring(hosts, *times))
    return Case("pairs", 2, 1, tuple(rings))


def rings(workers: int, *times_us: tuple[int, int]) -> Case:
    """Return jobs with a worker at each of the first `workers` leaves; spine_snapshot_cassini has
    this fabric.
    """
    jobs = []
    for number, times in enumerate(times_us):
        hosts = tuple(range(number, 6 * workers, 6))
        jobs.append(Ring(hosts, *times))
    return Case("rings", 6, 3, tuple(jobs))


def at_one_link(*times_us: tuple[int, int]) -> Case:
    """Return two pairs of hosts whose paths by the hash have exactly one link in common."""
    first_us, second_us = times_us
    first = Ring((0, 6), *first_us)
    second = Ring((1, 14), *second_us)
    return Case("one link", 6, 3, (first, second))


def drawn(seed: int) -> Case:
    """Return a drawn scenario, with its jobs on hosts of their own of MonkeyTree's fabric."""
    scenario = draw(seed)
    assert scenario.kind.shape == "data"
    count = sum(len(job["workers"]) for job in scenario.jobs)
    hosts = Random(f"monkeytree {seed}").sample(range(36), count)
    rings = []
    for job in scenario.jobs:
        workers = len(job["workers"])
        section = job["data"]
        gradient_bytes = size_bytes(section["gradient"])
        gradient_s = Fraction(8 * gradient_bytes, LINK_BPS)
        sent_s = gradient_s * 2 * (workers - 1) / workers
        compute_s = seconds_of(section["compute"])
        members = sorted(hosts[:workers])
        hosts = hosts[workers:]
        ring = Ring(tuple(members), round(compute_s * 10**6), round(sent_s * 10**6))
        rings.append(ring)
    return Case("random", 6, 3, tuple(rings))


def cases() -> list[Case]:
    """Return all cases. Times are microseconds of computing and of sending alone."""
    fits = (60_000, 40_000)
    full = (40_000, 60_000)
    return [
        pairs(fits, fits),
        pairs(full, full),
        pairs((30_000, 10_000), (50_000, 10_000)),
        pairs((100_000, 100_000), (200_000, 100_000)),
        pairs((70_000, 30_000), (70_000, 30_000), (140_000, 30_000)),
        pairs((80_000, 20_000), (160_000, 40_000), (320_000, 80_000), (50_000, 20_000)),
        at_one_link((300_000, 100_000), (300_000, 100_000)),
        at_one_link((300_000, 100_000), (400_000, 100_000)),
        at_one_link((100_000, 100_000), (200_000, 100_000)),
        rings(4, *(fits,) * 4),
        rings(6, *(full,) * 4),
        rings(2, fits, full, (100_000, 100_000), (200_000, 100_000)),
        rings(
            6, fits, (80_000, 20_000), (160_000, 40_000), full, (300_000, 100_000), (50_000, 20_000)
        ),
        *map(drawn, SEEDS),
    ]


# What MonkeyTree reads and prints.


def write(
    case: Case,
    directory: Path,
    rate_bps: int,
) -> None:
    """Write a job file for each job, placement.txt, an empty trace.txt, and compat.txt."""
    jobs = directory / "jobs"
    jobs.mkdir()
    count = str(len(case.rings))
    numbers = [count]
    times = [count]
    job_by_host: dict[int, int] = {}
    for number, ring in enumerate(case.rings):
        job_file = jobs / f"j{number}.yaml"
        job_file.write_text(
            f'name: "j{number}"\nmodel_size_bytes: {ring.model_bytes(rate_bps)}\n'
            f"steps:\n  - !compute\n    duration_us: {ring.compute_us}\n  - !all_reduce {{}}\n"
        )
        numbers.append(f"{number}: {len(ring.hosts)} j{number} {ITERATIONS}")
        times.append(f"1 {ring.compute_us} {ring.send_us}")
        for host in ring.hosts:
            job_by_host[host] = number

    placement = [*numbers, "", "Placement"]
    for host, number in sorted(job_by_host.items()):
        placement.append(f"{host}: {number}")
    _write_lines(directory / "placement.txt", placement)
    _write_lines(directory / "trace.txt", ["0"])
    _write_lines(directory / "compat.txt", times)


def _write_lines(file: Path, lines: Iterable[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines))


def read(output: str, iterations: int) -> Times:
    """Return the times of the jobs that have ended."""
    ended = re.findall(r"JobComplete (\d+) .* real_runtime=(\d+)us", output)
    times = {}
    for number, runtime_us in ended:
        runtime_s = int(runtime_us) / 10**6
        times[int(number)] = runtime_s / iterations
    return times


@dataclass(frozen=True, slots=True)
class MonkeyTree:
    """The directory of its programs."""

    programs: Path

    def golden(self, system: str, case: Case) -> Times:
        """Return the times under a system of golden_spine, with the workers of `case` in place."""
        fabric = [str(case.spines), str(6 * case.leaves), "0", "0", "6"]
        output = self._output(
            case,
            RATE_BPS,
            "golden_spine",
            "trace.txt",
            system,
            "0",
            "1",
            "0",
            *fabric,
            "placement.txt",
        )
        return read(output, ITERATIONS)

    def compat(self, allocator: str, case: Case) -> Times:
        """Return the times under an allocator of compat."""
        output = self._output(case, SLOW_BPS, "compat", "compat.txt", allocator)
        return read(output, COMPAT_ITERATIONS)

    def cassini(self, case: Case) -> tuple[Times, str]:
        """Return the times under CASSINI, and what it did with the jobs at the beginning."""
        output = self._output(case, SLOW_BPS, "spine_snapshot_cassini", "placement.txt")
        first = output.split("JobComplete")[0]
        times = read(output, ITERATIONS)
        if "cannot install schedule" in first:
            return times, "refused: a loop"
        shifts = map(int, re.findall(r"shift=(\d+)", first))
        if not any(shifts):
            return times, "no shift"
        if len(times) < len(case.rings):
            return times, "shifted, a job stops"
        return times, "shifted"

    def _output(
        self,
        case: Case,
        rate_bps: int,
        program: str,
        *arguments: str,
    ) -> str:
        with tempfile.TemporaryDirectory() as directory:
            write(case, Path(directory), rate_bps)
            command = [str(self.programs / program), *arguments]
            return subprocess.run(
                command,
                cwd=directory,
                check=True,
                capture_output=True,
                text=True,
            ).stdout


# The same here.


def spine(
    src: int,
    dst: int,
    job: int,
    spines: int,
) -> int:
    """Return the spine that MonkeyTree's hash chooses: XXH64 of both hosts and the job, with seed
    42.
    """
    mask = 2**64 - 1
    p1, p2, p3, p4, p5 = (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
    )  # fmt: skip

    def rotated(value: int, bits: int) -> int:
        return (value << bits | value >> 64 - bits) & mask

    state = 42 + p5 + 16
    for lane in (src | dst << 32, job):
        mixed = rotated(lane * p2 & mask, 31) * p1
        state = rotated(state ^ mixed & mask, 27) * p1
        state = state + p4 & mask
    state = (state ^ state >> 33) * p2 & mask
    state = (state ^ state >> 29) * p3 & mask
    return (state ^ state >> 32) % spines


class Hashed:
    """A chooser of paths by MonkeyTree's ECMP (an `echelon.model.fabric.routing.PathChooser`)."""

    def __init__(self, spines: int) -> None:
        self._spines = spines

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> Mapping[str, Routes]:
        """Return the paths by job; job j1 is number 1."""
        by_job = {}
        for job in jobs:
            number = int(job.name[1:])
            by_job[job.name] = {ends: self._path(number, *ends) for ends in connections(job)}
        return by_job

    def _path(
        self,
        job: int,
        src: str,
        dst: str,
    ) -> tuple[str, ...]:
        up = int(src[1:]) - 1
        down = int(dst[1:]) - 1
        first_leaf = up // 6
        last_leaf = down // 6
        if first_leaf == last_leaf:
            return src, f"leaf{first_leaf + 1}", dst
        through = spine(up, down, job, self._spines)
        return src, f"leaf{first_leaf + 1}", f"spine{through + 1}", f"leaf{last_leaf + 1}", dst


def job(number: int, ring: Ring) -> Job:
    """Return a job for our engine: one flow from each worker to the next, as in MonkeyTree."""
    ranks = range(len(ring.hosts))
    nodes = [
        {"name": f"c{rank}", "rank": rank, "compute": f"{ring.compute_us} us"} for rank in ranks
    ]
    all_reduce = {
        "name": "sum",
        "collective": "all-reduce",
        "group": [*ranks],
        "bytes": f"{ring.model_bytes(RATE_BPS)} B",
        "after": [node["name"] for node in nodes],
    }
    workers = [f"h{host + 1}" for host in ring.hosts]
    graph = {"nodes": [*nodes, all_reduce]}
    document = {"job": f"j{number}", "parallelism": "graph", "workers": workers, "graph": graph}
    spec = JobSpec.model_validate(document)
    return build_job(spec)


def ours(
    case: Case,
    policy: str,
    chooser: PathChooser | None = None,
    *,
    ideal: bool = False,
) -> Times:
    """Return the times under a policy, over the paths of MonkeyTree's hash unless `chooser` or it
    chooses others.
    """
    oversubscription = Fraction(6, case.spines)
    leaves = leaf_spine(case.leaves, case.spines, 6, oversubscription, RATE_BPS)
    fabric = build_fabric(leaves)
    jobs = [job(number, ring) for number, ring in enumerate(case.rings)]
    choice = PolicyChoice.parse(policy)
    planner = make_policy(choice.name, **dict(choice.parameters))
    vars(planner)["plan"] = partial(planner.plan, paths=chooser or Hashed(case.spines))
    result = simulate(
        jobs,
        fabric,
        planner,
        ITERATIONS,
        until="exactly",
        ideal=ideal,
    )
    times = {}
    for number in range(len(jobs)):
        iterations = result.jobs[f"j{number}"].finished
        times[number] = fmean(float(duration_s(iteration)) for iteration in iterations)
    return times


# The tables.


def ratio(times: Times, base: Times) -> float | None:
    """Return the mean over jobs; None if one never ends."""
    if len(times) == len(base):
        return fmean(times[number] / base_s for number, base_s in base.items())
    return None


def difference(theirs: Times, ours: Times) -> float:
    """Return the largest relative difference of the times of a job."""
    ratios = [theirs[number] / time_s for number, time_s in ours.items()]
    return max(abs(ratio - 1) for ratio in ratios)


def mean(ratios: Iterable[float | None]) -> str:
    """Return the mean of those that there are, as text."""
    present = [value for value in ratios if value is not None]
    return f"{fmean(present):.3f}" if present else "–"


def crux_paths(case: Case, *, ideal: bool) -> Times:
    """Return the times of fair sharing over Crux's paths."""
    return ours(case, "fair", LeastCongested(), ideal=ideal)


OURS: Mapping[str, Callable[..., Times]] = {
    "Crux's paths, fair": crux_paths,
    "Crux's paths and levels": partial(ours, policy="crux"),
    "MLTCP": partial(ours, policy="mltcp"),
    "CASSINI": partial(ours, policy="cassini"),
}
THEIRS = {"Crux's paths, fair": "crux", "MLTCP": "mltcp"}
"""Systems of golden_spine."""
OF_PAIRS = ("mltcp_topo", "mltcp_topo_bytes", "mltcp_topo_approx")
"""Allocators of compat."""


def main() -> None:
    monkeytree = MonkeyTree(Path(sys.argv[1]).resolve())
    families: defaultdict[str, list[Case]] = defaultdict(list)
    for case in cases():
        families[case.family].append(case)
    heads = [f"{family} ({len(members)}) | here" for family, members in families.items()]
    same = []
    schedules = []
    rows: dict[str, list[str]] = {name: [] for name in OURS}
    for family, members in families.items():
        their_fair = [monkeytree.golden("ecmp", case) for case in members]
        our_fair = {}
        for ideal in (True, False):
            our_fair[ideal] = [ours(case, "fair", ideal=ideal) for case in members]
        for name, run in OURS.items():
            theirs = "–"
            if name in THEIRS:
                golden = [monkeytree.golden(THEIRS[name], case) for case in members]
                theirs = mean(map(ratio, golden, their_fair))
            elif name == "CASSINI" and members[0].spines > 1:
                scheduled = [monkeytree.cassini(case) for case in members]
                cassini_times = [times for times, _ in scheduled]
                theirs = mean(map(ratio, cassini_times, their_fair))
                fates = Counter(fate for _, fate in scheduled)
                counts = ", ".join(f"{count} {fate}" for fate, count in fates.items())
                schedules.append(f"| {family} | {counts} |")
            both = []
            for ideal, fair in our_fair.items():
                times = [run(case, ideal=ideal) for case in members]
                both.append(mean(map(ratio, times, fair)))
            rows[name] += [theirs, " / ".join(both)]
        differences = sorted(map(difference, their_fair, our_fair[True]))
        close = sum(value < 1e-4 for value in differences)
        median = differences[len(differences) // 2]
        largest = differences[-1]
        same.append(
            f"| {family} | {len(members)} | {close} | {100 * median:.4f} % |"
            f" {100 * largest:.2f} % |"
        )
        if members[0].spines == 1:
            minmax = [monkeytree.compat("minmax", case) for case in members]
            for allocator in OF_PAIRS:
                times = [monkeytree.compat(allocator, case) for case in members]
                print(f"{allocator}: {mean(map(ratio, times, minmax))}")
    print(
        "| fair, same paths | cases | within 0.01 % | median | largest |\n|---|---|---|---|---|",
        *same,
        sep="\n",
    )
    print(f"| ratio to fair | {' | '.join(heads)} |\n|---{'|---' * 2 * len(heads)}|")
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |")
    print("| CASSINI there | what became of the schedule |\n|---|---|", *schedules, sep="\n")


if __name__ == "__main__":
    main()
