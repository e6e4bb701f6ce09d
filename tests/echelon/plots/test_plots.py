"""Pictures of finished runs: one file of each kind and format, the same each time, and nothing that was not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread
from typer.testing import CliRunner, Result

from echelon.cli import app
from echelon.plots import Excerpt, load, plot_kinds
from echelon.plots.kinds import timeline, utilisation
from echelon.plots.style import WIDTHS_INCHES, Style
from echelon.simulation.run import simulate

ROOT = Path(__file__).parents[3]
KINDS = ("bars", "cdf", "iterations", "timeline", "utilisation")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    simulate(ROOT / "topologies/scenarios/dp_pair.yaml", ["fair", "echelon"]).write(out)
    return out


def plot(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["plot", *map(str, arguments)])


def test_all_kinds_are_found() -> None:
    assert tuple(plot_kinds()) == KINDS
    assert all(module.ABOUT for module in plot_kinds().values())


def test_every_kind_in_every_format_and_the_same_again(results: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        done = plot(results, "--format", "png,svg,pdf", "-o", tmp_path / name)
        assert done.exit_code == 0, done.output
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == sorted(f"{kind}.{suffix}" for kind in KINDS for suffix in ("png", "svg", "pdf"))
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


@pytest.mark.parametrize("width", WIDTHS_INCHES)
def test_pictures_have_the_width_of_the_page(width: str, results: Path, tmp_path: Path) -> None:
    assert plot(results, "--kind", "cdf", "--width", width, "-o", tmp_path).exit_code == 0
    assert imread(tmp_path / "cdf.png").shape[1] == round(300 * WIDTHS_INCHES[width])


def test_a_policy_that_was_not_run_is_named_and_not_drawn(results: Path, tmp_path: Path) -> None:
    done = plot(results, "--kind", "bars", "--policy", "fair", "--policy", "varys", "--format", "svg", "-o", tmp_path)
    assert done.exit_code == 0
    assert "varys" in done.stderr
    assert "fair" in (drawn := (tmp_path / "bars.svg").read_text())
    assert "varys" not in drawn


def test_the_timeline_has_the_iterations_that_are_asked_for(results: Path) -> None:
    selection = Excerpt(first=2, last=3)
    run = load(results, selection)
    spans = timeline._spans(run.policies["fair"], selection)  # noqa: SLF001
    flows = [
        flow
        for job in json.loads((results / "results.json").read_text())["results"]["fair"]["jobs"].values()
        for flow in job["flows"]
        if flow["iteration"] in (2, 3)
    ]
    assert sorted(span[3] for span in spans if span[1]) == sorted(flow["start_s"] for flow in flows)
    assert any(not span[1] for span in spans)


def test_a_timeline_of_many_workers_has_pages(results: Path, tmp_path: Path) -> None:
    document: dict[str, Any] = json.loads((results / "results.json").read_text())
    jobs = document["results"]["fair"]["jobs"]
    [first, *_] = jobs.values()
    for number in range(20):
        moved = [{**flow, "src": f"h{number}"} for flow in first["flows"]]
        jobs[f"job{number}"] = {**first, "flows": moved, "computes": []}
    file = tmp_path / "results.json"
    file.write_text(json.dumps({**document, "results": {"fair": document["results"]["fair"]}}))
    assert plot(file, "--kind", "timeline", "-o", tmp_path).exit_code == 0
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["timeline-1.png", "timeline-2.png"]


def test_utilisation_has_all_bytes_and_equal_times(results: Path) -> None:
    """Its bins hold what the flows carried until the shortest run ended."""
    flow = {"start_s": 1.0, "finish_s": 3.0, "bytes": 1000, "iteration": 1}
    loads = utilisation._loads_bps([flow], 4.0)  # noqa: SLF001
    assert sum(loads) * 4.0 / len(loads) == pytest.approx(8000)
    assert sum(utilisation._loads_bps([flow], 2.0)) * 2.0 / len(loads) == pytest.approx(4000)  # noqa: SLF001
    [figure] = utilisation.draw(load(results, Excerpt()), Excerpt(), Style())
    assert len({axis.get_xlim() for axis in figure.axes}) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kind", "bar"), "--kind: unknown kind 'bar' (did you mean 'bars'?)"),
        (("--format", "gif"), "--format: unknown format 'gif'"),
        (("--width", "colum"), "--width: unknown width 'colum' (did you mean 'column'?)"),
        (("--policy", "varys"), "results: none of the policies was run (there is echelon, fair)"),
        (("--job", "x"), "there is no job to draw"),
        (("--iterations", "3:2"), "--iterations: '3:2' is empty"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], said: str, results: Path, tmp_path: Path) -> None:
    done = plot(results, *arguments, "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert said in line


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"scenario": 1, "target": 2, "results": 3}'])
def test_what_is_no_result_is_said(text: str, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(text)
    done = plot(tmp_path, "-o", tmp_path)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
