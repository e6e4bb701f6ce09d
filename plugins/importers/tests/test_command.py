"""`echelon import`: a file that can be checked, a summary, and one line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from echelon.cli import app
from echelon.jobs.spec import load_job_spec

DATA = Path(__file__).parent / "workloads"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["import", *(str(argument) for argument in arguments)])


def test_a_job_file_is_written_and_summarised(tmp_path: Path) -> None:
    out = tmp_path / "job.yaml"
    result = run("pipedream", DATA / "vgg16.graph.txt", "-o", out, "--hosts", "a,b,c,d", "--bandwidth", "10 Gbit/s")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "40 layers" in result.stdout
    assert "stage 1" in result.stdout
    assert load_job_spec(out).workers == ("a", "b", "c", "d")


def test_hosts_have_several_ranks(tmp_path: Path) -> None:
    out = tmp_path / "job.yaml"
    traces = sorted(DATA.glob("*.et"))
    result = run(
        "chakra", *traces, "-o", out, "--ranks-per-host", "2", "--local-bandwidth", "100 Gbit/s", "--name", "n"
    )
    assert result.exit_code == 0, result.stderr
    spec = load_job_spec(out)
    assert (spec.job, spec.workers) == ("n", ("h1", "h2"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("chakar", "x.et"),
        ("chakra", "absent.et"),
        ("pipedream", DATA / "vgg16.graph.txt"),
        ("pipedream", DATA / "vgg16.graph.txt", "--hosts", "4"),
        ("pipedream", DATA / "vgg16.graph.txt", "--hosts", "4", "--bandwidth", "fast"),
        ("pipedream", DATA / "vgg16.graph.txt", "--hosts", "4", "--bandwidth", "1 Gbit/s", "--layers", "2"),
        ("pipedream", DATA / "vgg16.graph.txt", "--hosts", "4", "--bandwidth", "1 Gbit/s", "--set", "batches"),
        ("chakra", *sorted(DATA.glob("*.et")), "--hosts", "3"),
        ("chakra", *sorted(DATA.glob("*.et")), "--name", "not a name"),
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
