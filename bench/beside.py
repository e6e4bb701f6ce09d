"""``python -m bench.beside [PATH] [--runs 5] [--only CASE]``: the service's speed, beside another
one's.

PATH is a checkout of another version, which is installed, editable and with its extra `dev`, in an
environment of its own in `PATH/.venv`. Both daemons are measured in turn, `--runs` times, with the
switches of this checkout. Each figure is printed as soon as it is measured; the last table has
medians over the runs, and their ratios.

Three cases: `flows`, acceptance of a job of 1,000 flows until the last entry on 32 switches;
`registered`, `--jobs` registered jobs: start, memory, one more job, a removal, a drain of a link,
and a restart; `drain`, a link that 1,000 jobs cross, until the last entry. With several numbers of
jobs (``--jobs 100 1000 10000``), each figure's growth is printed, too: the exponent of the jobs
between the fewest and the most.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench import bench_registered, bench_service
from bench.bench_registered import processor_s
from bench.growth import growth_exponent
from bench.service import LEAVES, SPINES, served
from tests.echelon.service.lab import Daemon, Process, ring

DRAINS = 3
CROSSING = 1000
POLL_S = 0.005
PATIENCE_S = 600.0
QUIET_S = 20.0
"""The time without changes before a service is killed: after half of it, it keeps its plan."""
FILL = """import asyncio, json, pathlib, sys
from tests.echelon.service.lab import fill_store
asyncio.run(fill_store(pathlib.Path(sys.argv[1]), json.load(sys.stdin)))"""
Figures = Iterator[tuple[str, float]]
Job = Mapping[str, Any]
SamplesByCount = dict[tuple[str, int], list[float]]
"""The values of one figure, by the version's name and the number of jobs."""


class Api:
    """The API of a version that may not be this one's, as plain JSON."""

    def __init__(self, url: str) -> None:
        server = urlsplit(url).netloc
        self._connection = http.client.HTTPConnection(server, timeout=PATIENCE_S)

    def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
    ) -> Any:
        """Return what the service answers; None where it refuses."""
        headers = {"Content-Type": "application/json"}
        if body is None:
            text = None
        else:
            text = json.dumps(body)
        self._connection.request(method, path, text, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status < 400:
            return json.loads(content or "null")
        return None

    def until(self, path: str, is_so: Callable[[Any], bool]) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not is_so(self("GET", path)):
            assert time.monotonic() < give_up_at, path
            time.sleep(POLL_S)

    def settle(self) -> None:
        self.until("/status", lambda status: bool(status and status["settled"]))

    def begin(self) -> None:
        """Wait until all switches hold the plan.

        A service that has no session yet is settled, too.
        """
        self.until(
            "/switches",
            lambda switches: (
                bool(switches) and all(switch["state"] == "ready" for switch in switches)
            ),
        )
        self.settle()

    def install(self, job: Job) -> float:
        """Register a job, and return the seconds from its acceptance to the last entry."""
        assert self("POST", "/jobs", job) is not None
        done = self("GET", f"/jobs/{job['job']}?wait_s={PATIENCE_S / 10:g}")
        assert done["state"] == "installed", done
        return float(done["timings"]["total_s"])

    def remove(self, job: Job) -> float:
        """Remove a job, and return the seconds until no switch has an entry of it."""
        began_s = time.monotonic()
        self("DELETE", f"/jobs/{job['job']}")
        self.settle()
        return time.monotonic() - began_s


@dataclass(frozen=True)
class Version:
    """A checkout, and the folder of the commands of its environment."""

    checkout: Path
    bin: Path


THIS = Version(Path(__file__).parents[1], Path(sys.executable).parent)


class _Daemon(Daemon):
    """The daemon of some version: nothing of it has been imported before it starts."""

    def __init__(self, config: Path, version: Version) -> None:
        self.config = config
        executable = str(version.bin / "echelon")
        command = (executable, "serve", "--config", str(config))
        Process.__init__(self, config.stem, *command, cwd=config.parent)


@contextmanager
def running(
    version: Version,
    jobs: list[dict[str, Any]],
) -> Iterator[tuple[_Daemon, float]]:
    """Run a version's daemon with these jobs in its store; yield it and the moment of its start."""
    began_s = 0.0

    def start(config: Path) -> _Daemon:
        nonlocal began_s
        for file in config.parent.glob("state.db*"):
            file.unlink()
        filling = [version.bin / "python", "-c", FILL, config.parent / "state.db"]
        subprocess.run(
            filling,
            input=json.dumps(jobs).encode(),
            check=True,
            cwd=version.checkout,
        )
        began_s = time.monotonic()
        return _Daemon(config, version)

    with served(
        start=start,
        limits={"jobs": 2 * max(1000, len(jobs))},
    ) as daemon:
        assert isinstance(daemon, _Daemon)
        yield daemon, began_s


def flows(
    version: Version,
    count: int,
    rounds: int,
) -> Figures:
    with running(version, []) as (daemon, _):
        api = Api(daemon.wait_listening())
        api.begin()

        def register_and_remove(job: Job) -> float:
            took_s = api.install(job)
            api.remove(job)
            return took_s

        label = f"job of {bench_service.FLOWS} flows"
        jobs = [bench_service.job(number) for number in range(rounds)]
        both = "its registration and removal"
        yield from _changes(label, both, register_and_remove, jobs, daemon.pid)


def registered(
    version: Version,
    count: int,
    rounds: int,
) -> Figures:
    jobs = [bench_registered.job(number) for number in range(count + rounds)]
    more_jobs = jobs[count:]
    with running(version, jobs[:count]) as (daemon, began_s):
        yield from _starts(daemon, began_s, "start")
        time.sleep(5.0)
        yield "memory of one job, kB", _resident_kb(daemon.pid) / count
        api = Api(daemon.wait_listening())

        def register(job: Job) -> float:
            took_s = api.install(job)
            # So that the next job does not wait for what this one still costs.
            api.settle()
            return took_s

        one_more = "one more job"
        yield from _changes(one_more, one_more, register, more_jobs, daemon.pid)
        yield from _changes("removal", "removal", api.remove, more_jobs, daemon.pid)

        drained_s = time.monotonic()
        before_s = processor_s(daemon.pid)
        drained = {"state": "drained", "force": False}
        api("PUT", "/links/leaf0/spine0", drained)
        api.settle()
        yield "drain, s", time.monotonic() - drained_s
        yield "drain, processor time, s", processor_s(daemon.pid) - before_s

        api("PUT", "/links/leaf0/spine0", {"state": "up"})
        api.settle()
        # A plan that holds for a while is kept for the next start.
        time.sleep(QUIET_S)

        # Switches keep their entries meanwhile, which the next daemon takes over.
        daemon.kill()
        began_s = time.monotonic()
        restarted = _Daemon(daemon.config, version)
        try:
            yield from _starts(restarted, began_s, "restart")
        finally:
            restarted.kill()


def _changes(
    label: str,
    cost_label: str,
    change: Callable[[Job], float],
    jobs: Sequence[Job],
    pid: int,
) -> Figures:
    """Make a change with each job; yield centiles of the times that it returns, and its cost."""
    took_s = []
    before_s = processor_s(pid)
    for job in jobs:
        took_s.append(change(job))
    spent_s = processor_s(pid) - before_s
    yield from _centiles(label, took_s)
    yield f"{cost_label}, processor time, ms", 1e3 * spent_s / len(jobs)


def _starts(
    daemon: _Daemon,
    began_s: float,
    label: str,
) -> Figures:
    """Wait for the first plan of a daemon that was started then, and for switches that hold it."""
    api = Api(daemon.wait_listening())
    api.until("/readyz", lambda ready: ready is not None)
    yield f"{label} to readiness, s", time.monotonic() - began_s
    yield f"{label} to readiness, processor time, s", processor_s(daemon.pid)
    api.begin()
    yield f"{label} to the last entry, s", time.monotonic() - began_s
    yield f"{label} to the last entry, processor time, s", processor_s(daemon.pid)


def drain(
    version: Version,
    count: int,
    rounds: int,
) -> Figures:
    jobs = []
    for number in range(CROSSING):
        leaf = 1 + number % (LEAVES - 1)
        computing_ms = 10 + number % 50
        workers = ["h0", f"h{leaf}"]
        jobs.append(ring(f"j{number}", workers, "4 MB", f"{computing_ms} ms"))
    with running(version, jobs) as (daemon, _):
        api = Api(daemon.wait_listening())
        api.begin()

        def turn(state_of_others: str, state_of_first: str) -> float:
            """Set the states of spine0's link and of the others; return how long the one set last
            took.
            """
            states = dict.fromkeys(range(1, SPINES), state_of_others)
            states[0] = state_of_first
            spines = sorted(states)
            # Links come up before others are drained.
            spines.sort(key=lambda spine: states[spine] == "drained")
            for spine in spines:
                state = states[spine]
                began_s = time.monotonic()
                wanted = {"state": state, "force": False}
                assert api("PUT", f"/links/leaf0/spine{spine}", wanted) is not None
                api.settle()
            return time.monotonic() - began_s

        took_s = []
        for _ in range(DRAINS):
            turn("drained", "up")
            turn("up", "up")
            took_s.append(turn("up", "drained"))
        yield f"drain of a link of {CROSSING} jobs, s", statistics.median(took_s)


def _centiles(label: str, took_s: list[float]) -> Figures:
    centiles = statistics.quantiles(
        took_s,
        n=100,
        method="inclusive",
    )
    yield f"{label}, p50, ms", centiles[49] * 1e3
    yield f"{label}, p99, ms", centiles[98] * 1e3


def _resident_kb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    _, _, behind_label = status.partition("VmRSS:")
    fields = behind_label.split()
    return float(fields[0])


Case = Callable[[Version, int, int], Figures]
CASES: Mapping[str, Case] = {
    "flows": flows,
    "registered": registered,
    "drain": drain,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "path",
        nargs="?",
        metavar="PATH",
        type=Path,
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=1,
    )
    parser.add_argument(
        "--jobs",
        type=int,
        nargs="+",
        default=[10_000],
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=bench_service.ROUNDS,
        help="changes of `flows` and `registered`",
    )
    parser.add_argument(
        "--only",
        choices=CASES,
        action="append",
    )
    options = parser.parse_args()
    versions = {"this": THIS}
    if options.path is not None:
        checkout = options.path.absolute()
        commands = checkout / ".venv" / "bin"
        versions["other"] = Version(checkout, commands)
    seen: dict[str, dict[str, list[float]]] = defaultdict(dict)
    grown: dict[str, SamplesByCount] = defaultdict(dict)
    cases = options.only or CASES
    for run in range(options.runs):
        for case in cases:
            measure = CASES[case]
            # In turns, so that neither always runs on a colder machine.
            names = list(versions)
            if run % 2 == 0:
                names.reverse()
            counts = options.jobs
            if case != "registered":
                counts = counts[:1]
            for name, count in product(names, counts):
                for figure, value in measure(versions[name], count, options.rounds):
                    label = figure
                    if case == "registered":
                        label = f"{count} jobs: {figure}"
                    print(f"run {run + 1}, {name}: {label}: {value:.3g}", flush=True)
                    seen[label].setdefault(name, []).append(value)
                    grown[figure].setdefault((name, count), []).append(value)
    print("\n| | this | other | ratio |\n|---|---|---|---|")
    for label, by_version in seen.items():
        this = statistics.median(by_version["this"])
        other = "|"
        if "other" in by_version:
            median = statistics.median(by_version["other"])
            other = f"{median:.3g} | {this / median:.2f}"
        print(f"| {label} | {this:.3g} | {other} |")
    has_several = len(options.jobs) > 1
    if has_several and "registered" in cases:
        print_growth(grown, list(versions))


def print_growth(
    grown: Mapping[str, SamplesByCount],
    names: Sequence[str],
) -> None:
    """Print the exponent with which each figure grows from the fewest jobs to the most."""
    rules = "|---" * len(names)
    print(f"\n| exponent | {' | '.join(names)} |\n|---{rules}|")
    for figure, samples in grown.items():
        counts = [count for _, count in samples]
        fewest = min(counts)
        most = max(counts)
        if fewest == most:
            continue
        cells = []
        for name in names:
            before = statistics.median(samples[name, fewest])
            after = statistics.median(samples[name, most])
            exponent = growth_exponent((fewest, most), (before, after))
            if exponent is None:
                cells.append("-")
            else:
                cells.append(f"{exponent:.2f}")
        print(f"| {figure} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
