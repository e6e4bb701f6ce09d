"""`echelon sweep`: the same results in one process, in several, and on a cluster that loses a
worker.
"""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import echelon
from echelon.cli import app
from echelon.model.progress import CommandProgress
from echelon_lab.plots import Excerpt
from echelon_lab.plots.style import Style
from echelon_lab.points.cluster import DaskCluster
from echelon_lab.points.tasks import Cluster, SweepError
from echelon_lab.sweeps.picture import draw as draw_picture
from echelon_lab.sweeps.picture import load as load_picture
from echelon_lab.sweeps.run import SweepReport, sweep_into
from echelon_lab.sweeps.spec import load_sweep
from tests.faults import coded, mentions

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


class Listener(CommandProgress):
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


def test_every_variant_runs_under_every_policy_as_it_would_alone(
    file: Path, tmp_path: Path
) -> None:
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
            {
                "fabric": fabric,
                "jobs": jobs,
                "iterations": document.iterations,
                "seed": int(row["seed"]),
            },
            [row["policy"]],
        )
        outcome = alone.outcome(row["policy"], row["job"])
        assert float(row["mean_s"]) == pytest.approx(outcome.mean_iteration_s, rel=1e-5)
        assert float(row["mean_slowdown"]) == pytest.approx(outcome.mean_slowdown, rel=1e-5)


def test_processes_give_the_same_tables_and_an_interrupted_sweep_continues(
    file: Path, tmp_path: Path
) -> None:
    expected = tables(run(file, tmp_path / "one", 0))

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep_into(tmp_path / "two", load_sweep(file), 2, Listener(5, interrupt))
    kept = (tmp_path / "two/results.jsonl").read_text().splitlines()
    assert len(kept) == 5
    assert tables(run(file, tmp_path / "two", 2)) == expected
    assert (tmp_path / "two/results.jsonl").read_text().splitlines()[:5] == kept


def partly(file: Path, out: Path, runs: int) -> None:
    """Run the sweep until so many runs are done."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep_into(out, load_sweep(file), 0, Listener(runs, interrupt))


def test_a_part_of_a_sweep_says_so_and_names_what_is_missing(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    partly(file, out, 5)
    missing = list(csv.DictReader((out / "missing.csv").read_text().splitlines()))
    there = {
        (row["jobs[0].data.gradient"], row["jobs[*].start"], row["seed"], row["policy"])
        for row in csv.DictReader((out / "jobs.csv").read_text().splitlines())
    }
    absent = {
        (row["jobs[0].data.gradient"], row["jobs[*].start"], row["seed"], row["policy"])
        for row in missing
    }
    assert (len(there), len(absent), there & absent) == (5, 11, set())
    report = (out / "report.md").read_text()
    assert "5 of 16 runs are there" in report
    for row in missing[:3]:
        assert f"{row['policy']} on variant {row['variant']} " in report
    whole = run(file, tmp_path / "whole", 0)
    for ours, row in zip(
        csv.DictReader((out / "slowdowns.csv").read_text().splitlines()),
        whole.overview.rows,
        strict=True,
    ):
        for policy, mean in zip(("fair", "echelon(order=setf)"), row[2:], strict=True):
            of = (row[0], row[1])
            complete = not any(place[:2] == of and place[3] == policy for place in absent)
            assert ours[policy] == (f"{mean:.6g}" if complete else "")
    assert not (tmp_path / "whole" / "missing.csv").exists()
    run(file, out, 0)
    assert (out / "report.md").read_text() == (tmp_path / "whole" / "report.md").read_text()
    assert not (out / "missing.csv").exists()


def test_a_run_that_fails_leaves_tables_of_the_others(file: Path, tmp_path: Path) -> None:
    # The fluid engine has no cross traffic, which is the third variant's.
    traffic = "{name: web, model: consistent, src: a1, dst: b1, load: 1 Mbit/s}"
    file.write_text(
        SWEEP.partition("vary:")[0] + f"vary:\n  traffic: [[], [{traffic}]]\npolicies: [fair]\n"
    )
    with pytest.raises(SweepError, check=coded("run-failed", "variant 1, fair: ", "'web'")):
        run(file, tmp_path / "out", 0)
    report = (tmp_path / "out/report.md").read_text()
    assert "1 of 2 runs are there" in report
    assert "fair on variant 1" in report


def plotted(out: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["plot", str(out), "-o", str(out / "pictures"), *options])


def test_the_picture_of_a_sweep(file: Path, tmp_path: Path) -> None:
    run(file, tmp_path / "out", 0)
    result = plotted(tmp_path / "out", "--format", "png,svg", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["notes"] == []
    assert [Path(name).name for name in document["files"]] == ["slowdowns.png", "slowdowns.svg"]
    texts = (tmp_path / "out/pictures/slowdowns.svg").read_text()
    for word in ("20 kB", "80 kB", "jobs[*].start = 3 ms", "fair", "echelon(order=setf)"):
        assert word in texts
    assert " runs" not in texts


def test_the_picture_of_a_part_draws_nothing_that_was_not_run(file: Path, tmp_path: Path) -> None:
    partly(file, tmp_path / "out", 5)
    of = load_picture(tmp_path / "out")
    selection = Excerpt()
    [figure] = draw_picture(of, selection, Style())
    [note] = selection.notes
    assert note.startswith("11 of 16 runs are missing")
    drawn = {
        (axis.get_title(), line.get_label(), place)
        for axis in figure.axes
        for line in axis.get_lines()
        for place, height in enumerate(line.get_ydata())  # type: ignore[arg-type]
        if not math.isnan(height)
    }
    complete = {
        (f"jobs[*].start = {start}", policy, ["20 kB", "80 kB"].index(gradient))
        for (gradient, start), by_policy in of.rows.items()
        for policy, mean in by_policy.items()
        if mean is not None
    }
    assert drawn == complete
    assert 0 < len(drawn) < 8


def test_what_cannot_be_drawn_of_a_sweep(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    partly(file, out, 1)
    for options, place in (
        (("--kind", "bars"), "--kind: "),
        ((), "sweep.json: "),
        (("--format", "bmp"), "--format: "),
    ):
        result = plotted(out, *options)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(place)
        assert mentions(result.stderr, *(f"'{value}'" for value in options[1:]))
        assert len(result.stderr.splitlines()) == 1
    (out / "sweep.json").write_text("{}")
    result = plotted(out)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{out / 'sweep.json'}: ")


class LocalCluster:
    """A Dask scheduler and workers in processes of their own."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory, self._stack = directory, stack
        self.workers: list[subprocess.Popen[bytes]] = []
        self._start(
            "scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
            "--scheduler-file",
            self.file,
        )
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
        options = (
            "--nthreads",
            "1",
            "--no-nanny",
            "--no-dashboard",
            "--local-directory",
            str(self._directory),
        )
        self._start("worker", self.address, *options)

    def _start(self, command: str, *arguments: str) -> None:
        with (self._directory / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{command}", *arguments],
                stdout=log,
                stderr=log,
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
    result = CliRunner().invoke(
        app, ["sweep", str(file), "--out", str(tmp_path / "out"), "--cluster", address]
    )
    assert result.exit_code == 2
    assert len(result.output.splitlines()) == 1
    assert "--cluster" in result.output


def test_steady_means_have_an_interval_over_seeds(file: Path, tmp_path: Path) -> None:
    file.write_text(SWEEP.replace("seeds: 2", "seeds: 3"))
    report = run(file, tmp_path / "out", 0)
    rows = list(csv.DictReader((tmp_path / "out/steady.csv").read_text().splitlines()))
    assert len(rows) == len(report.overview.rows)
    for row in rows:
        for policy in ("fair", "echelon(order=setf)"):
            assert float(row[policy]) >= 1
            # Runs of three iterations have no interval, but three seeds have a spread.
            assert float(row[f"± {policy}"]) >= 0


def test_the_command_prints_the_overview(file: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["sweep", str(file), "--out", str(tmp_path / "out"), "--workers", "1"]
    )
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
def test_bad_input_is_one_line_that_names_the_key(
    old: str, new: str, path: str, file: Path, tmp_path: Path
) -> None:
    file.write_text(SWEEP.replace(old, new))
    result = CliRunner().invoke(
        app, ["sweep", str(file), "--out", str(tmp_path / "out"), "--workers", "1"]
    )
    assert result.exit_code == 2, result.output
    assert len(result.output.splitlines()) == 1
    assert path in result.output
    assert not (tmp_path / "out").exists()
