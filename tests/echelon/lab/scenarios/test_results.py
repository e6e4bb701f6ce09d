"""results.json against a record worked out by hand and against the published figures of
EchelonFlow's example.
"""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest

from echelon.model.documents import DocumentError
from echelon.model.errors import RunError
from echelon.model.fabric import builders
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.allocation import Allocation
from echelon.planning.execution import IterationRecord, JobRecord, Span
from echelon.planning.policies import make_policy
from echelon_lab import plots
from echelon_lab.run import simulate
from echelon_lab.scenarios import results as results_module
from echelon_lab.scenarios.results import PolicyRun, SwitchStats, assemble, rounded, to_text
from echelon_lab.scenarios.scenario import PolicyChoice, Scenario, Transport, load_scenario
from echelon_lab.virtual import fluid_run
from tests.faults import coded

SCENARIOS = Path(__file__).parents[4] / "topologies/scenarios"
F = Fraction


def scenario_of(job: Job, **changes: Any) -> Scenario:
    values = {
        "name": "made",
        "description": "by hand",
        "file": Path("made.yaml"),
        "fabric": Fabric("none", {}, {}, ()),
        "jobs": (job,),
        "policies": (PolicyChoice("fair"),),
        "iterations": 1,
        "until": "exactly",
        "seed": 0,
        "transport": Transport(),
        "control_latency_s": F(0),
        "stop_controller_after_iteration": None,
        "profile_error": F(0),
        "delays": (),
        "background": (),
    }
    return Scenario(**(values | changes))


JOB = Job(
    "job",
    (ComputeUnit("produce", "h1", F(1)), ComputeUnit("consume", "h2", F(1), ("a", "b"))),
    (
        Flow("b", "h1", "h2", 700, ("produce",)),
        Flow("a", "h1", "h2", 300, ("produce",)),
        Flow("free", "h2", "h1", 5),
    ),
    (EchelonFlow("formation", ("a", "b"), (F(0), F(1, 3))),),
    start_s=F(10),
)


def iteration(number: int, start: Fraction, late: Fraction) -> IterationRecord[Fraction]:
    """Return an iteration in which `b` starts late by `late`; everything else takes one second a
    step.
    """
    return IterationRecord(
        number,
        start,
        start + 4 + late,
        {
            "a": Span(start + 1, start + 2),
            "b": Span(start + 1 + late, start + 3 + late),
            "free": Span(start, start + F(1, 7)),
        },
        {"produce": Span(start, start + 1), "consume": Span(start + 3 + late, start + 4 + late)},
        {"formation": start + 1},
    )


RECORD = JobRecord(
    "job",
    [
        iteration(1, F(10), F(0)),
        iteration(2, F(14), F(1, 2)),
        IterationRecord(3, F(37, 2), None, {}, {}, {}),
    ],
)


def test_a_record_worked_out_by_hand() -> None:
    run = PolicyRun({"job": RECORD}, {"s1": SwitchStats(5, 4, 1, 9, 3)}, {"job": 2})
    document = assemble(scenario_of(JOB), "toy", {"fair": run}, {"job": F(4)})
    assert document["scenario"] == "made"
    assert document["target"] == "toy"
    assert document["results"]["fair"]["traffic"] == {}
    assert document["results"]["fair"]["switches"] == {
        "s1": {"packets_in": 5, "packets_out": 4, "packets_dropped": 1, "entries": 9, "digests": 3}
    }
    job = document["results"]["fair"]["jobs"]["job"]
    flows, computes = job.pop("flows"), job.pop("computes")
    keys = {"name", "iteration", "worker", "kind", "micro_batch", "start_s", "finish_s"}
    assert all(unit.keys() == keys for unit in computes)
    assert job == {
        "iteration_times_s": [4.0, 4.5],
        "alone_iteration_s": 4.0,
        "mean_slowdown": 1.0625,
        "steady": {"mean_slowdown": 1.0625, "half_width": None},
        "compute_finish_s": 4.0,
        "reordered_packets": 2,
        # b: ends 2 s after the reference time, or 2.5 s, and should 1/3 s after it.
        "echelonflows": {"formation": {"tardiness_s": [1.666666667, 2.166666667]}},
    }
    assert [(flow["name"], flow["iteration"]) for flow in flows] == [
        (name, number) for number in (1, 2) for name in ("b", "a", "free")
    ]
    assert flows[3] == {
        "name": "b",
        "iteration": 2,
        "micro_batch": None,
        "src": "h1",
        "dst": "h2",
        "bytes": 700,
        "start_s": 15.5,
        "finish_s": 17.5,
        "ideal_finish_s": 15.333333333,
        "tardiness_s": 2.166666667,
    }
    assert flows[2]["ideal_finish_s"] is None
    assert flows[2]["tardiness_s"] is None
    assert flows[2]["finish_s"] == 10.142857143


def test_a_job_without_a_finished_iteration_is_an_error() -> None:
    run = PolicyRun({"job": JobRecord("job", RECORD.iterations[2:])})
    with pytest.raises(RunError, check=coded("run-failed", "policy fair", "job job")):
        assemble(scenario_of(JOB), "toy", {"fair": run}, {"job": F(4)})


@pytest.mark.parametrize(
    ("value", "shown"), [(F(1, 3), 0.333333333), (F(-1, 10**12), 0.0), (F(5), 5.0)]
)
def test_rounding(value: Fraction, shown: float) -> None:
    assert repr(rounded(value)) == repr(shown)


def fluid(name: str) -> dict[str, Any]:
    scenario = load_scenario(SCENARIOS / f"{name}.yaml")
    runs = {
        choice.label: fluid_run.run(
            scenario, choice.label, lambda c=choice: make_policy(c.name), lambda *_: None
        )
        for choice in scenario.policies
    }
    return assemble(scenario, "fluid", runs)


def test_the_worked_example_of_echelonflow() -> None:
    """Worker 2 has computed after 8.5 s (fair), 10 s (coflow) and 8 s (EchelonFlow), as in HotNets
    '22, Fig. 2, but for a packet on its way: 10 us and 1 us on each of two links, and 1 us on one.
    """
    results = fluid("fig2")["results"]
    finishes = {
        policy: of["jobs"]["pipeline"]["compute_finish_s"] for policy, of in results.items()
    }
    passing_s = 0.000023
    published = {"fair": 8.5, "varys": 10.0, "echelon": 8.0}
    assert {policy: finish_s - passing_s for policy, finish_s in finishes.items()} == pytest.approx(
        published, abs=1e-9
    )
    for of in results.values():
        job = of["jobs"]["pipeline"]
        assert job["alone_iteration_s"] == pytest.approx(8.0 + passing_s, abs=1e-9)
        # Arrangement 0, 1, 2 s after the first activation leaves at 1 s.
        assert [flow["ideal_finish_s"] for flow in job["flows"]] == [1.0, 2.0, 3.0]
        assert (
            max(flow["tardiness_s"] for flow in job["flows"])
            == job["echelonflows"]["activation-s1"]["tardiness_s"][0]
        )


def test_ideal_finish_times_are_the_true_ones_whatever_the_controller_believes() -> None:
    scenario = replace(load_scenario(SCENARIOS / "fig2.yaml"), profile_error=F(1, 2))
    run = fluid_run.run(scenario, "echelon", lambda: make_policy("echelon"), lambda *_: None)
    flows = assemble(scenario, "fluid", {"echelon": run})["results"]["echelon"]["jobs"]["pipeline"][
        "flows"
    ]
    assert [flow["ideal_finish_s"] for flow in flows] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("target", ["fluid", "softswitch"])
def test_the_plan_that_was_taken_says_what_it_foresaw(target: str) -> None:
    """The jobs fit beside each other; fair sharing keeps them in each other's way."""
    scenario = replace(load_scenario(SCENARIOS / "dp_pair.yaml"), iterations=2)
    results = simulate(scenario, target=target).results["results"]
    assert results["fair"]["plans"] == []
    [plan] = results["echelon"]["plans"]
    assert plan["jobs"] == ["first", "second"]
    assert plan["slowdowns"].keys() == {"first", "second"}
    assert all(1 <= slowdown < 1.2 for slowdown in plan["slowdowns"].values())


def test_rows_have_a_line_each_whatever_names_look_like() -> None:
    document = {"scenario": "rows", "target": "fluid", "results": {}}
    for names in (["a", "b"], ["a}, {b", "c"], ["only"]):
        rows = [{"name": name, "bytes": 1} for name in names]
        job = {"flows": rows, "computes": []}
        results = {**document, "results": {"fair": {"jobs": {"a": job}}}}
        text = to_text(results)
        assert json.loads(text) == results
        lines = [line.strip(" ,") for line in text.splitlines()]
        assert all(json.dumps(row) in lines for row in rows)


def test_text_is_the_same_each_time_has_policies_in_order_and_reads_back() -> None:
    document = fluid("dp_pair")
    assert to_text(document) == to_text(fluid("dp_pair"))
    assert json.loads(to_text(document)) == document
    assert list(json.loads(to_text(document))["results"]) == ["fair", "echelon"]
    job = document["results"]["fair"]["jobs"]["first"]
    for never in (job, job["flows"][0]):
        never["mean_slowdown"] = float("nan")
        with pytest.raises(ValueError):
            to_text(document)
        never["mean_slowdown"] = 1.0


def test_progress_is_told_of_each_finished_iteration() -> None:
    scenario = load_scenario(SCENARIOS / "dp_pair.yaml")
    seen: list[tuple[str, int]] = []
    run = fluid_run.run(
        scenario,
        "fair",
        lambda: make_policy("fair"),
        lambda job, number: seen.append((job, number)),
    )
    for name, record in run.records.items():
        assert [number for job, number in seen if job == name] == [
            i.iteration for i in record.finished
        ]


def test_a_policy_that_stalls_is_an_error_of_the_run() -> None:
    class Stalling:
        name = "stalling"

        def __init__(self) -> None:
            self._fair = make_policy("fair")

        def plan(self, jobs: Any, fabric: Any) -> Any:
            return self._fair.plan(jobs, fabric)

        def allocate(self, now_s: Fraction, flows: Any) -> Allocation:
            return Allocation((F(0),) * len(flows))

    scenario = load_scenario(SCENARIOS / "fig2.yaml")
    with pytest.raises(RunError, check=coded("run-failed", "policy mine", "3.0 s")):
        fluid_run.run(scenario, "mine", Stalling, lambda *_: None, ideal=True)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", ["torus", "dragonfly"])
def test_no_policy_beats_the_time_alone_where_there_are_several_paths(
    shape: str, seed: int
) -> None:
    """A ring on hosts at random: hashed paths may meet on a link, and those that are chosen for the
    job do not.
    """
    spec = {"torus": builders.torus, "dragonfly": builders.dragonfly}[shape]()
    hosts = Random(seed).sample(list(build_fabric(spec).hosts), 6)
    ring = {"compute": "100 ms", "gradient": "1 MB", "collective": "ring"}
    job = {"job": "a", "parallelism": "data", "workers": hosts, "data": ring}
    compared = simulate(
        {"fabric": spec, "jobs": [job], "iterations": 2},
        ["fair", "varys", "crux", "srpt", "echelon"],
    )
    assert min(outcome.mean_slowdown for outcome in compared) > 1 - 1e-6


def test_flows_of_the_first_iterations_are_listed_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All other figures are of all iterations; who asks for every flow gets them."""
    compared = simulate(SCENARIOS / "dp_pair.yaml", ["fair"])
    all_flows = compared.results["results"]["fair"]["jobs"]
    in_an_iteration = sum(len(job.flows) for job in compared.scenario.jobs)
    monkeypatch.setattr(results_module, "MOST_ROWS", 2 * in_an_iteration)
    few = replace(compared)
    for name, job in few.results["results"]["fair"]["jobs"].items():
        whole = dict(all_flows[name])
        listed = job.pop("listed_iterations")
        assert listed["flows"] == 2 < len(job["iteration_times_s"])
        for key in ("flows", "computes"):
            rows = whole.pop(key)
            assert job.pop(key) == [row for row in rows if row["iteration"] <= listed[key]]
        assert job == whole
    assert replace(compared, every_flow=True).results == compared.results

    monkeypatch.setattr(results_module, "MOST_ROWS", 0)
    none = replace(compared)
    none.write(tmp_path)
    assert not json.loads((tmp_path / "network.json").read_text())["paths"]
    assert plots.load(tmp_path, plots.Excerpt()).mean_slowdown("fair", plots.Excerpt()) > 1
    assert none.plot("timeline", tmp_path)[0] == []
    _, notes = none.plot("summary", tmp_path)
    assert not notes
    with pytest.raises(DocumentError, match="--every-flow"):
        none.plot("utilisation", tmp_path)
