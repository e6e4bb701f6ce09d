"""`ptf/run.py` from outside: what it prints and how it ends.

Ports are Unix sockets, so nothing here needs root.

The tests of the data plane themselves run with `make ptf`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from echelon.model.p4program import program
from tests.needs import needs

RUN = Path(__file__).parents[2] / "ptf" / "run.py"
TEST = "reference.EpochDelta240"
"""A quick one: 16 iterations behind is the oldest straggler."""

pytestmark = needs("ptf")


def run(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(RUN), "--out", str(tmp_path), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


def test_a_test_that_passes(tmp_path: Path) -> None:
    done = run(tmp_path, "--ports", "unix", TEST)
    assert (done.returncode, done.stderr) == (0, "")
    head, row, _, summary = done.stdout.splitlines()
    assert head.split() == ["test", "result", "seconds"]
    assert row.split()[:2] == [TEST, "ok"]
    assert summary.startswith("softswitch over unix ports: 1 ok, in ")
    assert (tmp_path / "softswitch" / "log" / f"{TEST}.log").exists()


def test_a_program_that_is_wrong_fails(tmp_path: Path) -> None:
    good = program()
    broken = tmp_path / "broken"
    broken.mkdir()
    shutil.copy(good.p4info, broken)
    text = good.binary.read_text()
    assert '"0xf0"' in text, "STRAGGLER_FROM is compared with under another name now"
    (broken / good.binary.name).write_text(text.replace('"0xf0"', '"0xf1"'))
    done = run(
        tmp_path, "--ports", "unix", "--program", str(broken), TEST, "reference.EpochDelta239"
    )
    assert done.returncode == 1
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:3]] == [
        [TEST, "FAILED"],
        ["reference.EpochDelta239", "ok"],
    ]
    assert "'new' != 'straggler'" in done.stdout


def without(statement: str) -> str:
    """Return the program without a statement, which must be there."""
    compiled = json.loads(program().binary.read_text())
    found = 0
    for action in compiled["actions"]:
        kept = [
            each
            for each in action["primitives"]
            if each.get("source_info", {}).get("source_fragment") != statement
        ]
        found += len(action["primitives"]) - len(kept)
        action["primitives"] = kept
    assert found, f"the program has no statement {statement!r} now"
    return json.dumps(compiled)


@pytest.mark.parametrize(
    ("statement", "test"),
    [
        ("meta.queue = meta.ceiling", "order.AStreamFallsAtOnce"),
        ("meta.reference_us = told_us", "rankings.TheReferenceIsTold"),
        *(
            pytest.param(statement, test, marks=pytest.mark.long)
            for statement, test in (
                ("attained_epoch.write(index, 1w1 ++ meta.epoch)", "rankings.AttainedService"),
                ("meta.level_key = (bit<32>)(period - into)", "rankings.TimeWindow"),
                (
                    "queue_rank.write((bit<32>)(port ++ meta.queue), meta.rank ++ meta.stream)",
                    "order.AQueueThatNoneHasLeft",
                ),
                (
                    "queue_ranked.write((bit<32>)(port ++ meta.queue), meta.sequence)",
                    "order.AboveAndBelow",
                ),
                ("hdr.shim.memory = meta.memory", "rankings.MemoryIsTold"),
                ("late_us.read(late, index)", "rankings.Memory"),
            )
        ),
    ],
)
def test_a_ranking_that_forgets_a_step_fails(tmp_path: Path, statement: str, test: str) -> None:
    shutil.copy(program().p4info, tmp_path)
    (tmp_path / program().binary.name).write_text(without(statement))
    done = run(tmp_path, "--ports", "unix", "--program", str(tmp_path), test, TEST)
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:3]] == [
        [test, "FAILED"],
        [TEST, "ok"],
    ]


def test_a_program_that_the_target_refuses(tmp_path: Path) -> None:
    refused = tmp_path / "refused"
    refused.mkdir()
    shutil.copy(program().p4info, refused)
    (refused / "echelon.json").write_text("{}")
    done = run(tmp_path, "--ports", "unix", "--program", str(refused), "slack")
    assert done.returncode == 1
    assert "installing the program: INVALID_ARGUMENT" in done.stdout


def test_a_program_without_flows_is_refused_but_for_tests_that_need_none(tmp_path: Path) -> None:
    good, directory = program(), tmp_path / "without"
    directory.mkdir()
    shutil.copy(good.binary, directory)
    described = good.p4info.read_text()
    assert described.count('alias: "flow"') == 1
    (directory / good.p4info.name).write_text(described.replace('alias: "flow"', 'alias: "stream"'))
    words = ("--ports", "unix", "--program", str(directory))
    for tests in ((), ("counters", "unclaimed"), ("^counters",)):
        done = run(tmp_path, *words, *tests)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        for part in (str(directory), "table 'flow'", "SUITE=plugins/aggregation/ptf"):
            assert part in line
    done = run(tmp_path, *words, "unclaimed.NoRoute")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 ok" in done.stdout


def test_a_test_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path, "--ports", "unix", "nonsense")
    assert done.returncode == 2
    assert "nonsense did not match any tests" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_target_that_is_not_installed(tmp_path: Path) -> None:
    done = run(tmp_path, "--target", "bmv2", PATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("ptf: target bmv2: simple_switch_grpc is not installed (")
    assert done.stderr.count("\n") == 1
