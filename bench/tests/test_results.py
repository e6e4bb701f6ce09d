"""Tests of the results that a run of the benchmark keeps of its rounds, and of the tables that it
prints.
"""

from __future__ import annotations

import pytest

from bench.switch import __main__ as command
from bench.switch.network import inside
from bench.switch.speed import Placement, Point, Results, placements
from bench.switch.targets import BMV2, SOFTSWITCH

ROUTER = Point("router", 64)
ONE, OTHER = Placement("one", (0,), (0,)), Placement("other", (1,), (1,))


def test_the_better_placement_counts_and_is_where_the_next_search_begins() -> None:
    results = Results()
    results.add(ROUTER, "BMv2", ONE, 10.0)
    results.add(ROUTER, "BMv2", OTHER, 30.0)
    results.add(ROUTER, "BMv2", OTHER, 20.0)
    results.add(ROUTER, "softswitch", ONE, 70.0)
    assert results.best(ROUTER, "BMv2") == (OTHER, [30.0, 20.0])
    assert results.guess_pps(ROUTER, "BMv2") == 25.0
    assert results.guess_pps(ROUTER, "softswitch") == 70.0


def filled(names: tuple[str, ...]) -> Results:
    results = Results(settings=dict.fromkeys(names, "as it is"))
    for number, name in enumerate(names, start=1):
        for placement in placements():
            results.add(ROUTER, name, placement, 90_000.0 / number)
        results.entries_per_s.setdefault("exact", {})[name] = [1000.0 * number]
    return results


def test_two_columns_and_their_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    command.print_speed(filled(("softswitch", "BMv2")), (SOFTSWITCH, BMV2), ())
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if "router" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "router",
        "64",
        "90,000",
        "45,000",
        "2.00",
    ]
    assert "0.50" in next(line for line in printed.splitlines() if "exact" in line)


def test_where_bmv2_is_absent_there_is_one_column_and_a_note(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command.print_speed(filled(("softswitch",)), (SOFTSWITCH,), (BMV2,))
    printed = capsys.readouterr().out
    assert "ratio" not in printed
    assert "simple_switch_grpc is not installed" in printed


@pytest.mark.parametrize(
    "arguments", [["--rounds", "0"], ["--seconds", "-1"], ["--target", "tofino"], ["--case", "x"]]
)
def test_bad_options_are_one_line_and_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(arguments)
    assert caught.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_what_runs_inside_is_told_so() -> None:
    assert inside(["true"])[-2:] == ["BENCH_SWITCH_NAMESPACE=1", "true"]
