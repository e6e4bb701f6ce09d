"""`echelon advise` and `echelon policies`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from echelon.cli import app
from echelon.cli.progress import EVERY
from echelon.model.documents import DocumentError
from echelon.planning.fluid import simulate
from echelon.planning.fluid.slowdown import mean_time_s
from echelon.planning.policies import make_policy, policy_names
from echelon_lab.advice import CLOSE, ranked
from echelon_lab.advising.campaign import Campaign, Estimates
from echelon_lab.commands.describing import host_names
from echelon_lab.points.lines import LineStore
from echelon_lab.scenarios.results import alone_iterations_s
from echelon_lab.scenarios.scenario import load_scenario
from tests.drawing import examples
from tests.faults import coded

SLOWDOWNS = st.dictionaries(
    st.sampled_from(["fair", "fifo", "crux", "echelon", "srpt"]),
    st.tuples(*2 * [st.lists(st.floats(1, 4), min_size=2, max_size=2)]),
    min_size=1,
)


NEEDS = {
    "fair": "nothing",
    "fifo": "nothing",
    "crux": "job files",
    "echelon": "job files; hosts that delay help",
}
"""What policies need; srpt does not say."""


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where runs are kept."""
    file = tmp_path / "kept.jsonl"
    monkeypatch.setattr("echelon_lab.commands.advising._kept", lambda *_: file)
    return file


def advise(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["advise", *map(str, arguments)])


@given(SLOWDOWNS)
@settings(max_examples=examples(100))
def test_the_advice_is_the_best_mean_then_the_best_worst_job_then_what_needs_least(
    found: dict[str, Any],
) -> None:
    exact, doubted = (
        {
            name: {"slowdowns": dict(zip("ab", both[place], strict=True))}
            for name, both in found.items()
        }
        for place in (0, 1)
    )
    advice = ranked(exact, doubted, NEEDS)
    assert sorted(one.policy for one in advice.ranked) == sorted(found)
    least = min(sum(of) / 2 for of, _ in found.values())
    equals = [max(of) for of, _ in found.values() if sum(of) / 2 <= least * (1 + CLOSE)]
    assert advice.best.worst <= min(equals) * (1 + CLOSE)
    assert advice.best.burden == min(
        one.burden
        for one in advice.ranked
        if one.mean <= least * (1 + CLOSE) and one.worst <= min(equals) * (1 + CLOSE)
    )
    assert advice.best.mean <= least * (1 + CLOSE)
    first, second, third = advice.sentences()
    assert advice.best.policy in first
    assert "fair" in second.lower() or "1 %" in second
    assert f"{advice.best.doubted_mean:.3f}" in third


def test_it_says_what_the_best_would_need() -> None:
    found = {"echelon": {"slowdowns": {"a": 1.0}}, "fair": {"slowdowns": {"a": 1.004}}}
    first, *_ = ranked(found, found, NEEDS).sentences()
    assert first.startswith(
        "Take fair (needs nothing; echelon, 0.4% better in the mean, needs job files; hosts that"
        " delay help): an"
    )


def test_progress_counts_once_and_names_no_file_of_its_own(tmp_path: Path) -> None:
    """Two policies run once in the first stage. SIGTERM ends the command without a word of its processes."""
    assert CliRunner().invoke(app, ["init", str(tmp_path)]).exit_code == 0
    words = [
        sys.executable,
        "-m",
        "echelon",
        "advise",
        str(tmp_path / "vision.yaml"),
        str(tmp_path / "language.yaml"),
        "--fabric",
        str(tmp_path / "fabric.yaml"),
        "--policy",
        "fair",
        "--policy",
        "varys",
        "-o",
        str(tmp_path / "advice.png"),
    ]
    environment = {**os.environ, EVERY: "0"}
    with subprocess.Popen(
        [*words, "--iterations", "1000"], stderr=subprocess.PIPE, text=True, env=environment
    ) as command:
        assert command.stderr is not None
        line = next(
            line for line in command.stderr if "measuring fair" in line or "measuring varys" in line
        )
        assert re.search(r"measuring (fair|varys), 2 iterations, coarse, 0 of 2 runs", line)
        command.terminate()
        rest = command.stderr.read()
    assert command.returncode == 143
    assert "semaphore" not in rest
    assert "Traceback" not in rest


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("h1, h3", ["h1", "h3"]),
        ("h[1-3]", ["h1", "h2", "h3"]),
        ("a,h[9-11],n[08-12/2]r1", ["a", "h9", "h10", "h11", "n08r1", "n10r1", "n12r1"]),
    ],
)
def test_ranges_of_hosts(text: str, names: list[str]) -> None:
    assert host_names(text) == names


@pytest.mark.parametrize(
    "text", ["h[3-1]", "h[1-3", "h[1-3/0]", "h[1-]", "h[1-9999999]", "h[1-2]x[1-2]"]
)
def test_faulty_ranges_of_hosts(text: str) -> None:
    faulty = coded("invalid-value", f"'{text}'", "h[1-16]", file="--hosts", path="")
    with pytest.raises(DocumentError, check=faulty):
        host_names(text)


def test_a_policy_that_fails_is_not_ranked() -> None:
    good = {"slowdowns": {"a": 1.5}}
    advice = ranked({"fair": good, "crux": {"error": "no path"}}, {"fair": good, "crux": good}, {})
    assert [one.policy for one in advice.ranked] == ["fair"]
    assert advice.failed == {"crux": "no path"}


def test_job_files_on_a_fabric(tmp_path: Path) -> None:
    """The slowdowns under fair sharing are those of a simulation with the engine in Python."""
    assert CliRunner().invoke(app, ["init", str(tmp_path)]).exit_code == 0
    files = [tmp_path / "vision.yaml", tmp_path / "language.yaml"]
    limited = ["--policy", "fair", "--policy", "fifo", "--iterations", 4, "--workers", 1]
    result = advise(*files, "--fabric", tmp_path / "fabric.yaml", *limited, "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert {one["policy"] for one in said["policies"]} == {"fair", "fifo"}
    scenario = load_scenario(tmp_path / "scenario.yaml")
    alone_s = alone_iterations_s(scenario)
    end_s = 4 * max(alone_s.values())
    windows = scenario.transport.windows
    run = simulate(
        scenario.jobs, scenario.fabric, make_policy("fair"), None, until=end_s, windows=windows
    )
    expected = []
    for name, job in run.jobs.items():
        ends = [
            (float(one.start), None if one.finish is None else float(one.finish))
            for one in job.iterations
        ]
        expected.append(mean_time_s(ends, float(end_s)) / float(alone_s[name]))
    [fair] = [one for one in said["policies"] if one["policy"] == "fair"]
    assert fair["mean"] == pytest.approx(sum(expected) / 2, rel=1e-6)
    assert fair["worst"] == pytest.approx(max(expected), rel=1e-6)


def test_an_interrupt_shows_what_there_is_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Path
) -> None:
    assert CliRunner().invoke(app, ["init", str(tmp_path)]).exit_code == 0
    arguments = [tmp_path / "scenario.yaml", "--policy", "fair", "--policy", "fifo"]
    tables = Campaign.tables

    def interrupted(campaign: Campaign) -> Iterator[Estimates]:
        for estimates in tables(campaign):
            if estimates.is_final:
                raise KeyboardInterrupt
            yield estimates

    with monkeypatch.context() as context:
        context.setattr(Campaign, "tables", interrupted)
        result = advise(*arguments, "--iterations", 4)
    assert result.exit_code == 130
    assert "Take f" in result.stdout
    assert result.stderr.splitlines()[-1].startswith("interrupted; measured points are kept")
    points = len(LineStore(kept))
    assert points
    assert advise(*arguments, "--iterations", 4).exit_code == 0
    assert len(LineStore(kept)) == points


@pytest.mark.parametrize("text", ["soon", "-1s", "3 lightyears"])
def test_faulty_budgets(tmp_path: Path, text: str) -> None:
    result = advise(tmp_path / "scenario.yaml", f"--budget={text}")
    assert result.exit_code == 2
    assert result.stderr.startswith("--budget: ")


def test_several_jobs_need_a_fabric(tmp_path: Path) -> None:
    result = advise(tmp_path / "a.yaml", tmp_path / "b.yaml")
    assert result.exit_code == 2
    assert "--fabric" in result.stderr


def test_every_policy_says_what_it_needs() -> None:
    result = CliRunner().invoke(app, ["policies", "--json"])
    said = {one["name"]: one for one in json.loads(result.stdout)["policies"]}
    assert said.keys() == set(policy_names())
    assert all(one["about"] for one in said.values())
    shown = CliRunner().invoke(app, ["policies"]).stdout.splitlines()[1:]
    assert [line.split()[0] for line in shown] == list(said)
