"""Records of the observer in real processes that use PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from echelon.switches.processes import free_port
from tests.needs import needs

ROOT = Path(__file__).parents[4]
PATIENCE_S = 300
# With two processors, more than one thread in each rank would only take turns.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]

pytestmark = [needs("torch"), pytest.mark.xdist_group("torch")]


def capture(*command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "echelon",
            "capture",
            "-o",
            "out",
            "--job",
            "job.yaml",
            "--json",
            "--",
            *command,
        ],
        cwd=directory,
        env={**ENVIRONMENT, "PYTHONPATH": str(ROOT / "controller")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_script_without_a_change_is_captured(tmp_path: Path) -> None:
    script = str(ROOT / "examples" / "torch" / "ddp.py")
    # A sitecustomize of the environment's own still runs.
    (tmp_path / "sitecustomize.py").write_text("import pathlib; pathlib.Path('imported').touch()")
    launch = [
        *TORCHRUN,
        "--master-port",
        str(free_port()),
        script,
        "--width",
        "64",
        "--layers",
        "6",
    ]
    done = capture(
        "env",
        f"PYTHONPATH={_injected()}:{tmp_path}",
        *launch,
        "--bucket-mb",
        "0.03",
        directory=tmp_path,
    )
    # With DDP, threads of Gloo outlive `destroy_process_group`. One of them may free a tensor when
    # Python ends already, which aborts the process, observed or not (PyTorch 2.13; its issue
    # 190489). What they have recorded counts.
    assert done.stdout, done.stderr
    described = json.loads(done.stdout)
    assert [each["paradigm"] for each in described["paradigms"]] == ["data"]
    assert (described["iterations"], described["found_by"]) == (10, "steps of the optimizer")
    # Each of 6 layers has a matrix and a bias, of 4 bytes a number.
    reduced = [each["bytes"]["median"] for each in described["operations"]]
    assert len(reduced) > 1
    assert sum(reduced) == 6 * (64 * 64 + 64) * 4
    assert all(each["backward"] for each in described["operations"])
    assert (tmp_path / "imported").exists()
    assert (tmp_path / "job.yaml").read_text().startswith("# data: ")


def test_sequence_parallelism_and_activations_that_are_computed_again(tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("sequence_parallel.py"))
    done = capture(*TORCHRUN, "--master-port", str(free_port()), script, directory=tmp_path)
    assert done.returncode == 0, done.stderr
    described = json.loads(done.stdout)
    assert [each["paradigm"] for each in described["paradigms"]] == ["tensor"]
    part = 16 * 64 * 4
    sizes = {
        (each["kind"], each["bytes"]["median"])
        for each in described["operations"]
        if each["bytes"]["median"] >= part
    }
    assert sizes == {("all-gather", part), ("reduce-scatter", 2 * part)}
    # A layer gathers forward, again when it is computed again, and the gradient of what it
    # scattered.
    gathers = [each["backward"] for each in described["operations"] if each["kind"] == "all-gather"]
    assert (gathers.count(False), gathers.count(True)) == (2, 4)


def _injected() -> Path:
    return ROOT / "plugins" / "torch" / "echelon_torch" / "injected"


def test_a_command_that_fails_or_records_nothing(tmp_path: Path) -> None:
    done = capture(
        sys.executable, "-c", "import torch.distributed; raise SystemExit(3)", directory=tmp_path
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert "init_process_group" in done.stderr
    assert capture(sys.executable, "-c", "", directory=tmp_path).returncode == 2


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("records")
    script = str(Path(__file__).with_name("every_operation.py"))
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, script, str(out)],
            env={
                **ENVIRONMENT,
                "PYTHONPATH": str(ROOT / "controller"),
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            },
        )
        for rank in range(2)
    ]
    for rank in ranks:
        rank.wait(PATIENCE_S)
    assert {path.name for path in out.glob("done-*")} == {"done-0", "done-1"}
    return [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(2)]


def test_every_operation_is_recorded_with_its_bytes(records: list[dict[str, Any]]) -> None:
    for rank, record in enumerate(records):
        assert (record["rank"], record["ranks"], record["device"], record["unmarked"]) == (
            rank,
            2,
            "cpu",
            None,
        )
        assert [len(each["calls"]) for each in record["iterations"]] == [12 + rank] * 2
        [group] = {name for name, each in record["groups"].items() if each["ranks"] == [0, 1]}
        assert {each["called"] for each in record["groups"].values()} == {"", *["odd ranks"][:rank]}
        calls = record["iterations"][0]["calls"]
        transfer = ("send", 16, 1) if rank == 0 else ("receive", 16, 0)
        assert [
            (each["kind"], each["bytes"], each.get("peer"))
            for each in calls
            if each["group"] == group
        ] == [
            ("all-reduce", 40, None),
            ("all-reduce", 16, None),
            ("broadcast", 40, 1),
            ("reduce", 40, 1),
            ("all-gather", 40, None),
            ("gather", 40, 0),
            ("scatter", 40, 1),
            ("all-to-all", 16, None),
            ("all-to-all", 12, None),
            transfer,
            ("barrier", 0, None),
            ("all-reduce", 16, None),
        ]
        assert [each["parts"] for each in calls if each.get("parts")] == [[4, 8]]
        assert not any(each["backward"] for each in calls)
        assert [each["module"] for each in calls] == [""] * (len(calls) - 1) + ["head.0"]


def test_times_and_waits_are_in_order(records: list[dict[str, Any]]) -> None:
    for record in records:
        for iteration in record["iterations"]:
            awaited = [call for wait in iteration["waits"] for call in wait["calls"]]
            assert sorted(awaited) == list(range(len(iteration["calls"]))), (
                "the script waits for everything once"
            )
            assert awaited.index(1) > awaited.index(2), "what is called first may be awaited last"
            for call in iteration["calls"]:
                assert (
                    iteration["start_s"]
                    <= call["start_s"]
                    <= call["returned_s"]
                    <= iteration["end_s"]
                )
                assert call["start_s"] <= call["end_s"] <= iteration["end_s"]
