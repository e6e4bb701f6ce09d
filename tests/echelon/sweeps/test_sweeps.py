"""`echelon sweep`: the same results in one process, in several, and on a cluster that loses a worker."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import echelon
from echelon.cli import app
from echelon.points.cluster import DaskCluster
from echelon.points.tasks import Cluster
from echelon.progress import Unseen
from echelon.sweeps.run import SweepReport, sweep_into
from echelon.sweeps.spec import load_sweep

ROOT = Path(__file__).parents[3]
PATIENCE_S = 120.0
BASE = """
scenario: base
fabric: {fabric}
jobs:
  - {{job: a, parallelism: data, workers: [a1, b1], data: {{compute: 50 ms, gradient: 50 kB}}}}
  - {{job: b, parallelism: data, workers: [a2, b2], data: {{compute: 40 ms, gradient: 60 kB}}}}
policies: [fair]
iterations: 3
"""
SWEEP = """
sweep: small
scenario: base.yaml
vary:
  jobs[0].data.gradient: [20 kB, 80 kB]
  jobs[*].start: [0 s, 3 ms]
seeds: 2
policies: [fair, {policy: echelon, order: setf}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE.format(fabric=ROOT / "topologies/dumbbell_2.yaml"))
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return tmp_path / "sweep.yaml"


class Listener(Unseen):
    """A progress that calls a function when `last` runs are done."""

    def __init__(self, last: int, then: Callable[[], None]) -> None:
        self.runs = 0.0
        self._last, self._then = last, then

    def done(self, parts: float = 1, /) -> None:
        self.runs += parts
        if self.runs == self._last:
            self._then()


def run(file: Path, out: Path, workers: int | Cluster) -> SweepReport:
    return sweep_into(out, load_sweep(file), workers)


def tables(report: SweepReport) -> dict[str, str]:
    return {path.name: path.read_text() for path in report.files if path.suffix in (".csv", ".md")}


def test_every_variant_runs_under_every_policy_as_it_would_alone(file: Path, tmp_path: Path) -> None:
    report = run(file, tmp_path / "out", 0)
    rows = list(csv.DictReader((tmp_path / "out/jobs.csv").read_text().splitlines()))
    assert len(rows) == 2 * 2 * 2 * 2 * 2  # gradients, starts, seeds, policies, jobs
    assert len(report.overview.rows) == 2 * 2
    document = echelon.load_scenario(tmp_path / "base.yaml")
    for row in rows:
        jobs = [
            echelon.job(
                job=name,
                parallelism="data",
                workers=workers,
                start=row["jobs[*].start"],
                data={"compute": compute, "gradient": gradient},
            )
            for name, workers, compute, gradient in (
                ("a", ["a1", "b1"], "50 ms", row["jobs[0].data.gradient"]),
                ("b", ["a2", "b2"], "40 ms", "60 kB"),
            )
        ]
        fabric = echelon.load_fabric(ROOT / "topologies/dumbbell_2.yaml")
        alone = echelon.simulate(
            {"fabric": fabric, "jobs": jobs, "iterations": document.iterations, "seed": int(row["seed"])},
            [row["policy"]],
        )
        outcome = alone.outcome(row["policy"], row["job"])
        assert float(row["mean_s"]) == pytest.approx(outcome.mean_iteration_s, rel=1e-5)
        assert float(row["mean_slowdown"]) == pytest.approx(outcome.mean_slowdown, rel=1e-5)


def test_processes_give_the_same_tables_and_an_interrupted_sweep_continues(file: Path, tmp_path: Path) -> None:
    expected = tables(run(file, tmp_path / "one", 0))

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep_into(tmp_path / "two", load_sweep(file), 2, Listener(5, interrupt))
    kept = (tmp_path / "two/results.jsonl").read_text().splitlines()
    assert len(kept) == 5
    assert tables(run(file, tmp_path / "two", 2)) == expected
    assert (tmp_path / "two/results.jsonl").read_text().splitlines()[:5] == kept


class LocalCluster:
    """A Dask scheduler and workers in processes of their own."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory, self._stack = directory, stack
        self.workers: list[subprocess.Popen[bytes]] = []
        self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", self.file)
        while not self._ready:
            assert self.workers[0].poll() is None
        self.workers.clear()
        for _ in range(2):
            self.add_worker()

    @property
    def _ready(self) -> bool:
        file = self._directory / "scheduler.json"
        return file.exists() and file.read_text().rstrip().endswith("}")

    @property
    def file(self) -> str:
        return str(self._directory / "scheduler.json")

    @property
    def address(self) -> str:
        return str(json.loads((self._directory / "scheduler.json").read_text())["address"])

    def add_worker(self) -> None:
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(self._directory))
        self._start("worker", self.address, *options)

    def _start(self, command: str, *arguments: str) -> None:
        with (self._directory / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{command}", *arguments], stdout=log, stderr=log
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        self.workers.append(process)


@contextmanager
def local_cluster(directory: Path) -> Iterator[LocalCluster]:
    directory.mkdir()
    with ExitStack() as stack:
        yield LocalCluster(directory, stack)


def test_a_cluster_gives_the_same_tables_even_if_a_worker_dies(file: Path, tmp_path: Path) -> None:
    expected = tables(run(file, tmp_path / "one", 0))
    with local_cluster(tmp_path / "dask") as dask:
        seen = Listener(3, dask.workers[0].kill)
        report = sweep_into(tmp_path / "two", load_sweep(file), DaskCluster(dask.address), seen)
        assert dask.workers[0].wait(PATIENCE_S) != 0
        assert dask.workers[1].poll() is None
    assert seen.runs == 16
    assert tables(report) == expected


@pytest.mark.parametrize("address", ["nowhere", "ray://h:1", "tcp://h", ""])
def test_what_is_no_address_of_a_cluster(address: str, file: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["sweep", str(file), "--out", str(tmp_path / "out"), "--cluster", address])
    assert result.exit_code == 2
    assert len(result.output.splitlines()) == 1
    assert "--cluster" in result.output


def test_the_command_prints_the_overview(file: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["sweep", str(file), "--out", str(tmp_path / "out"), "--workers", "1"])
    assert result.exit_code == 0, result.output
    assert "echelon(order=setf)" in result.output.lower()
    assert str(tmp_path / "out/jobs.csv") in result.output


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("jobs[0].data.gradient:", "jobs[5].data.gradient:", "vary.jobs[5].data.gradient"),
        ("jobs[0].data.gradient:", "jobs[0]]:", "vary.jobs[0]]"),
        ("jobs[0].data.gradient:", "no_such_key:", "vary.no_such_key"),
        ("[20 kB, 80 kB]", "[20 kB, 80]", "jobs[0].data.gradient"),
        ("[20 kB, 80 kB]", "[]", "vary.jobs[0].data.gradient"),
        ("policies: [fair,", "policies: [no_such_policy,", "policies[0]"),
        ("base.yaml", "missing.yaml", "missing.yaml"),
        ("seeds: 2", "target: no_such_target", "--target"),
        ("seeds: 2", "scale: quick", "scale"),
    ],
)
def test_bad_input_is_one_line_that_names_the_key(old: str, new: str, path: str, file: Path, tmp_path: Path) -> None:
    file.write_text(SWEEP.replace(old, new))
    result = CliRunner().invoke(app, ["sweep", str(file), "--out", str(tmp_path / "out"), "--workers", "1"])
    assert result.exit_code == 2, result.output
    assert len(result.output.splitlines()) == 1
    assert path in result.output
    assert not (tmp_path / "out").exists()
