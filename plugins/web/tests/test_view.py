"""`echelon view`: what it shows of results, what it refuses, and its end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

import echelon
from echelon.cli import app
from echelon_web.viewer import results
from plugins.web.tests.browser import Page

ROOT = Path(__file__).parents[3]
SCENARIO = ROOT / "topologies" / "scenarios" / "shared_link.yaml"
BIN = Path(sys.executable).parent
PATIENCE_S = 60

pytestmark = pytest.mark.xdist_group("web")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("view") / "out"
    echelon.simulate(SCENARIO, target="fluid", policies=["fair", "echelon"]).write(out)
    return out


@contextmanager
def viewed(path: Path) -> Iterator[str]:
    """Serve results and yield the URL.

    At the end of the block, interrupt the command, and check that it ends well.
    """
    process = subprocess.Popen(
        [BIN / "echelon", "view", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.match(r"(http://127\.0\.0\.1:\d+)/ shows ", line)
        assert found is not None, line
        yield found[1]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()


def test_it_answers_what_the_files_say_and_ends_when_interrupted(run: Path) -> None:
    measured: dict[str, Any] = json.loads((run / "results.json").read_text())
    with viewed(run) as url, httpx.Client(base_url=url, trust_env=False) as http:
        summary = http.get("/results").json()
        assert (summary["scenario"], summary["target"]) == ("shared_link", "fluid")
        for policy in summary["policies"]:
            jobs = measured["results"][policy["name"]]["jobs"]
            assert {job["name"]: job["mean_slowdown"] for job in policy["jobs"]} == {
                name: job["mean_slowdown"] for name, job in jobs.items()
            }
            table = http.get("/results/flows", params={"policy": policy["name"]}).json()
            rows = zip(
                table["job"],
                table["flow"],
                table["iteration"],
                table["start_s"],
                table["finish_s"],
                strict=True,
            )
            assert [
                (table["jobs"][job], table["flows"][flow], *rest) for job, flow, *rest in rows
            ] == [
                (name, flow["name"], flow["iteration"], flow["start_s"], flow["finish_s"])
                for name, job in jobs.items()
                for flow in job["flows"]
            ]
        assert http.get("/results/waits", params={"policy": "fair"}).json()["waits"]
        assert http.get("/results/flows", params={"policy": "nobody"}).status_code == 404
        assert http.post("/results").status_code == 405
        assert http.get("/results", headers={"Host": "evil.example"}).status_code == 403, (
            "a page of another name"
        )
        assert 'data-source="results"' in http.get("/").text


def test_use_of_links_is_bytes_over_what_they_could_carry(run: Path) -> None:
    loaded = results.load(run)
    measured: dict[str, Any] = json.loads((run / "results.json").read_text())["results"]["fair"]
    flows = [flow for job in measured["jobs"].values() for flow in job["flows"]]
    end_s = max(flow["finish_s"] for flow in flows)
    # Hosts of one leaf have names that begin with its letter: all else crosses the uplinks.
    across = sum(flow["bytes"] for flow in flows if flow["src"][0] == "a" and flow["dst"][0] == "b")
    assert loaded.uses("fair")["leaf1", "spine"] == pytest.approx(across * 8 / end_s / 50e6)


def test_results_of_an_earlier_version_show_no_fabric(run: Path, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_bytes((run / "results.json").read_bytes())
    for path in (tmp_path, tmp_path / "results.json"):
        loaded = results.load(path)
        assert loaded.summary["links"] == []
        assert loaded.waits("fair").flows == 0


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (None, "No such file"),
        ("{", "is not JSON"),
        ("[]", "valid dictionary"),
        ('{"scenario": "a", "target": "b"}', "results"),
        ('{"scenario": "a", "target": "b", "results": {}}', "is empty"),
        (
            '{"scenario": "a", "target": "b", "results": {"fair": {"jobs": {"j": {}}}}}',
            "results.fair.jobs.j",
        ),
    ],
)
def test_what_are_no_results_is_refused_in_one_line(
    tmp_path: Path, content: str | None, key: str
) -> None:
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    result = CliRunner().invoke(app, ["view", str(tmp_path)])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert str(tmp_path / "results.json") in line
    assert key in line
    assert line.endswith(")")


def test_a_path_along_no_link_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_bytes((run / "results.json").read_bytes())
    network = json.loads((run / "network.json").read_text())
    network["links"] = [link for link in network["links"] if "spine" not in (link["a"], link["b"])]
    (tmp_path / "network.json").write_text(json.dumps(network))
    result = CliRunner().invoke(app, ["view", str(tmp_path)])
    assert result.exit_code == 2
    assert "network.json: paths." in result.stderr


def test_the_page_shows_the_run(page: Page, run: Path) -> None:
    measured: dict[str, Any] = json.loads((run / "results.json").read_text())["results"]
    with viewed(run) as url:
        page.open(url)
        page.wait(lambda: page.row("Slowdown of each job", "data1"), "the policies are not shown")
        shown = page.row("Slowdown of each job", "data1")[1:]
        assert sorted(shown) == sorted(
            f"{of['jobs']['data1']['mean_slowdown']:.3f}" for of in measured.values()
        )
        for view in ("Policies", "Timeline", "Waits", "Fabric"):
            page.look()
            page.show(view)
            page.wait(
                lambda: page.run("return document.querySelector('main canvas') !== null"),
                f"{view}: no picture",
            )
            for width, dark in ((1280, False), (1280, True), (360, False)):
                page.look(width, dark=dark)
                assert not page.faults(), (view, width, dark)
        page.look()
        page.show("Timeline")
        page.choose("Policy", "fair")
        flows = sum(len(job["flows"]) for job in measured["fair"]["jobs"].values())
        page.wait(
            lambda: f"of {flows:,} in" in page.text("main .bar [role=status]"),
            "the other policy is not shown",
        )
        page.show("Waits")
        page.wait(lambda: page.rows("Who waited"), "no waits are shown")
        page.show("Fabric")
        page.wait(lambda: page.row("Links", "leaf1 - spine"), "the links are not shown")
        assert page.console() == []
