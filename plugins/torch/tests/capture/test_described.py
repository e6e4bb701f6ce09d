"""Records become traces, a job file and a summary. Nothing here needs PyTorch."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import echelon
from echelon.cli import app
from echelon.model.jobs.spec import load_job_spec
from echelon_importers.chakra.wire import WireNode, read_trace
from echelon_importers.chakra.writing import trace_bytes
from echelon_importers.importer import Source
from plugins.importers.tests.traces import split
from plugins.torch.tests.capture.records import Rank, write
from tests.faults import mentions


def describe(directory: Path, *ranks: Rank) -> tuple[dict[str, Any], echelon.Job]:
    """Return the summary and the job that `echelon capture --records` writes."""
    out, job = write(directory / "capture", *ranks), directory / "job.yaml"
    done = CliRunner().invoke(
        app, ["capture", "--records", "-o", str(out), "--job", str(job), "--json"]
    )
    assert done.exit_code == 0, done.output
    described = json.loads(done.stdout)
    assert {
        **json.loads((out / "summary.json").read_text()),
        "directory": str(out),
        "job": str(job),
    } == described
    return described, echelon.build_job(echelon.load_job(job))


def refused(directory: Path, *ranks: Rank) -> str:
    out = write(directory / "capture", *ranks)
    done = CliRunner().invoke(app, ["capture", "--records", "-o", str(out)])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    return done.stderr


def runs_on_fluid(job: Path) -> None:
    """Run a job that agents recognise, without a program."""
    scenario = {
        "scenario": "alone",
        "fabric": {
            "fabric": "one",
            "hosts": ["h1", "h2"],
            "switches": ["s"],
            "links": [
                {"between": [host, "s"], "rate": "100 Mbit/s", "delay": "1 us"}
                for host in ("h1", "h2")
            ],
        },
        "jobs": [{"file": str(job)}],
        "policies": ["fair"],
        "iterations": 2,
    }
    file, out = job.with_name("scenario.yaml"), job.with_name("out")
    file.write_text(yaml.safe_dump(scenario))
    done = CliRunner().invoke(app, ["run", str(file), "--target", "fluid", "-o", str(out)])
    assert done.exit_code == 0, done.output


def sent(job: echelon.Job) -> dict[tuple[str, str], int]:
    """Return the bytes between each pair of hosts, without those of words."""
    out: dict[tuple[str, str], int] = {}
    for flow in (flow for flow in job.flows if flow.size_bytes > 1):
        out[flow.src, flow.dst] = out.get((flow.src, flow.dst), 0) + flow.size_bytes
    return out


def ddp(rank: int, iterations: int = 3, last_s: float = 0.02) -> Rank:
    own = Rank(rank, 2)
    for _ in range(iterations):
        own.compute(0.04)
        first = own.call("all-reduce", 4000, backward=True)
        own.compute(0.03)
        second = own.call("all-reduce", 6000, backward=True)
        own.compute(last_s)
        own.wait(first, second, backward=True)
        own.compute(0.01)
        own.step()
    return own


def test_buckets_of_ddp(tmp_path: Path) -> None:
    described, job = describe(tmp_path, ddp(0), ddp(1))
    assert [each["paradigm"] for each in described["paradigms"]] == ["data"]
    assert (described["iterations"], described["other_iterations"], described["found_by"]) == (
        3,
        0,
        "steps of the optimizer",
    )
    # A ring of two ranks sends as much as there is.
    assert sent(job) == {("h1", "h2"): 10_000, ("h2", "h1"): 10_000}
    # A network that takes no time leaves the computing: forward, backward, step. Waiting is left
    # out.
    assert sum(unit.duration_s for unit in job.computes if unit.worker == "h1") == Fraction(10, 100)
    [first] = [unit for unit in job.computes if unit.worker == "h1" and not unit.after]
    assert {
        flow.after for flow in job.flows if flow.src == "h1" and flow.name.startswith("pg0-0-k1-c")
    } == {(first.name,)}


def test_times_that_vary_have_a_spread_and_the_median_iteration_counts(tmp_path: Path) -> None:
    own = ddp(0)
    for last_s in (0.02, 0.9):
        more = ddp(0, 1, last_s)
        own.iterations += more.iterations
    described, job = describe(tmp_path, own, ddp(1, 5))
    spread = described["by_rank"][0]["compute_s"]
    assert (spread["median"], spread["p10"]) == pytest.approx((0.1, 0.1))
    assert 0.1 < spread["p90"] < 0.98
    assert sum(unit.duration_s for unit in job.computes if unit.worker == "h1") == Fraction(10, 100)
    assert "#   rank 0: 600 (600 to 1128) ms, of which 100 (100 to 628) ms computing\n" in (
        tmp_path / "job.yaml"
    ).read_text(encoding="utf-8")


def test_computing_is_that_of_one_iteration(tmp_path: Path) -> None:
    """One rank or the other is late, so no iteration is as short as medians of their computing."""
    ranks = [Rank(0, 2), Rank(1, 2)]
    for late in (0, 1, 0, 1, 0):
        for own in ranks:
            own.compute(0.5 if own.rank == late else 0.1)
            own.both("all-reduce", 1000)
            own.step()
    _, job = describe(tmp_path, *ranks)
    assert sorted(unit.duration_s for unit in job.computes) == [Fraction(1, 10), Fraction(5, 10)]


def test_the_idle_gap_that_tells_iterations_apart(tmp_path: Path) -> None:
    """Rank 1 sends for half a second.

    Then it is silent for 50 ms until its next iteration, and 10 ms less once.
    """
    ranks = [Rank(0, 2), Rank(1, 2)]
    for own in ranks:
        for first_s in (0.05, 0.05, 0.04):
            own.compute(first_s - 0.01 * own.rank)
            early = own.call("all-reduce", 10**6, backward=True)
            own.compute(0.3)
            late = own.call("all-reduce", 10**6, backward=True)
            own.wait(early, late, backward=True)
            own.compute(0.01)
            own.step()
    out, job = write(tmp_path / "capture", *ranks), tmp_path / "job.yaml"
    command = ["capture", "--records", "-o", str(out), "--job", str(job), "--for-agent"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    recognition = load_job_spec(job).recognition
    # Rank 0 is silent for 50 ms in front of the last iteration, rank 1 for 40 ms.
    assert (recognition.by, recognition.idle_gap) == ("agent", Fraction(20, 1000))
    assert recognition.iterations == "silence"
    runs_on_fluid(job)


def test_iterations_go_by_bytes_where_a_rank_is_silent_within_its_iteration(tmp_path: Path) -> None:
    ranks = [Rank(0, 2), Rank(1, 2)]
    for own in ranks:
        for _ in range(3):
            own.both("all-reduce", 10**6, backward=True)
            own.compute(0.04)
            own.both("all-reduce", 10**3, backward=True)
            own.compute(0.05)
            own.step()
    out, job = write(tmp_path / "capture", *ranks), tmp_path / "job.yaml"
    done = CliRunner().invoke(
        app, ["capture", "--records", "-o", str(out), "--job", str(job), "--for-agent"]
    )
    assert done.exit_code == 0, done.output
    assert "as little as 50 ms between two, and up to 40 ms within one" in done.stdout
    recognition = load_job_spec(job).recognition
    # Iterations of 1.09 s: whatever is silent for longer has stopped.
    assert (recognition.iterations, recognition.idle_gap) == ("bytes", Fraction(1091, 1000))
    runs_on_fluid(job)
    done = CliRunner().invoke(app, ["capture", "--records", "-o", str(out), "--for-agent"])
    assert (done.exit_code, "--job" in done.stderr) == (2, True)


def test_nodes_have_the_names_of_modules_and_the_summary_their_spread(tmp_path: Path) -> None:
    ranks = [Rank(0, 2), Rank(1, 2)]
    for own in ranks:
        for first_s in (0.1, 0.2, 0.3):
            own.compute(first_s)
            own.both("all-reduce", 1000, module="layers.0.mlp/down")
            own.compute(0.05)
            own.both("all-reduce", 1000, module="layers.0.mlp/down", backward=True)
            own.step()
    described, job = describe(tmp_path, *ranks)
    names = [unit.name for unit in job.computes if unit.worker == "h1"]
    assert names[0].startswith("n1-layers.0.mlp_down-r0")
    assert any(name.endswith("-layers.0.mlp_down.backward-r0") for name in names)
    first, _, second, _ = described["by_rank"][0]["computing"]
    assert first == {
        "before": "layers.0.mlp/down", "used_s": 0.2, "median": 0.2, "p10": 0.12, "p90": 0.28, "mean": 0.2
    }  # fmt: skip
    assert second["before"] == "layers.0.mlp/down.backward"


def test_hosts_of_several_ranks_are_silent_while_these_talk_to_each_other(tmp_path: Path) -> None:
    """Ranks of a host share layers all the time, and send gradients to others once; rank 1 does so
    30 ms later.
    """
    groups = {"tp": [0, 1], "tp2": [2, 3], "dp": [0, 2], "dp2": [1, 3]}
    ranks = [Rank(number, 4, groups) for number in range(4)]
    for own in ranks:
        tp, dp = ("tp", "tp2")[own.rank // 2], ("dp", "dp2")[own.rank % 2]
        for name, group in own.groups.items():
            group["called"] = f"mesh_{name}"
        for _ in range(3):
            for backward in (False, True):
                own.compute(0.1)
                own.both("all-reduce", 5000, group=tp, backward=backward)
            own.compute(0.03 * (own.rank % 2))
            own.both("all-reduce", 10**6, group=dp)
            own.compute(0.03 * (own.rank % 2 == 0))
            own.step()
    out, job = write(tmp_path / "capture", *ranks), tmp_path / "job.yaml"
    command = [
        "capture",
        "--records",
        "-o",
        str(out),
        "--job",
        str(job),
        "--for-agent",
        "--ranks-per-host",
        "2",
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    spec = load_job_spec(job)
    assert (spec.workers, spec.recognition.iterations) == (("h1", "h2"), "silence")
    assert set(yaml.safe_load(job.read_text())["graph"]["groups"]) == {
        "mesh_tp0",
        "mesh_tp1",
        "mesh_dp0",
        "mesh_dp1",
    }
    made = echelon.build_job(spec)
    assert sum(flow.size_bytes for flow in made.flows if flow.size_bytes > 1) == 2 * 2 * 10**6
    # From the end of the late rank's gradient: twice 100 ms of computing, and two sums of 500 ms
    # each.
    assert spec.recognition.idle_gap == Fraction(12, 10) / 2


@pytest.mark.parametrize(("delayed_s", "warns"), [(0.02, False), (0.06, True)])
def test_a_busy_machine_is_said_with_figures(tmp_path: Path, delayed_s: float, warns: bool) -> None:
    ranks = [Rank(0, 2), Rank(1, 2)]
    for own in ranks:
        for _ in range(3):
            own.compute(0.1)
            own.both("all-reduce", 1000)
            own.step(delayed_s if own.rank else 0)
    out, job = write(tmp_path / "capture", *ranks), tmp_path / "job.yaml"
    done = CliRunner().invoke(app, ["capture", "--records", "-o", str(out), "--job", str(job)])
    assert done.exit_code == 0, done.output
    for text in (done.stdout, job.read_text(encoding="utf-8")):
        assert ("waited for a processor: rank 1 60 of 600 ms (10%)" in text) == warns
        assert "rank 0 0" not in text


def test_gradients_that_are_averaged_behind_the_backward_pass_are_data_parallel(
    tmp_path: Path,
) -> None:
    """A program of two dimensions without DDP has tensor parallelism in both passes, then an
    all-reduce for data.
    """
    groups = {"tp": [0, 1], "tp2": [2, 3], "dp": [0, 2], "dp2": [1, 3]}
    ranks = [Rank(number, 4, groups) for number in range(4)]
    for own in ranks:
        tp, dp = ("tp", "tp2")[own.rank // 2], ("dp", "dp2")[own.rank % 2]
        own.both("all-reduce", 5000, group=tp)
        own.both("all-reduce", 5000, group=tp, backward=True)
        own.both("all-reduce", 3000, group=dp)
        own.both("all-reduce", 900, group=dp)
        own.step()
    described, _ = describe(tmp_path, *ranks)
    found = {each["paradigm"]: each["because"] for each in described["paradigms"]}
    assert found.keys() == {"tensor", "data"}
    assert "behind the backward pass" in found["data"]


def test_iterations_that_do_something_else_are_left_out(tmp_path: Path) -> None:
    ranks = [ddp(0), ddp(1)]
    for own in ranks:
        own.both("broadcast", 10**6)
        own.step()
    described, job = describe(tmp_path, *ranks)
    assert (described["iterations"], described["other_iterations"]) == (3, 1)
    assert sum(sent(job).values()) == 20_000


def test_sharding_and_the_reduce_scatter_of_each_backend(tmp_path: Path) -> None:
    def rank(number: int, backend: str) -> Rank:
        own = Rank(number, 2, backend=backend)
        for _ in range(2):
            for _ in range(2):
                own.both("all-gather", 500)
                own.compute(0.1)
            own.both("all-gather", 500, backward=True)
            own.both("reduce-scatter", 1000, backward=True)
            own.both("reduce-scatter", 1000, backward=True)
            own.step()
        return own

    for backend, scattered in (("nccl", 500), ("gloo", 1000)):
        (tmp_path / backend).mkdir()
        described, job = describe(tmp_path / backend, rank(0, backend), rank(1, backend))
        assert [each["paradigm"] for each in described["paradigms"]] == ["fsdp"]
        # Each gathers what the other has: 500 B of 1000 B.
        assert sent(job)["h1", "h2"] == 3 * 500 + 2 * scattered


def test_a_pipeline(tmp_path: Path) -> None:
    first, last = Rank(0, 2), Rank(1, 2)
    for _ in range(2):
        sends = []
        for _ in range(3):
            first.compute(0.1)
            sends.append(first.call("send", 2000, peer=1))
        for _ in range(3):
            first.both("receive", 2000, peer=1)
            first.compute(0.2)
        first.wait(*sends, lasts_s=0)
        first.step()
        for _ in range(3):
            last.both("receive", 2000, peer=0)
            last.compute(0.1)
        for _ in range(3):
            last.compute(0.2)
            last.both("send", 2000, peer=0)
        last.step()
    described, job = describe(tmp_path, first, last)
    [paradigm] = described["paradigms"]
    assert (paradigm["paradigm"], "GPipe" in paradigm["because"]) == ("pipeline", True)
    # Each transfer is called for by a byte the other way.
    assert sent(job) == {("h1", "h2"): 6000, ("h2", "h1"): 6000}
    assert sum(flow.size_bytes == 1 for flow in job.flows) == 6
    # The consumer calls for an activation when it has consumed the one before, so each is due when
    # it starts.
    activations = tuple(flow.name for flow in job.flows if flow.src == "h1" and flow.size_bytes > 1)
    assert {(each,) for each in activations} <= {each.flows for each in job.echelonflows}
    # Were it sent before, the activations would be an EchelonFlow with the distance of the
    # consumer's computing.
    out = tmp_path / "capture"
    files = [str(out / name) for name in ("rank-0.et", "rank-1.et", "groups.json")]
    done = CliRunner().invoke(app, ["import", "chakra", *files, "-o", str(tmp_path / "eager.yaml")])
    assert done.exit_code == 0, done.output
    eager = echelon.build_job(echelon.load_job(tmp_path / "eager.yaml"))
    offsets = {each.flows: each.offsets_s for each in eager.echelonflows}
    assert offsets[activations] == (0, Fraction(1, 10), Fraction(2, 10))


def test_experts_with_uneven_tokens(tmp_path: Path) -> None:
    tokens = {0: [(300, 700), (500, 900)], 1: [(100, 0), (200, 0)]}
    ranks = []
    for number, iterations in tokens.items():
        own = Rank(number, 2)
        for parts in iterations:
            own.both("all-to-all", sum(parts), parts=list(parts))
            own.compute(0.1)
            own.step()
        ranks.append(own)
    described, job = describe(tmp_path, *ranks)
    assert [each["paradigm"] for each in described["paradigms"]] == ["expert"]
    assert sent(job) == {("h1", "h2"): 800, ("h2", "h1"): 150}
    [row] = described["operations"]
    assert (row["bytes"]["p10"], row["bytes"]["p90"]) == (1040, 1360)


def test_tensor_parallelism_waits_in_both_passes(tmp_path: Path) -> None:
    ranks = [Rank(0, 2), Rank(1, 2)]
    for own in ranks:
        own.both("all-reduce", 1000)
        own.compute(0.1)
        own.both("all-reduce", 1000, backward=True)
        own.step()
    described, _ = describe(tmp_path, *ranks)
    assert [each["paradigm"] for each in described["paradigms"]] == ["tensor"]


def test_what_has_no_paradigm_keeps_its_graph(tmp_path: Path) -> None:
    groups = {"0": [0, 1, 2], "odd": [2, 0]}
    ranks = [Rank(number, 3, groups) for number in range(3)]
    for own in ranks:
        own.both("gather", 600, peer=1)
        own.both("scatter", 300, peer=2)
        own.both("broadcast", 1200, peer=1)
        if own.rank != 1:
            own.both("reduce", 50, group="odd", peer=0)
        own.step()
    described, job = describe(tmp_path, *ranks)
    assert described["paradigms"] == []
    names = {
        flow.name: (flow.src, flow.dst, flow.size_bytes)
        for flow in job.flows
        if flow.size_bytes > 1
    }
    transfers = sorted(value for name, value in names.items() if name.startswith("send"))
    assert transfers == [("h1", "h2", 600), ("h3", "h1", 300), ("h3", "h2", 300), ("h3", "h2", 600)]
    # The roots are rank 1 of all, who sends, and rank 2, who gets the sum.
    received = dict.fromkeys(("h1", "h2", "h3"), 0)
    for _, dst, size in names.values():
        received[dst] += size if size in (1200, 50) else 0
    assert received == {"h1": 1200, "h2": 0, "h3": 1250}


def test_iterations_without_marks_are_found_by_repetition(tmp_path: Path) -> None:
    ranks = [Rank(0, 2), Rank(1, 2)]
    for own in ranks:
        own.both("broadcast", 77)
        for _ in range(8):
            own.compute(0.1)
            own.both("all-reduce", 1000)
            own.compute(0.2)
            own.both("all-reduce", 3000)
    described, job = describe(tmp_path, *ranks)
    assert described["found_by"] == "repetition of the operations"
    assert described["iterations"] >= 3
    assert sent(job)["h1", "h2"] == 4000
    assert sum(unit.duration_s for unit in job.computes if unit.worker == "h1") == Fraction(3, 10)


def test_records_that_cannot_be_described(tmp_path: Path) -> None:
    assert "rank 1" in refused(tmp_path / "a", ddp(0))
    strange = ddp(0)
    strange.groups = {"0": {"ranks": [1, 2], "backend": "gloo"}}
    assert "iterations[0].calls[0]" in refused(tmp_path / "b", strange, ddp(1))
    silent = [Rank(0, 2), Rank(1, 2)]
    for own in silent:
        own.both("broadcast", 77)
    assert mentions(refused(tmp_path / "c", *silent), "the capture", "--skip")
    uneven = ddp(1)
    for iteration in uneven.iterations:
        iteration["calls"][1]["bytes"] = 5
    (tmp_path / "d").mkdir()
    out = write(tmp_path / "d" / "capture", ddp(0), uneven)
    done = CliRunner().invoke(
        app, ["capture", "--records", "-o", str(out), "--job", str(tmp_path / "job.yaml")]
    )
    assert done.exit_code == 2
    assert mentions(done.stderr, "rank-1.et: node 4", "node 4 of rank-0.et")


@pytest.mark.parametrize(
    "damage", ["{", "[]", '{"echelon_capture": 2}', '{"echelon_capture": 1, "rank": -1}']
)
def test_files_that_are_no_records(damage: str, tmp_path: Path) -> None:
    (tmp_path / "rank-0.json").write_text(damage)
    done = CliRunner().invoke(app, ["capture", "--records", "-o", str(tmp_path)])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert str(tmp_path / "rank-0.json") in done.stderr


def test_the_bytes_of_a_trace_are_those_that_protobuf_reads() -> None:
    attributes = {"comm_type": 0, "comm_size": 2**40, "pg_name": "ö", "comm_parts": (0, 300)}
    nodes = [
        ("first", WireNode(1, 4, (), (), 0, {}, 2)),
        ("second", WireNode(300, 7, (1,), (1, 200), 129, attributes, 2)),
    ]
    data = trace_bytes(nodes)
    first, second = split(data)
    assert (first.id, first.name, first.type, list(first.data_deps)) == (1, "first", 4, [])
    assert (second.id, second.duration_micros, list(second.data_deps), list(second.ctrl_deps)) == (
        300,
        129,
        [1, 200],
        [1],
    )
    said = {each.name: each for each in second.attr}
    assert (said["comm_size"].uint64_val, said["pg_name"].string_val) == (2**40, "ö")
    assert (said["comm_type"].WhichOneof("value"), said["comm_type"].uint64_val) == (
        "uint64_val",
        0,
    )
    assert list(said["comm_parts"].uint64_list.values) == [0, 300]
    assert read_trace(Source("trace.et", data)) == [node for _, node in nodes]
