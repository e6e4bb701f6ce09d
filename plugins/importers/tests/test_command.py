"""`echelon import`: a file that can be checked, a summary, and one line for each mistake."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from echelon.cli import app
from echelon.model.jobs import build_job
from echelon.model.jobs.spec import load_job_spec
from tests.faults import mentions

DATA = Path(__file__).parent / "workloads"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["import", *(str(argument) for argument in arguments)])


def test_a_job_file_is_written_and_summarised(tmp_path: Path) -> None:
    out = tmp_path / "job.yaml"
    result = run(
        "pipedream",
        DATA / "vgg16.graph.txt",
        "-o",
        out,
        "--hosts",
        "a,b,c,d",
        "--bandwidth",
        "10 Gbit/s",
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert "40 layers" in result.stdout
    assert "stage 1" in result.stdout
    assert load_job_spec(out).workers == ("a", "b", "c", "d")


def test_hosts_have_several_ranks(tmp_path: Path) -> None:
    out = tmp_path / "job.yaml"
    traces = sorted(DATA.glob("*.et"))
    result = run(
        *(
            "chakra",
            *traces,
            "-o",
            out,
            "--ranks-per-host",
            "2",
            "--local-bandwidth",
            "100 Gbit/s",
            "--name",
            "n",
        ),
        *("--computing", "0 s"),
    )
    assert result.exit_code == 0, result.stderr
    spec = load_job_spec(out)
    assert (spec.job, spec.workers) == ("n", ("h1", "h2"))


def test_a_job_that_computes_nothing_is_refused_unless_that_is_meant(tmp_path: Path) -> None:
    lists, out = DATA / "G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1.csv", tmp_path / "job.yaml"
    refused = run("aicb", lists, "--hosts", "16", "-o", out)
    assert refused.exit_code == 2
    assert mentions(refused.stderr, lists, "--computing '0 s'")
    assert not out.exists()
    assert run("aicb", lists, "--hosts", "16", "-o", out, "--computing", "0 s").exit_code == 0
    assert not build_job(load_job_spec(out)).computes
    completed = run("aicb", lists, "--hosts", "16", "-o", out, "--computing", "300 ms")
    assert completed.exit_code == 0
    job = build_job(load_job_spec(out))
    by_host = Counter[str]()
    for unit in job.computes:
        by_host[unit.worker] += unit.duration_s  # type: ignore[assignment]
    assert set(by_host) == {f"h{number}" for number in range(1, 17)}
    # A file has durations to the picosecond, so that parts are rounded.
    assert all(
        abs(time_s - Fraction(3, 10)) < len(job.computes) * Fraction(1, 10**12)
        for time_s in by_host.values()
    )


@pytest.mark.parametrize(
    ("format_name", "file", "computing"),
    [
        ("pipedream", "vgg16.graph.txt", "0 s"),
        ("pipedream", "vgg16.graph.txt", "1 s"),
        ("chakra", "*.et", "1 s"),
    ],
)
def test_times_of_computing_go_with_files_that_lack_them(
    format_name: str, file: str, computing: str, tmp_path: Path
) -> None:
    of_pipedream = (
        ("--hosts", "4", "--bandwidth", "10 Gbit/s") if format_name == "pipedream" else ()
    )
    files = sorted(DATA.glob(file))
    result = run(
        format_name, *files, *of_pipedream, "-o", tmp_path / "job.yaml", "--computing", computing
    )
    assert result.exit_code == 2
    assert mentions(result.stderr, f"{files[0]}: --computing:")


def test_what_was_read_is_what_the_files_hold(tmp_path: Path) -> None:
    """Each of the four published traces has one node, a collective; one of them alone is run by all
    ranks.
    """
    traces, rest = sorted(DATA.glob("*.et")), ("-o", tmp_path / "job.yaml", "--computing", "0 s")
    assert "read: 4 nodes, 4 collectives\n" in run("chakra", *traces, *rest).stdout
    alone = run("chakra", traces[0], "--hosts", "8", *rest).stdout
    assert "read: 1 nodes, 1 collectives\n" in alone
    assert "derived: 8 ranks that run the same trace" in alone


@pytest.mark.parametrize(
    "arguments",
    [
        ("chakar", "x.et"),
        ("chakra", "absent.et"),
        ("pipedream", DATA / "vgg16.graph.txt"),
        ("pipedream", DATA / "vgg16.graph.txt", "--hosts", "4"),
        ("pipedream", DATA / "vgg16.graph.txt", "--hosts", "4", "--bandwidth", "fast"),
        (
            "pipedream",
            DATA / "vgg16.graph.txt",
            "--hosts",
            "4",
            "--bandwidth",
            "1 Gbit/s",
            "--layers",
            "2",
        ),
        (
            "pipedream",
            DATA / "vgg16.graph.txt",
            "--hosts",
            "4",
            "--bandwidth",
            "1 Gbit/s",
            "--set",
            "batches",
        ),
        ("chakra", *sorted(DATA.glob("*.et")), "--hosts", "3"),
        ("chakra", *sorted(DATA.glob("*.et")), "--name", "not a name", "--computing", "0 s"),
        ("aicb", next(DATA.glob("*.csv")), "--hosts", "16", "--gpu", "A100"),
        ("chakra", DATA / "vgg16.graph.txt", "--hosts", "4"),
        ("aicb", DATA / "vgg16.graph.txt", "--hosts", "4"),
        ("astra-sim", DATA / "vgg16.graph.txt", "--hosts", "4"),
        ("pytorch", DATA / "vgg16.graph.txt", "--hosts", "4"),
        ("simai", next(DATA.glob("*.txt")), "--iterations", "0"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str | Path, ...], tmp_path: Path) -> None:
    out = tmp_path / "job.yaml"
    result = run(*arguments, "-o", out)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert not out.exists()
