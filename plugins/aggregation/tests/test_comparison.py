"""The comparisons: rates by closed forms, gains of a scenario, and the commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from echelon.model.jobs.spec import make_job_spec
from echelon_aggregation import comparison
from echelon_aggregation.commands.app import app
from echelon_aggregation.comparison import FABRICS, Training, draw, rates, shared_cluster
from echelon_aggregation.planning import with_rings

SCENARIO = """\
scenario: two
fabric:
  fabric: tor
  hosts: [h1, h2, h3, h4]
  switches: [s1]
  links:
    - {between: [h1, s1], rate: 8 Mbit/s}
    - {between: [h2, s1], rate: 8 Mbit/s}
    - {between: [h3, s1], rate: 8 Mbit/s}
    - {between: [h4, s1], rate: 8 Mbit/s}
policies: [fair]
jobs:
  - job: a
    parallelism: data
    workers: [h1, h2]
    data: {compute: 1 s, gradient: 1 MB, collective: in-network}
  - job: b
    parallelism: data
    workers: [h3, h4]
    data: {compute: 1 s, gradient: 1 MB}
"""


def test_rates_on_one_switch_are_those_of_the_formulas() -> None:
    one, _ = rates([2, 4, 8])
    plain, small, large = 1438 / 1500, 128 / 206, 256 / 334
    for n, row in zip((2, 4, 8), one.rows, strict=True):
        # The root of a binomial tree has log2 n children.
        expected = [
            small,
            large,
            plain * n / (2 * (n - 1)),
            plain / (n.bit_length() - 1),
            plain / n,
        ]
        assert [float(cell) for cell in row[1:]] == pytest.approx(
            [100 * part for part in expected], abs=0.06
        )


def test_a_draw_uses_each_host_once_and_is_the_same_each_time() -> None:
    for fabric in FABRICS.values():
        drawn = draw(fabric, 8, 4, 5)
        hosts = [worker for job in drawn for worker in job.workers]
        assert len(set(hosts)) == 32
        assert drawn == draw(fabric, 8, 4, 5)
        assert drawn != draw(fabric, 8, 4, 6)


def test_by_deadline_is_better_than_first_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "ROUNDS", 4)
    drawn = draw(FABRICS["rails"], 2, 16, 1)
    slow = {way: comparison.run(drawn, FABRICS["rails"], way) for way in comparison.WAYS}
    assert all(slowdown == pytest.approx(1) for slowdown in slow["all"])
    assert sum(slow["all"]) <= sum(slow["deadline"]) < sum(slow["first"])


def test_short_flows_beside_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "END_S", comparison.END_S / 5)
    monkeypatch.setattr(comparison, "LOAD", comparison.LOAD / 100)
    table = shared_cluster(1)
    assert table.rows[0][0] == "ring"
    assert table.rows[0][1] == "1.00"
    assert table.markdown().count("\n") == len(table.rows) + 3


def test_rings_take_the_place_of_trees() -> None:
    data = make_job_spec(
        job="a",
        parallelism="data",
        workers=["h1", "h2"],
        data={"compute": "1 s", "gradient": "1 MB", "collective": "in-network-2"},
    )
    assert with_rings(data).data.collective == "ring"  # type: ignore[attr-defined]
    nodes = [
        {
            "name": "x",
            "collective": "all-reduce",
            "group": [0, 1],
            "bytes": "1 MB",
            "algorithm": algorithm,
        }
        for algorithm in ("in-network",)
    ] + [
        {
            "name": "y",
            "collective": "all-reduce",
            "group": [0, 1],
            "bytes": "1 MB",
            "algorithm": "tree",
        }
    ]
    graph = make_job_spec(
        job="g", parallelism="graph", workers=["h1", "h2"], graph={"nodes": nodes}
    )
    assert [node.algorithm for node in with_rings(graph).graph.nodes] == [None, "tree"]  # type: ignore[attr-defined]
    assert Training("a", ("h1", "h2"), data.data.compute, 1).by_hosts().flows[0].src == "h1"  # type: ignore[attr-defined]


def test_plan_says_what_each_job_gains(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(SCENARIO)
    done = CliRunner().invoke(app, ["plan", str(tmp_path / "two.yaml"), "--json"])
    assert done.exit_code == 0, done.output
    (gain,) = json.loads(done.stdout)
    # A ring of two sends the data once; packets of 32 values take 206 bytes for 128.
    assert gain["ring_alone_s"] == pytest.approx(2)
    assert gain["alone_s"] == pytest.approx(1 + 206 / 128, rel=1e-4)
    assert gain["gain"] == pytest.approx(2 / (1 + 206 / 128), rel=1e-4)
    assert gain["roots"] == ["s1"]
    text = CliRunner().invoke(app, ["plan", str(tmp_path / "two.yaml")]).stdout
    assert "0.77" in text
    refused = CliRunner().invoke(app, ["plan", str(tmp_path / "two.yaml"), "--policy", "fair"])
    assert refused.exit_code == 2


def test_compare_prints_markdown() -> None:
    done = CliRunner().invoke(app, ["compare", "rate"])
    assert done.exit_code == 0, done.output
    assert "| 16 |" in done.stdout
