"""`echelon evaluate`: a small evaluation from the command line, killed and continued, and its
report.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from echelon.cli import app
from echelon_lab.evaluation.draw import draw
from echelon_lab.evaluation.run import evaluate_into
from echelon_lab.evaluation.tasks import BASELINE
from echelon_lab.scenarios.scenario import PolicyChoice, load_scenario
from tests.faults import mentions

SMALL = (
    "--half",
    "tune",
    "--scenarios",
    "2",
    "--iterations",
    "3",
    "--policy",
    "fifo",
    "--workers",
    "1",
)
MEASUREMENTS = 2 * (1 + 2)
"""The number of measurements: for each scenario its description, and runs under fair and fifo."""
ROOT = Path(__file__).parents[3]


def run(out: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["evaluate", "--out", str(out), *arguments])


def evaluate(out: Path, scenarios: int = 2, iterations: int = 3) -> None:
    """Run the evaluation of `SMALL` in this process, which saves the start of another."""
    evaluate_into(
        out,
        half="tune",
        scenarios=scenarios,
        policies=(BASELINE, PolicyChoice("fifo")),
        iterations=iterations,
        ideal=False,
        packets=0,
        worst=3,
        workers=0,
    )


def results(out: Path) -> dict[str, Any]:
    """Return the results, by the identity of the measurement."""
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    found = {json.dumps(line["identity"], sort_keys=True): line["result"] for line in lines}
    assert len(found) == len(lines), "something was measured twice"
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an evaluation that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole")
    evaluate(out)
    return out


def test_the_report_has_everything_that_it_names(whole: Path) -> None:
    again = run(whole, *SMALL)
    assert again.exit_code == 0, again.output
    files = [Path(line) for line in again.stdout.splitlines() if line.startswith(str(whole))]
    assert files[0] == whole / "report.md"
    assert all(file.is_file() for file in files)
    summary = files[0].read_text()
    for file in files:
        if file.suffix in (".png", ".yaml"):
            assert str(file.relative_to(whole)) in summary
    assert json.loads((whole / "machine.json").read_text())["settings"]["scenarios"] == 2


def test_worst_cases_are_scenarios(whole: Path) -> None:
    cases = [*(whole / "worst").iterdir()]
    for file in cases:
        assert [choice.label for choice in load_scenario(file).policies] == ["fair", "fifo"]
    rows = (whole / "scenarios.csv").read_text().splitlines()[1:]
    assert bool(cases) == any(float(ratio) > 1.01 for row in rows for ratio in row.split(",")[-2:])


def test_a_killed_evaluation_goes_on(whole: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT / "controller"), str(ROOT)])
    command = [sys.executable, "-m", "echelon", "evaluate", "--out", str(tmp_path), *SMALL]
    file = tmp_path / "results.jsonl"
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL
    ) as process:
        while not file.exists() or len(file.read_text().splitlines()) < 2:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    lines = file.read_text().splitlines(keepends=True)
    assert len(lines) < MEASUREMENTS
    # The machine stopped while the last line was written.
    file.write_text("".join(lines[:-1]) + lines[-1][: len(lines[-1]) // 2])
    evaluate(tmp_path)
    torn = [line for line in file.read_text().splitlines() if line and not line.endswith("}")]
    assert len(torn) == 1
    file.write_text(
        "".join(
            line for line in file.read_text().splitlines(keepends=True) if line.strip() not in torn
        )
    )
    assert results(tmp_path) == results(whole)
    assert len(results(tmp_path)) == MEASUREMENTS
    for name in ("report.md", "scenarios.csv"):
        assert (tmp_path / name).read_text() == (whole / name).read_text()


def test_given_scenarios_are_measured_as_drawn_ones(whole: Path, tmp_path: Path) -> None:
    """A file of a drawn scenario has the slowdowns of its seed; only errors and phases are drawn by
    its name.
    """
    file = tmp_path / "given.yaml"
    document = draw(2).document(["srpt"], 1)
    document["jobs"] = [dict(job) for job in document["jobs"]]
    file.write_text(yaml.safe_dump(document))
    settings = ("--iterations", "3", "--policy", "fifo", "--workers", "1")
    given = tmp_path / "given"
    assert run(given, str(file), *settings).exit_code == 0

    def scores(out: Path) -> dict[str, list[str]]:
        rows = csv.DictReader((out / "scenarios.csv").read_text().splitlines())
        return {
            row["policy"]: [row["mean"], row["worst"]]
            for row in rows
            if row["scenario"] in ("2", str(file))
        }

    assert scores(given) == scores(whole)
    assert f"`{file}`" in (given / "report.md").read_text()
    assert not [*(given / "worst").iterdir()]


def test_other_parameters_are_measured_and_the_old_ones_kept(whole: Path) -> None:
    before = results(whole)
    evaluate(whole, scenarios=1, iterations=4)
    after = results(whole)
    assert before.items() <= after.items()
    assert len(after) == len(before) + 2


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--half", "both"), ["--half", "'both'", "tune, report"]),
        (("--policy", "fare"), ["--policy", "'fare'", "'fair'"]),
        (("--policy", "echelon(order=x)"), ["--policy", "policy echelon: order", "'x'"]),
        (("--scenarios", "0"), ["'--scenarios'", "1"]),
        (("missing.yaml",), ["missing.yaml"]),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, arguments: tuple[str, ...], names: list[str]
) -> None:
    done = run(tmp_path / "out", *arguments)
    assert done.exit_code == 2
    [line] = done.stderr.splitlines()
    assert mentions(line, *names)
    assert not (tmp_path / "out").exists()
