"""Pictures of finished runs: one file of each kind and format, the same each time, and nothing that
was not run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread
from typer.testing import CliRunner, Result

from echelon.cli import app
from echelon_lab.plots import Excerpt, MeasuredRun, kind_names, load, load_kind, terminal
from echelon_lab.plots.kinds import overlap, timeline, utilisation
from echelon_lab.plots.measured import loads_bps, within
from echelon_lab.plots.style import MOST, WIDTHS_INCHES, Style, colour
from echelon_lab.run import simulate
from tests.faults import mentions

ROOT = Path(__file__).parents[4]
KINDS = ("bars", "cdf", "iterations", "links", "overlap", "summary", "timeline", "utilisation")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    simulate(ROOT / "topologies/scenarios/dp_pair.yaml", ["fair", "echelon"]).write(out)
    return out


def plot(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["plot", *map(str, arguments)])


def test_all_kinds_are_found() -> None:
    assert kind_names() == KINDS
    assert all(load_kind(name).ABOUT for name in KINDS)


@pytest.mark.wide
def test_every_kind_in_every_format_and_the_same_again(results: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        done = plot(results, "--format", "png,svg,pdf", "-o", tmp_path / name)
        assert done.exit_code == 0, done.output
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == sorted(f"{kind}.{suffix}" for kind in KINDS for suffix in ("png", "svg", "pdf"))
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), (
            file
        )


@pytest.mark.parametrize("width", WIDTHS_INCHES)
def test_pictures_have_the_width_of_the_page(width: str, results: Path, tmp_path: Path) -> None:
    assert plot(results, "--kind", "cdf", "--width", width, "-o", tmp_path).exit_code == 0
    assert imread(tmp_path / "cdf.png").shape[1] == round(300 * WIDTHS_INCHES[width])


def test_a_policy_that_was_not_run_is_named_and_not_drawn(results: Path, tmp_path: Path) -> None:
    done = plot(
        results,
        "--kind",
        "bars",
        "--policy",
        "fair",
        "--policy",
        "varys",
        "--format",
        "svg",
        "-o",
        tmp_path,
    )
    assert done.exit_code == 0
    assert "varys" in done.stderr
    assert "fair" in (drawn := (tmp_path / "bars.svg").read_text())
    assert "varys" not in drawn


def test_the_timeline_has_the_iterations_that_are_asked_for(results: Path) -> None:
    selection = Excerpt(first=2, last=3)
    run = load(results, selection)
    rows = timeline.rows_of(run.policies["fair"], selection).values()
    flows = [
        flow
        for job in json.loads((results / "results.json").read_text())["results"]["fair"][
            "jobs"
        ].values()
        for flow in job["flows"]
        if flow["iteration"] in (2, 3)
    ]
    drawn = [bar.start_s for row in rows for lane in row.flows for bar in lane]
    assert sorted(drawn) == sorted(flow["start_s"] for flow in flows)
    assert all(row.computes for row in rows)


def test_bars_are_where_things_happened(tmp_path: Path) -> None:
    simulate(ROOT / "topologies/scenarios/fig2.yaml", ["fair"]).write(tmp_path)
    selection = Excerpt()
    h1, h2 = timeline.rows_of(load(tmp_path, selection).policies["fair"], selection).values()
    assert [(bar.start_s, bar.finish_s, bar.label) for lane in h1.computes for bar in lane] == [
        (0, 1, "1"),
        (1, 2, "2"),
        (2, 3, "3"),
    ]
    # Fig. 2a: the activations overlap, so that each has a lane of its own, and its ideal finish
    # time in it. They arrive when their last packet has passed two links of 1 Gbit/s.
    passing_s = 0.000023
    drawn = [[(bar.start_s, bar.ideal_s) for bar in lane] for lane in h1.flows]
    assert drawn == [[(1, 1)], [(2, 2)], [(3, 3)]]
    arrived = [bar.finish_s - passing_s for lane in h1.flows for bar in lane]
    assert arrived == pytest.approx([4.5, 6.5, 7])
    computed = [bar.finish_s - passing_s for lane in h2.computes for bar in lane]
    assert computed == pytest.approx([5.5, 7.5, 8.5])


def test_titles_say_how_iterations_compare() -> None:
    def of(*times_s: float) -> dict[str, Any]:
        return {
            "jobs": {
                "a": {"iteration_times_s": list(times_s), "alone_iteration_s": 1.0, "flows": []}
            }
        }

    run = MeasuredRun({"fair": of(2.0, 4.0), "varys": of(9.0), "echelon": of(1.0, 1.25)})
    assert run.message(Excerpt()) == "Under echelon iterations take 62 % less time than under fair"
    first = "Under echelon iterations take 50 % less time than under fair (iterations 1 to 1)"
    assert run.message(Excerpt(first=1, last=1)) == first
    same = MeasuredRun({"fair": of(2.0), "echelon": of(2.0)})
    assert same.message(Excerpt()) == "Under echelon iterations take as long as under fair"
    assert (
        MeasuredRun({"fair": of(2.0)}).message(Excerpt())
        == "Iterations under fair: 2.00 times the time alone"
    )


def test_the_title_of_a_timeline_counts_the_iterations_that_the_table_counts(results: Path) -> None:
    """It draws three of them."""
    run = load(results, Excerpt())
    [figure, *_] = timeline.draw(run, selection := Excerpt(), Style())
    assert selection.last == 3
    assert figure.get_suptitle().replace("\n", " ") == run.message(Excerpt())
    assert [axis.get_title() for axis in figure.axes] == [
        run.headline(of, Excerpt()) for of in run.policies
    ]


@pytest.mark.parametrize("width", WIDTHS_INCHES)
def test_a_timeline_of_seven_policies_fits_a_page(width: str, results: Path) -> None:
    run = load(results, Excerpt())
    many = MeasuredRun({f"policy {number}": run.policies["fair"] for number in range(7)})
    pages = timeline.draw(many, Excerpt(), Style(width))
    assert all(page.get_figheight() < _PAGE_INCHES for page in pages)
    workers = [label.get_text() for page in pages for label in page.axes[0].get_yticklabels()]
    assert workers == list(timeline.rows_of(run.policies["fair"], Excerpt()))


_PAGE_INCHES = 11


def test_no_colour_comes_twice_in_a_picture() -> None:
    assert len({colour(place) for place in range(500)}) == 500
    jobs = {
        f"j{n}": {"iteration_times_s": [1.0], "alone_iteration_s": 1.0, "flows": []}
        for n in range(20)
    }
    unit = {"worker": "h1", "iteration": 1, "start_s": 0.0, "finish_s": 1.0}
    run = MeasuredRun(
        {"fair": {"jobs": {name: {**of, "computes": [unit]} for name, of in jobs.items()}}}
    )
    [figure] = timeline.draw(run, Excerpt(), Style())
    [legend] = figure.legends
    seen = [patch.get_facecolor() for patch in legend.get_patches()]
    assert len(seen) == len(set(seen)) == 20 + len(("computing", "sending"))


def test_a_link_is_never_used_more_than_it_carries() -> None:
    assert within([0.0, 1.5, 0.25, 0.0]) == [0.0, 1.0, 0.75, 0.0]
    assert within([0.0, 0.5, 1.75]) == [0.25, 1.0, 1.0]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=30))
def test_moving_what_a_link_cannot_carry_loses_nothing(quarters: list[int]) -> None:
    uses = [min(quarter, 4 * len(quarters)) / 4 for quarter in quarters]
    moved = within(uses)
    assert max(moved) <= 1
    assert sum(moved) == min(sum(uses), len(uses))


def test_a_timeline_in_characters_shows_what_the_paper_shows() -> None:
    """Fig. 2a and 2c: the units of worker 2 are where they are in the paper, a character for every
    eighth second.
    """
    run = simulate(ROOT / "topologies/scenarios/fig2.yaml", ["fair", "echelon"]).results["results"]
    lines = terminal.timeline(MeasuredRun(run), width=len("  h1 computes ") + 68).splitlines()
    fair, echelon = (line.removeprefix("  h2 computes ") for line in lines if "h2 computes" in line)
    assert fair == "." * 36 + "1" * 8 + "." * 8 + "2" * 8 + "3" * 8
    assert echelon == "." * 24 + "1" * 8 + "." * 8 + "2" * 8 + "." * 8 + "3" * 8 + "." * 4


def test_a_timeline_in_characters_fits_a_screen(results: Path) -> None:
    run = load(results, Excerpt())
    for policies in (1, 7, 12):
        many = MeasuredRun({f"policy {number}": run.policies["fair"] for number in range(policies)})
        lines = terminal.timeline(many).splitlines()
        assert max(map(len, lines)) <= 80
        assert len(lines) <= max(25, 1 + 3 * policies)


def test_a_timeline_of_many_workers_has_pages(results: Path, tmp_path: Path) -> None:
    document: dict[str, Any] = json.loads((results / "results.json").read_text())
    jobs = document["results"]["fair"]["jobs"]
    [first, *_] = jobs.values()
    for number in range(30):
        moved = [{**flow, "src": f"h{number}"} for flow in first["flows"]]
        jobs[f"job{number}"] = {**first, "flows": moved, "computes": []}
    file = tmp_path / "results.json"
    file.write_text(json.dumps({**document, "results": {"fair": document["results"]["fair"]}}))
    assert plot(file, "--kind", "timeline", "-o", tmp_path).exit_code == 0
    assert sorted(path.name for path in tmp_path.glob("*.png")) == [
        "timeline-1.png",
        "timeline-2.png",
    ]


def test_utilisation_has_all_bytes_and_equal_times(results: Path) -> None:
    """Its bins hold what the flows carried until the shortest run ended."""
    flow = {"start_s": 1.0, "finish_s": 3.0, "bytes": 1000, "iteration": 1}
    assert sum(loads_bps([flow], 4.0, 150)) * 4.0 / 150 == pytest.approx(8000)
    assert sum(loads_bps([flow], 2.0, 150)) * 2.0 / 150 == pytest.approx(4000)
    [figure] = utilisation.draw(load(results, Excerpt()), Excerpt(), Style())
    assert len({axis.get_xlim() for axis in figure.axes}) == 1


def test_links_without_paths_are_not_drawn(results: Path, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_bytes((results / "results.json").read_bytes())
    done = plot(tmp_path, "--kind", "links", "-o", tmp_path)
    assert done.exit_code == 0
    assert not list(tmp_path.glob("*.png"))
    assert mentions(done.stderr, "links", "network.json", "fair, echelon")


def test_the_summary_shows_what_the_cross_traffic_pays(results: Path, tmp_path: Path) -> None:
    document: dict[str, Any] = json.loads((results / "results.json").read_text())
    for policy, mean_s in (("fair", 0.002), ("echelon", 0.003)):
        document["results"][policy]["traffic"] = {"web": {"mean_completion_s": mean_s}}
    (tmp_path / "results.json").write_text(json.dumps(document))
    assert plot(tmp_path, "--kind", "summary", "--format", "svg", "-o", tmp_path).exit_code == 0
    drawn = " ".join((tmp_path / "summary.svg").read_text().split())
    assert "cross traffic: web" in drawn
    assert "flows of the" in drawn
    assert "50 %" in drawn


def test_a_summary_of_more_policies_than_it_draws(results: Path, tmp_path: Path) -> None:
    document: dict[str, Any] = json.loads((results / "results.json").read_text())
    fair = document["results"]["fair"]
    fair["traffic"] = {"web": {"mean_completion_s": 0.002}}
    document["results"] = {f"p{number}": fair for number in range(MOST + 1)}
    (tmp_path / "results.json").write_text(json.dumps(document))
    done = plot(tmp_path, "--kind", "summary", "--format", "svg", "-o", tmp_path)
    assert done.exit_code == 0
    assert f"of {MOST + 1} (choose with --policy)" in " ".join(done.output.split())


def test_without_matplotlib_results_have_no_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = simulate(ROOT / "topologies/scenarios/fig2.yaml", ["fair"])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert [file.name for file in compared.write(tmp_path)] == [
        "results.json",
        "network.json",
        "report.md",
    ]
    assert "echelon-p4[plot]" in (tmp_path / "report.md").read_text()
    assert not list(tmp_path.glob("*.png"))


PLUGIN = """
from echelon_lab.plots import charts
ABOUT = "one line"
def draw(run, selection, style):
    panel = charts.Panel("x", "y", [charts.Curve("line", [0, 1], [1, 0])])
    return [charts.chart("mine", [panel], style)]
"""


def test_a_kind_of_another_package_is_found(results: Path, tmp_path: Path) -> None:
    """One that cannot be imported is named in one line."""
    (tmp_path / "mine.py").write_text(PLUGIN)
    (tmp_path / "broken.py").write_text("1 / 0")
    metadata = tmp_path / "mine-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[echelon.plots]\nmine = mine\nbroken = broken\n")
    command = [sys.executable, "-m", "echelon", "plot", results, "-o", tmp_path, "--kind"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = subprocess.run(
        [*command, "mine"], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout == f"{tmp_path / 'mine.png'}\n"
    refused = subprocess.run(
        [*command, "broken"], env=environment, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    [line] = refused.stderr.splitlines()
    assert mentions(line, "'broken'", "division by zero")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--kind", "bar"), ["--kind", "'bar'", "'bars'"]),
        (("--format", "gif"), ["--format", "'gif'"]),
        (("--width", "colum"), ["--width", "'colum'", "'column'"]),
        (("--policy", "varys"), ["results", "policies", "fair, echelon"]),
        (("--job", "x"), ["results", "--job"]),
        (("--iterations", "3:2"), ["--iterations", "'3:2'"]),
        *((("--kind", kind, "--iterations", "900:901"), ["--iterations"]) for kind in KINDS),
    ],
)
def test_a_mistake_is_one_line(
    arguments: tuple[str, ...], names: list[str], results: Path, tmp_path: Path
) -> None:
    done = plot(results, *arguments, "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert mentions(line, *names)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"scenario": 1, "target": 2, "results": 3}'])
def test_what_is_no_result_is_said(text: str, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(text)
    done = plot(tmp_path, "-o", tmp_path)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"{tmp_path / 'results.json'}: ")


def test_times_in_which_jobs_communicate_at_once() -> None:
    spans = {
        "a": overlap.united([(0, 2), (1, 3), (5, 6)]),
        "b": [(2.5, 5.5)],
        "c": [(5.2, 5.4), (8, 9)],
    }
    assert spans["a"] == [(0, 3), (5, 6)]
    assert overlap.at_once(spans) == [(2.5, 3), (5, 5.5)]
    assert overlap.share_at_once(spans) == pytest.approx(1 / 7)
    assert overlap.share_at_once({"a": [], "b": []}) == 0


def test_the_last_iterations_are_drawn_unless_others_are_chosen(
    results: Path, tmp_path: Path
) -> None:
    done = plot(results, "--kind", "overlap", "--format", "svg", "-o", tmp_path)
    assert mentions(done.stderr, "overlap", "9 to 12")
    chosen = plot(
        results, "--kind", "overlap", "--format", "svg", "--iterations", "1:2", "-o", tmp_path
    )
    assert chosen.exit_code == 0
    assert chosen.stderr == ""


def test_a_directory_of_what_no_installed_kind_draws_says_which_plug_in_does(
    tmp_path: Path,
) -> None:
    (tmp_path / "sweep.json").write_text("{}")
    script = (
        "import importlib.metadata as m; m.entry_points = lambda **_: []; "
        "from echelon_lab.plots import subject_of; from pathlib import Path; subject_of(Path())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert mentions(done.stderr, "'sweep slowdowns'", "echelon-lab")
