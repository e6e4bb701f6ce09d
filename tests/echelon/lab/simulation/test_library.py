"""`import echelon`: the same results as the command, from objects instead of files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import echelon
from echelon.cli import app
from echelon.model.errors import Code
from tests.faults import coded
from tests.needs import needs

ROOT = Path(__file__).parents[4]
FIG2 = ROOT / "topologies/scenarios/fig2.yaml"
PAGE = ROOT / "docs/reference/scenarios.md"
NOTEBOOK = ROOT / "docs/notebooks/simulate.ipynb"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def mix(**keys: object) -> dict[str, object]:
    jobs = [
        echelon.job(
            job=name,
            parallelism="data",
            workers=workers,
            data={"compute": "100 ms", "gradient": "10 MB"},
        )
        for name, workers in (("a", ["h1", "h5"]), ("b", ["h2", "h6"]))
    ]
    fabric = echelon.fabrics.leaf_spine(leaves=2, spines=1, oversubscription=4, rate_bps=10**9)
    return {"fabric": fabric, "jobs": jobs, "iterations": 3, **keys}


def test_the_command_writes_what_the_library_returns(tmp_path: Path) -> None:
    compared = echelon.simulate(FIG2)
    assert (
        compared.outcome("fair", "pipeline").mean_iteration_s
        > compared.outcome("echelon", "pipeline").mean_iteration_s
    )
    done = CliRunner().invoke(app, ["run", str(FIG2), "--target", "fluid", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "results.json").read_text()) == compared.results


def test_figure_2_from_objects() -> None:
    """The second worker ends at the published 8.5 under fair sharing and 8 under EchelonFlow.

    The last packet of the last activation passes two more links, of 1 Gbit/s, and 1 us on each.
    """
    compared = echelon.simulate(FIG2, ["fair", "echelon"])
    finishes = {
        policy: compared.results["results"][policy]["jobs"]["pipeline"]["compute_finish_s"]
        for policy in ("fair", "echelon")
    }
    assert finishes == pytest.approx({"fair": 8.500023, "echelon": 8.000023}, abs=1e-9)


def test_two_jobs_on_one_link_share_it_as_arithmetic_says() -> None:
    """Each job sends 2 rounds of 5 MB over its half of 1 Gbit/s: 160 ms, or 80 ms alone, after 100
    ms of computing.
    """
    compared = echelon.simulate(mix(), ["fair"])
    for job in ("a", "b"):
        outcome = compared.outcome("fair", job)
        assert outcome.alone_iteration_s == pytest.approx(0.18, rel=0.01)
        assert outcome.iteration_times_s[0] == pytest.approx(0.26, rel=0.01)


def test_frames_hold_every_iteration_job_and_flow() -> None:
    compared = echelon.simulate(mix(until="exactly"), ["fair", "echelon(order=setf)"])
    assert list(compared.policies) == ["fair", "echelon(order=setf)"]
    iterations, jobs, flows = compared.iterations(), compared.jobs(), compared.flows()
    assert len(iterations) == 2 * 2 * 3
    assert len(jobs) == 2 * 2
    assert len(flows) == 2 * 2 * 3 * 4
    for of in compared:
        mine = iterations[(iterations.policy == of.policy) & (iterations.job == of.job)]
        assert mine.time_s.mean() == pytest.approx(of.mean_iteration_s)
        assert mine.slowdown.mean() == pytest.approx(of.mean_slowdown)


def test_importing_echelon_is_cheap() -> None:
    heavy = {"pydantic", "yaml", "networkx", "pandas", "matplotlib", "typer", "grpc"}
    code = f"import sys, echelon; sys.exit(' '.join({heavy!r} & set(sys.modules)) or None)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_attribute_is_there() -> None:
    for name in echelon.__all__:
        assert getattr(echelon, name) is not None
    assert set(echelon.__all__) <= set(dir(echelon))
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = echelon.no_such_thing  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wrong", "code", "argument", "name"),
    [
        ({"policies": ["no_such_policy"]}, "unknown-policy", "policies", "'no_such_policy'"),
        ({"policies": ["echelon(no_such=1)"]}, "unknown-parameter", "policies", "no_such"),
        (
            {"policies": ["fair"], "target": "no_such_target"},
            "unknown-target",
            "--target",
            "'no_such_target'",
        ),
        ({"policies": ["fair"], "scale": 2}, "invalid-value", "--scale", "2"),
    ],
)
def test_a_wrong_argument_is_one_line(
    wrong: dict[str, Any], code: Code, argument: str, name: str
) -> None:
    with pytest.raises(echelon.DocumentError, check=coded(code, name, file=argument, path="")):
        echelon.simulate(mix(), **wrong)


def test_scaling_changes_no_ratio() -> None:
    """Rates and sizes have one factor, so a fluid run takes as long as before.

    Packets have not, so those of the smaller network take longer on each of three more links, after
    each of two rounds.
    """
    small = echelon.simulate(mix(), ["fair"], scale=Fraction(1, 100))
    assert small.scenario.fabric.rate_bps["h1", "leaf1"] == 10**7
    transport = {
        "window": 65535,
        "initial_window": 65535,
    }  # a window is not scaled; without one nothing else differs
    whole = echelon.simulate(mix(transport=transport), ["fair"])
    small = echelon.simulate(mix(transport=transport), ["fair"], scale=Fraction(1, 100))
    for job in ("a", "b"):
        ours, theirs = small.outcome("fair", job), whole.outcome("fair", job)
        packets_s = 2 * 3 * 1250 * 8 / 10**7
        for our_s, their_s in zip(ours.iteration_times_s, theirs.iteration_times_s, strict=True):
            assert 0 < our_s - their_s < packets_s


def test_a_flow_begins_with_as_many_packets_as_its_path_holds() -> None:
    """It is as fast as with an open window from the start: four hops hold more than one packet and
    less than 64.
    """
    fabric = echelon.fabrics.leaf_spine(leaves=2, spines=1, rate_bps=10**7)
    stages = {"micro_batches": 1, "forward": "10 ms", "backward": "10 ms", "activation": "100 kB"}
    job = echelon.job(job="a", parallelism="pipeline", workers=["h1", "h5"], pipeline=stages)

    def iteration_s(**transport: int) -> float:
        transport = {"window": 64, **transport}
        what = {"fabric": fabric, "jobs": [job], "iterations": 1, "transport": transport}
        return (
            echelon.simulate(what, ["fair"], target="softswitch")
            .outcome("fair", "a")
            .mean_iteration_s
        )

    packet_s = 1250 * 8 / 10**7
    by_the_plan = iteration_s()
    assert by_the_plan == pytest.approx(iteration_s(initial_window=64), abs=packet_s)
    assert by_the_plan < iteration_s(initial_window=1) - 3 * packet_s


def test_the_examples_of_the_page_run() -> None:
    shared: dict[str, Any] = {}
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert blocks
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), shared)


@pytest.mark.long
@needs("nbclient")
def test_the_notebook_runs() -> None:
    import nbclient
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    printed = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("text/html" in output.get("data", {}) for output in printed)
