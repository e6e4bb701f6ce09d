"""The command as people meet it: what it writes, and what it says to those who made a mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from echelon import cli
from echelon.model.errors import RunError
from echelon.model.progress import UNSEEN
from echelon.planning.policies import PlanError
from echelon.switches.lowering.lower import LoweringError
from echelon_lab import run
from echelon_lab.turns import unwatched

ROOT = Path(__file__).parents[3]
SCENARIOS = ROOT / "topologies/scenarios"
FIG2 = str(SCENARIOS / "fig2.yaml")


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def only_line(result: Result, status: int = 2) -> str:
    """Return the one line on standard error of a command that failed."""
    assert result.exit_code == status, result.output
    [line] = result.stderr.splitlines()
    assert "Traceback" not in result.output
    return line


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Return a function that replaces the runner of the target `fluid`."""

    def put(runner: Callable[..., Any]) -> None:
        monkeypatch.setattr("echelon_lab.virtual.fluid_run.run", runner)

    return put


def test_runs_a_scenario_and_writes_what_it_found(tmp_path: Path) -> None:
    result = invoke("run", FIG2, "--target", "fluid", "--out", tmp_path / "new" / "out")
    assert result.exit_code == 0, result.output
    out = tmp_path / "new" / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        "network.json",
        "report.md",
        "results.json",
        "summary.png",
        "timeline.png",
    ]
    results = json.loads((out / "results.json").read_text())
    assert (results["scenario"], results["target"]) == ("fig2", "fluid")
    finishes_s = {
        policy: of["jobs"]["pipeline"]["compute_finish_s"]
        for policy, of in results["results"].items()
    }
    # The last packet is on its way for 23 us more.
    published_s = {"fair": 8.5, "varys": 10.0, "echelon": 8.0}
    assert finishes_s == pytest.approx(published_s, abs=3e-5)
    for shown in (
        "8.500023",
        "10.000023",
        "+17.6 %",
        "-5.9 %",
        "results.json",
        "report.md",
        "summary.png",
        "timeline.png",
    ):
        assert shown in result.stdout
    assert result.stderr == ""


def test_two_runs_give_identical_results(tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert (
            invoke(
                "run", SCENARIOS / "dp_pair.yaml", "--target", "fluid", "--out", tmp_path / name
            ).exit_code
            == 0
        )
    for file in ("results.json", "network.json", "report.md", "summary.png", "timeline.png"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_policies_of_ones_own_choice(tmp_path: Path) -> None:
    choice = ["--policy", "fifo", "--policy", "echelon(order=setf)", "--policy", "fifo"]
    assert invoke("run", FIG2, "--target", "fluid", "--out", tmp_path, *choice).exit_code == 0
    assert list(json.loads((tmp_path / "results.json").read_text())["results"]) == [
        "fifo",
        "echelon(order=setf)",
    ]
    report = (tmp_path / "report.md").read_text()
    assert report.index("| fifo |") < report.index("| echelon(order=setf) |")


@pytest.mark.parametrize("name", sorted(path.stem for path in SCENARIOS.glob("*.yaml")))
def test_every_scenario_that_comes_with_echelon_is_good(name: str) -> None:
    assert f"scenario '{name}' is good\n" in invoke("check", SCENARIOS / f"{name}.yaml").stdout


def test_check_tells_kinds_apart_and_goes_on_after_a_bad_file(tmp_path: Path) -> None:
    job, bad = tmp_path / "job.yaml", tmp_path / "bad.yaml"
    job.write_text(
        "{job: j, parallelism: data, workers: [a, b], data: {compute: 1 s, gradient: 1 MB}}"
    )
    bad.write_text(
        "{job: j, parallelism: data, workers: [a, b], data: {compute: 1 parsec, gradient: 1 MB}}"
    )
    result = invoke("check", bad, ROOT / "topologies/dumbbell_2.yaml", job)
    assert "parsec" in only_line(result)
    assert only_line(result).startswith(f"{bad}: data.compute: ")
    assert result.stdout.splitlines() == [
        f"{ROOT / 'topologies/dumbbell_2.yaml'}: fabric 'dumbbell_2' is good",
        f"{job}: job 'j' is good",
    ]


def test_check_does_not_guess(tmp_path: Path) -> None:
    file = tmp_path / "strange.yaml"
    file.write_text("colour: blue")
    assert only_line(invoke("check", file)).startswith(f"{file}: ")


@pytest.mark.parametrize(
    ("text", "path", "name"),
    [
        ("{scenario: x, jobs: [JOB], policies: [fair]}", "fabric", ""),
        ("scenario: [", "line 2, column 1", ""),
        (
            "{scenario: x, fabric: nowhere.yaml, jobs: [], policies: [fair]}",
            "fabric",
            "'nowhere.yaml'",
        ),
        ("{scenario: x, fabric: FABRIC, jobs: [], policies: [fair]}", "jobs", ""),
        ("{scenario: x, fabric: FABRIC, jobs: [JOB], policies: [fare]}", "policies[0]", "'fare'"),
        ("{scenario: x, fabric: FABRIC, jobs: [JOB], policies: [fair], seed: -1}", "seed", "-1"),
        ("{scenario: x, fabric: FABRIC, jobs: [JOB], policies: [fair], sede: 1}", "sede", "'seed'"),
    ],
)
def test_a_bad_scenario_is_one_line_with_file_path_and_reason(
    text: str, path: str, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "bad.yaml"
    job = "{job: j, parallelism: data, workers: [a1, b1], data: {compute: 1 s, gradient: 1 MB}}"
    file.write_text(
        text.replace("FABRIC", str(ROOT / "topologies/dumbbell_2.yaml")).replace("JOB", job)
    )
    for command in (["run", file, "--target", "fluid", "--out", tmp_path / "out"], ["check", file]):
        line = only_line(invoke(*command))
        assert line.startswith(f"{file}: {path}: ")
        assert name in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "option", "names"),
    [
        (["--target", "flud"], "--target", ["'flud'", "'fluid'"]),
        (["--ranking-at", "host"], "--ranking-at", ["'host'", "'hosts'"]),
        (["--ranking-at", "hosts"], "--ranking-at", ["--target fluid, switches "]),
        (
            ["--target", "softswitch", "--ranking-at", "hosts"],
            "--ranking-at",
            ["--target softswitch, switches "],
        ),
        (
            ["--target", "dscp", "--ranking-at", "switches"],
            "--ranking-at",
            ["--target dscp, hosts "],
        ),
        (["--policy", "fare"], "--policy", ["'fare'", "'fair'"]),
        (["--policy", "echelon(order=best)"], "--policy", ["'best'", "'setf'"]),
        (["--policy", "echelon(speed=1)"], "--policy", ["speed", "'echelon'"]),
        (["--policy", "echelon(order"], "--policy", ["echelon"]),
    ],
)
def test_a_bad_option_is_one_line(
    arguments: list[str], option: str, names: list[str], tmp_path: Path
) -> None:
    line = only_line(
        invoke("run", FIG2, "--target", "fluid", "--out", tmp_path / "out", *arguments)
    )
    assert line.startswith(f"{option}: ")
    assert [name for name in names if name not in line] == []
    assert not (tmp_path / "out").exists()


def test_where_hosts_rank_the_target_is_a_switch_of_fixed_function_and_says_what_it_lacks(
    tmp_path: Path,
) -> None:
    result = invoke("run", FIG2, "--ranking-at", "hosts", "--policy", "fifo", "--out", tmp_path)
    assert result.exit_code == 0
    assert "target dscp: " in result.stderr
    assert json.loads((tmp_path / "results.json").read_text())["target"] == "dscp"


def test_ideal_rates_are_a_second_run_of_each_policy(tmp_path: Path) -> None:
    options = ("--policy", "fair", "--policy", "echelon", "--ideal", "--out", tmp_path)
    assert invoke("run", FIG2, "--target", "fluid", *options).exit_code == 0
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert set(results) == {"fair", "fair, ideal", "echelon", "echelon, ideal"}
    finish = [
        results[f"{name}, ideal"]["jobs"]["pipeline"]["compute_finish_s"]
        for name in ("fair", "echelon")
    ]
    assert finish == pytest.approx([8.5, 8.0], abs=3e-5)
    assert "echelon, ideal" in (tmp_path / "report.md").read_text()


def test_ideal_rates_need_the_target_without_queues(tmp_path: Path) -> None:
    line = only_line(
        invoke("run", FIG2, "--target", "softswitch", "--ideal", "--out", tmp_path / "out")
    )
    assert line.startswith("--ideal: ")
    assert "--target fluid" in line


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = only_line(invoke("run", FIG2, "--target", "fluid", "--out", tmp_path / "file"))
    assert line.startswith(f"--out: {tmp_path / 'file'}: ")


def test_a_missing_scenario_is_named(tmp_path: Path) -> None:
    line = only_line(invoke("run", tmp_path / "none.yaml", "--target", "fluid", "--out", tmp_path))
    assert line.startswith(f"{tmp_path / 'none.yaml'}: ")


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (
            PlanError("there is no way\nfrom h1 to h2"),
            2,
            "policy echelon: there is no way from h1 to h2",
        ),
        (LoweringError("the switch has too few tables"), 2, "the switch has too few tables"),
        (RunError("flow f gets nowhere"), 1, "flow f gets nowhere"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_stops_a_run_is_one_line(
    error: BaseException,
    status: int,
    said: str,
    target: Callable[[Callable[..., Any]], None],
    tmp_path: Path,
) -> None:
    def fail(*_: object, **_options: object) -> None:
        raise error

    target(fail)
    line = only_line(invoke("run", FIG2, "--target", "fluid", "--out", tmp_path), status)
    assert line.endswith(said)
    if status != 130:
        assert line.startswith(f"{FIG2}: ")
    assert not (tmp_path / "results.json").exists()


def test_our_own_mistakes_keep_their_traceback(
    target: Callable[[Callable[..., Any]], None], tmp_path: Path
) -> None:
    def fail(*_: object, **_options: object) -> None:
        raise ZeroDivisionError

    target(fail)
    result = invoke("run", FIG2, "--target", "fluid", "--out", tmp_path)
    assert isinstance(result.exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("fabric", "target"),
    [
        ("virtual", "fluid"),
        ("virtual", "softswitch"),
        ("namespaces", "bmv2"),
        ("namespaces", "softswitch"),
        ("mininet", "bmv2"),
        ("mininet", "softswitch"),
    ],
)
def test_every_target_has_a_runner_on_the_fabrics_that_carry_it(fabric: str, target: str) -> None:
    assert callable(run.place(fabric, target)(unwatched, UNSEEN))


@pytest.mark.parametrize(
    ("fabric", "target", "names"),
    [
        ("virtul", "softswitch", ["--on: ", "'virtul'", "'virtual'"]),
        ("virtual", "trident", ["--target: ", "'trident'"]),
        ("virtual", "bmv2", ["bmv2 ", " virtual ", "--on namespaces", "mininet"]),
        ("mininet", "fluid", ["fluid ", " mininet ", "--on virtual"]),
    ],
)
def test_a_fabric_and_a_target_that_do_not_go_together(
    fabric: str, target: str, names: list[str], tmp_path: Path
) -> None:
    line = only_line(invoke("run", FIG2, "--on", fabric, "--target", target, "--out", tmp_path))
    assert [name for name in names if name not in line] == []
