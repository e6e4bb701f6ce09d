"""The arithmetic of reports, on results made by hand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from echelon.planning.execution import IterationRecord, JobRecord
from echelon.planning.fluid.slowdown import slowdown
from echelon_lab.evaluation import tables
from echelon_lab.evaluation.measure import Mode
from echelon_lab.evaluation.results import ScenarioResult, Score, Tally, grouped, scored
from echelon_lab.evaluation.tables import Compared
from echelon_lab.tables import Table

RUNS = {
    # seed: (fabric, load, least mean, fair, a, b), slowdowns of two jobs
    0: ("one link", 0.65, 1.0, (1.0, 1.4), (1.0, 1.2), (1.4, 1.4)),
    2: ("one link", 1.05, 1.1, (1.5, 1.5), (1.2, 1.8), (1.5, 1.51)),
    4: ("fat-tree", 1.39, 1.25, (2.0, 3.0), (2.5, 3.0), None),
}


def result(seed: int, mode: Mode = "plan") -> ScenarioResult:
    fabric, load, least, *runs = RUNS[seed]
    return scored(
        seed,
        {
            "kind": {"fabric": fabric, "shape": "data", "periods": "free", "jobs": 2},
            "load": load,
            "alone_s": {"x": 1.0, "y": 1.0},
            "limit": {"mean": least, "worst": least},
        },
        {
            (policy, mode): {"slowdowns": dict(zip("xy", of_jobs, strict=True))}
            if of_jobs
            else {"error": "it stalls"}
            for policy, of_jobs in zip(("fair", "a", "b"), runs, strict=True)
        },
    )


COMPARED = Compared([result(seed) for seed in RUNS], ["fair", "a", "b"], "fair")


def cells(table: Table, row: int) -> dict[str, object]:
    return dict(zip(table.columns, table.rows[row], strict=True))


def test_means_and_ratios() -> None:
    assert COMPARED.ratios("a", "plan", "mean") == pytest.approx([1.1 / 1.2, 1.0, 2.75 / 2.5])
    assert COMPARED.ratios("a", "plan", "worst") == pytest.approx([1.2 / 1.4, 1.8 / 1.5, 1.0])
    assert COMPARED.ratios("b", "plan", "mean") == pytest.approx([1.4 / 1.2, 1.505 / 1.5])
    assert COMPARED.results[1].to_limit("a", "plan", "worst") == pytest.approx(1.8 / 1.1)
    assert COMPARED.results[0].to_best("b", "plan", "mean") == pytest.approx(1.4 / 1.1)
    assert COMPARED.results[2].to_best("b", "plan", "mean") is None


def test_a_row_of_policies() -> None:
    table = tables.policies(COMPARED, "plan", "mean")
    row = cells(table, 1)
    assert row["policy"] == "a"
    assert row["slowdown"] == f"{(1.1 + 1.5 + 2.75) / 3:.3f}"
    assert row["/ fair"] == f"{(1.1 / 1.2 + 1.0 + 1.1) / 3:.3f}"
    assert row["/ limit"] == f"{(1.1 / 1.0 + 1.5 / 1.1 + 2.75 / 1.25) / 3:.3f}"
    assert (row["won"], row["lost"], row["not lost %"], row["best %"]) == (1, 1, 66.7, 66.7)


def test_what_fails_is_counted_and_left_out() -> None:
    row = cells(tables.policies(COMPARED, "plan", "worst"), 2)
    assert (row["scenarios"], row["failed"]) == (2, 1)
    assert (row["won"], row["lost"], row["not lost %"]) == (0, 0, 100.0)
    assert row["best %"] == 50.0


def test_less_than_one_percent_is_even() -> None:
    assert Tally.count_ratios([0.9901, 1.0, 1.0099, 0.98, 1.02, None]) == Tally(
        1, 3, 1, pytest.approx(1.0)
    )
    assert Tally.count_ratios([None]) is None


def test_wins_and_losses_by_kind() -> None:
    rows = {row[0]: row[1:] for row in tables.kinds(COMPARED, "plan", "worst").rows}
    both = (1.2 / 1.4 + 1.8 / 1.5) / 2
    assert rows["one link"] == (2, f"{both:.3f} (1, 1)", f"{(1.0 + 1.51 / 1.5) / 2:.3f} (0, 0)")
    assert rows["fat-tree"] == (1, "1.000 (0, 0)", None)
    assert rows["0.6 to 0.8"][0] == rows["1.0 to 1.2"][0] == rows["1.2 to 1.4"][0] == 1


def test_groups_hold_every_result_once() -> None:
    groups = grouped(COMPARED.results, "fabric", "load")
    assert sorted(of.origin for group in groups.values() for of in group) == sorted(RUNS)
    assert list(groups) == sorted(groups)


def test_the_worst_cases_are_losses() -> None:
    cases = tables.worst_cases(COMPARED, 1)
    assert [(case.policy, case.measure, case.result.origin) for case in cases] == [
        ("a", "mean", 4),
        ("a", "worst", 2),
        ("b", "mean", 0),
    ]
    assert cases[0].ratio == pytest.approx(1.1)


def test_plans_are_also_compared_with_the_ideal_baseline() -> None:
    kind = {"fabric": "one link", "shape": "data", "periods": "free", "jobs": 2}
    both = scored(
        0,
        {"kind": kind, "load": 0.7, "limit": {"mean": 1.0, "worst": 1.0}},
        {
            ("fair", "plan"): {"slowdowns": {"x": 1.6, "y": 1.6}},
            ("a", "plan"): {"slowdowns": {"x": 1.2, "y": 1.4}},
            ("fair", "ideal"): {"slowdowns": {"x": 1.2, "y": 1.4}},
        },
    )
    row = cells(tables.policies(Compared([both], ["fair", "a"], "fair"), "plan", "worst"), 1)
    assert (row["/ fair"], row["/ ideal fair"]) == ("0.875", "1.000")
    assert (row["won"], row["lost"]) == (1, 0)


def test_what_packets_cost() -> None:
    both = [result(0), result(2)]
    packets = scored(
        0,
        {"kind": {"fabric": "one link", "shape": "data", "periods": "free", "jobs": 2}, "load": 0.7}
        | {"limit": {"mean": 1.0, "worst": 1.0}},
        {
            ("fair", "plan"): {"slowdowns": {"x": 1.0, "y": 1.0}},
            ("fair", "ideal"): {"slowdowns": {"x": 0.75, "y": 0.85}},
            ("fair", "packets"): {
                "slowdowns": {"x": 1.1, "y": 1.3},
                "packets": {"dropped": 0, "reordered": 2, "retransmitted": 1},
            },
        },
    )
    compared = Compared([*both, packets], ["fair"], "fair")
    table = tables.cost(compared, "packets", "plan", "mean")
    assert table.rows == [("all", 1, "1.200"), ("one link", 1, "1.200")]
    assert tables.astray(compared).rows == [("fair", 1, 0, 2, 1)]
    overview = {table.name: table for table in tables.overview(compared)}
    assert overview["cost-packets-ideal-mean"].rows[0] == ("all", 1, "1.500")
    assert overview["cost-plan-ideal-mean"].rows[0] == ("all", 1, "1.250")
    assert overview["cost-packets-plan-mean"].rows == table.rows
    assert overview["astray"].rows == [("fair", 1, 0, 2, 1)]


def record(*spans: tuple[float, float | None]) -> JobRecord[Fraction]:
    return JobRecord(
        "job",
        [
            IterationRecord(n, Fraction(start), None if finish is None else Fraction(finish))
            for n, (start, finish) in enumerate(spans, start=1)
        ],
    )


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        (
            [(0, 5), (5, 10), (10, 12), (12, 15), (15, None)],
            2.5,
        ),  # two of 2 and 3 s; a third has begun
        ([(0, 9), (9, 11), (11, 13), (13, 29), (29, None)], (2 + 16) / 2),
        ([(0, 5), (5, 12), (12, 14), (14, None)], (2 + 16) / 2),  # starves from 14 s on
        ([(0, 5), (5, None)], 25),  # has done nothing since the warm-up
        ([(0, 5), (5, 28), (28, None)], 23),  # has done nothing but what was under way then
        ([(0, None)], 30),
    ],
)
def test_slowdown_leaves_out_the_first_third(
    spans: list[tuple[float, float | None]], expected: float
) -> None:
    end = 30 if expected != 2.5 else 16
    assert slowdown(record(*spans), end, 1.0) == pytest.approx(expected)
    assert slowdown(record(*spans), end, 2.0) == pytest.approx(expected / 2)


def test_the_interval_is_in_percent_of_the_mean() -> None:
    """The column has the median over scenarios with an interval, and only for the mean."""
    results = []
    for half_width in (0.02, 0.06, 0.04, None):
        score = Score(2.0, 2.5, half_width)
        results.append(replace(result(0), scores={("fair", "plan"): score}))
    compared = Compared(results, ["fair"], "fair")
    assert cells(tables.policies(compared, "plan", "mean"), 0)["± %"] == 2.0
    assert "± %" not in tables.policies(compared, "plan", "worst").columns
    runs = tables.scenarios(compared)
    place = runs.columns.index("mean ±")
    assert [row[place] for row in runs.rows] == [0.02, 0.06, 0.04, None]
