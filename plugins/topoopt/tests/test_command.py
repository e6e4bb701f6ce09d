"""`echelon topology optimise`: its files are good and give what its table says; mistakes are one
line each.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from echelon.cli import app
from echelon.model.fabric.load import load_fabric
from echelon.model.jobs import load_job
from echelon_topoopt.search import run
from tests.faults import mentions

JOB = """\
job: {name}
parallelism: mesh
workers: [a, b, c, d, e, f]
mesh: {{order: [data, pipeline], data: 6, micro_batches: 2, layers: 6, forward: 4 ms, backward: 8 ms, activation: 2 MB,
  gradient: 30 MB}}
"""
EXPERTS = """\
job: moe
parallelism: expert
workers: [a, b, c, d]
expert: {group: 4, layers: 1, attention: 1 ms, expert: 2 ms, tokens: 8 MB}
"""
cli = CliRunner()


@pytest.fixture
def jobs(tmp_path: Path) -> tuple[Path, Path]:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(JOB.format(name="gpt"))
    two.write_text(EXPERTS)
    return one, two


def test_files_run_as_the_table_says(jobs: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [
        "topology",
        "optimise",
        *map(str, jobs),
        "--hosts",
        "10",
        "--rate",
        "1 Gbit/s",
        "-o",
        str(out),
    ]
    done = cli.invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert [Path(file).name for file in said["files"]] == [
        "fabric.yaml",
        "gpt.yaml",
        "moe.yaml",
        "scenario.yaml",
        "topology-1.png",
        "topology-2.png",
    ]
    fabric = load_fabric(out / "fabric.yaml")
    hosts: list[str] = []
    for row in said["networks"]:
        if row["network"] == "topology":
            job = load_job(out / f"{row['job']}.yaml")
            hosts += job.workers
            record = run(job, fabric)
            assert (record.finish or 0) - record.start == pytest.approx(
                row["iteration_s"], rel=1e-6
            )
            assert row["relative"] == 1
    assert sorted(hosts) == sorted(fabric.hosts)
    networks = {(row["job"], row["network"]) for row in said["networks"]}
    assert len(networks) == 10
    assert all(
        search["best_s"] <= search["by_bytes_s"] <= search["as_published_s"]
        for search in said["searches"]
    )
    checked = cli.invoke(app, ["check", *map(str, sorted(out.glob("*.yaml")))])
    assert checked.exit_code == 0, checked.output


def test_packets_take_as_long_as_the_fluid(jobs: tuple[Path, Path], tmp_path: Path) -> None:
    """Softswitches forward in the hosts, in virtual time."""
    out = tmp_path / "out"
    command = [
        "topology",
        "optimise",
        str(jobs[1]),
        "--rate",
        "100 Mbit/s",
        "--by",
        "tardiness",
        "-o",
        str(out),
    ]
    assert cli.invoke(app, command).exit_code == 0
    scenario = yaml.safe_load((out / "scenario.yaml").read_text())
    (out / "scenario.yaml").write_text(yaml.safe_dump({**scenario, "iterations": 1}))
    times = []
    for target in ("fluid", "softswitch"):
        results = tmp_path / target
        done = cli.invoke(
            app,
            [
                "run",
                str(out / "scenario.yaml"),
                "--target",
                target,
                "--yes",
                "--json",
                "-o",
                str(results),
            ],
        )
        assert done.exit_code == 0, done.output
        measured = json.loads((results / "results.json").read_text())["results"]["topoopt"]["jobs"][
            "moe"
        ]
        times += measured["iteration_times_s"]
    assert times[1] == pytest.approx(times[0], rel=0.04)


@pytest.mark.parametrize(
    ("arguments", "place", "facts"),
    [
        (["one", "--hosts", "8"], "--hosts", (8, 6)),
        (["one", "one"], "JOB", ("name",)),
        (["one", "--rate", "fast"], "--rate", ("'fast'",)),
        (["one", "--panel-price", "cheap"], "--panel-price", ("'cheap'", "0.8", "80%", "4/5")),
        (["absent"], "{tmp}/absent.yaml", (os.strerror(errno.ENOENT),)),
    ],
)
def test_mistakes_are_one_line(
    jobs: tuple[Path, Path],
    tmp_path: Path,
    arguments: list[str],
    place: str,
    facts: tuple[object, ...],
) -> None:
    given = [
        str(tmp_path / f"{word}.yaml") if word in ("one", "two", "absent") else word
        for word in arguments
    ]
    done = cli.invoke(app, ["topology", "optimise", *given])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"{place.format(tmp=tmp_path)}: ")
    assert mentions(done.stderr, *facts), done.stderr
    assert done.stderr.count("\n") == 1
