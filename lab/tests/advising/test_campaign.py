"""The stages of an advice, on a clock and with a crew that are not real."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from echelon.cli import app
from echelon.model.progress import Account
from echelon_lab.advice import ranked
from echelon_lab.advising.campaign import FIRST_TABLE_S, Campaign, Estimates
from echelon_lab.advising.crew import Outcome, Processes
from echelon_lab.advising.stages import Run, measure, stages
from echelon_lab.points.lines import LineStore
from echelon_lab.scenarios.coarse import Setup, setup
from echelon_lab.scenarios.scenario import PolicyChoice, load_scenario

FAIR, FIFO, CRUX = map(PolicyChoice, ("fair", "fifo", "crux"))
MEANS = {"fair": 1.5, "fifo": 1.3, "crux": 1.4}


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class VirtualCrew:
    """Two places where runs take the time that `took_s` says, on a clock."""

    def __init__(self, clock: Clock, took_s: Callable[[Run], float]) -> None:
        self.size = 2
        self.begun: list[Run] = []
        self.stopped: list[Run] = []
        self._clock = clock
        self._took_s = took_s
        self._ends_s: dict[Run, float] = {}

    @property
    def free(self) -> int:
        return self.size - len(self._ends_s)

    def begin(self, run: Run) -> None:
        assert self.free
        self.begun.append(run)
        self._ends_s[run] = self._clock.now_s + self._took_s(run)

    def outcomes(self, timeout_s: float) -> Sequence[Outcome]:
        next_s = min(self._ends_s.values(), default=self._clock.now_s)
        self._clock.now_s = min(next_s, self._clock.now_s + timeout_s)
        ended = []
        for run, end_s in list(self._ends_s.items()):
            if end_s <= self._clock.now_s:
                del self._ends_s[run]
                slowdowns = {"a": MEANS[run.choice.label], "b": MEANS[run.choice.label]}
                ended.append(Outcome(run, {"slowdowns": slowdowns}, self._took_s(run)))
        return ended

    def stop(self, run: Run) -> None:
        del self._ends_s[run]
        self.stopped.append(run)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    folder = tmp_path_factory.mktemp("scenario")
    assert CliRunner().invoke(app, ["init", str(folder)]).exit_code == 0
    return setup(load_scenario(folder / "scenario.yaml"))


class Trial:
    def __init__(
        self,
        prepared: Setup,
        file: Path,
        took_s: Callable[[Run], float],
        budget_s: float = 180,
    ) -> None:
        self.clock = Clock()
        self.crew = VirtualCrew(self.clock, took_s)
        self.account = Account(self.clock)
        self.campaign = Campaign(
            prepared,
            (CRUX, FIFO, FAIR),
            stages(30),
            self.crew,
            LineStore(file),
            ("scenario", "code"),
            budget_s,
            self.account,
            self.clock,
        )

    def tables(self) -> list[Estimates]:
        return list(self.campaign.tables())


def in_proportion(second_s: float) -> Callable[[Run], float]:
    """Return the time of runs of which an iteration takes so long."""
    return lambda run: run.stage.iterations * second_s


def test_fast_runs_go_straight_to_the_last_stage(prepared: Setup, tmp_path: Path) -> None:
    trial = Trial(prepared, tmp_path / "kept.jsonl", in_proportion(0.001))
    [final] = trial.tables()
    assert final.is_final
    assert {result["run"] for result in final.exact.values()} == {"30 iterations"}
    assert set(final.doubted) == set(MEANS)
    assert {run.stage.iterations for run in trial.crew.begun} == {2, 30}


def test_tables_get_better_within_the_budget(prepared: Setup, tmp_path: Path) -> None:
    trial = Trial(prepared, tmp_path / "kept.jsonl", in_proportion(0.6))
    tables = trial.tables()
    assert len(tables) > 2
    assert tables[0].elapsed_s <= FIRST_TABLE_S + 1
    assert [table.is_final for table in tables] == [*[False] * (len(tables) - 1), True]
    assert trial.clock.now_s <= 180 + 1
    before = -1
    for table in tables:
        [stage] = {result["stage"] for result in table.exact.values()}
        assert stage >= before
        before = stage


def test_the_first_table_does_not_wait_for_slow_policies(prepared: Setup, tmp_path: Path) -> None:
    def took_s(run: Run) -> float:
        return 1e9 if run.choice == CRUX else 1.0

    trial = Trial(prepared, tmp_path / "kept.jsonl", took_s)
    first, *_, last = trial.tables()
    assert FIRST_TABLE_S <= first.elapsed_s <= FIRST_TABLE_S + 1
    assert set(first.exact) == {"fair", "fifo"}
    advice = ranked(last.exact, last.doubted, {})
    assert "takes more than 45 s" in advice.failed["crux"]
    assert [run.choice for run in trial.crew.stopped] == [CRUX]


def test_a_policy_that_is_too_slow_for_a_stage_keeps_its_estimate(
    prepared: Setup, tmp_path: Path
) -> None:
    def took_s(run: Run) -> float:
        return 1e9 if run.choice == FIFO and run.stage.iterations > 2 else 0.1

    trial = Trial(prepared, tmp_path / "kept.jsonl", took_s)
    *_, last = trial.tables()
    advice = ranked(last.exact, last.doubted, {})
    assert [advised.policy for advised in advice.ranked] == ["crux", "fair", "fifo"]
    assert advice.ranked[-1].run == "2 iterations, coarse"
    assert not advice.failed


def test_a_process_that_dies_is_replaced(prepared: Setup) -> None:
    run = Run(FIFO, stages(3)[0])
    with Processes(1) as crew:
        crew.prepare(prepared)
        for outcome in (None, "error", "slowdowns"):
            while not crew.free:
                assert not crew.outcomes(60)
            crew.begin(run)
            if outcome is None:
                crew.stop(run)
                continue
            if outcome == "error":
                [process] = multiprocessing.active_children()
                process.kill()
            [ended] = crew.outcomes(60)
            assert outcome in ended.result


def test_nothing_goes_on_after_the_budget(prepared: Setup, tmp_path: Path) -> None:
    trial = Trial(prepared, tmp_path / "kept.jsonl", lambda _: 100.0, budget_s=30)
    [last] = trial.tables()
    assert trial.clock.now_s == pytest.approx(30)
    assert len(trial.crew.stopped) == 2
    assert set(ranked(last.exact, last.doubted, {}).failed) == set(MEANS)


def test_what_was_measured_is_kept(prepared: Setup, tmp_path: Path) -> None:
    file = tmp_path / "kept.jsonl"
    interrupted = Trial(prepared, file, in_proportion(1.5))
    tables = interrupted.campaign.tables()
    next(tables)
    ended = len(interrupted.crew.begun) - 2
    assert len(LineStore(file)) >= ended > 0
    begun = set(interrupted.crew.begun[:ended])

    resumed = Trial(prepared, file, in_proportion(1.5))
    resumed.tables()
    assert begun.isdisjoint(resumed.crew.begun)


@pytest.mark.parametrize("second_s", [0.3, 0.6, 2, 3])
def test_the_time_left_is_right(prepared: Setup, tmp_path: Path, second_s: float) -> None:
    """It is right within a factor of two, from the first table to the last ten seconds."""
    trial = Trial(prepared, tmp_path / "kept.jsonl", in_proportion(second_s))
    said: list[tuple[float, float]] = []
    ended = trial.crew.outcomes

    def looked(timeout_s: float) -> Sequence[Outcome]:
        left_s = trial.account.how_far.left_s
        if left_s is not None:
            said.append((trial.clock.now_s, left_s))
        return ended(timeout_s)

    trial.crew.outcomes = looked  # type: ignore[method-assign]
    trial.tables()
    over_s = trial.clock.now_s
    counted = [(now_s, left_s) for now_s, left_s in said if over_s - now_s > 10]
    assert counted
    for now_s, left_s in counted:
        assert (over_s - now_s) / 2 <= left_s <= 2 * (over_s - now_s)


def test_a_gain_within_the_uncertainty_is_none() -> None:
    def result(mean: float, interval: float, noise: float = 0.0) -> Mapping[str, Any]:
        both = {"interval": interval, "worst_interval": interval}
        return {"slowdowns": {"a": mean}, **both, "noise": noise}

    needs = {"fair": "nothing", "crux": "job files"}

    def best(fair: Mapping[str, Any], crux: Mapping[str, Any]) -> tuple[str, str]:
        advice = ranked({"fair": fair, "crux": crux}, {}, needs)
        return advice.best.policy, list(advice.sentences())[1]

    assert best(result(1.3, 0.005), result(1.25, 0.005))[0] == "crux"
    policy, comparison = best(result(1.3, 0.03), result(1.25, 0.04))
    assert policy == "fair"
    assert comparison == "No gain over fair sharing is beyond the uncertainty of 5 %: crux."
    assert best(result(1.3, 0, 0.05), result(1.25, 0, 0.05))[0] == "fair"
    assert best(result(1.3, 0, 0.05), result(1.15, 0, 0.05))[0] == "crux"


def test_a_finer_stage_comes_first() -> None:
    fine = {"slowdowns": {"a": 1.5}, "stage": 2, "run": "30 iterations"}
    coarse = {"slowdowns": {"a": 1.1}, "stage": 0, "run": "2 iterations, coarse"}
    advice = ranked({"crux": coarse, "fair": fine}, {}, {})
    assert [advised.policy for advised in advice.ranked] == ["fair", "crux"]
    assert "crux" not in " ".join(advice.sentences())


@pytest.mark.parametrize("draw", [None, 1])
def test_a_run_of_each_stage(prepared: Setup, draw: int | None) -> None:
    for stage in stages(6):
        result = measure(prepared, Run(PolicyChoice("fifo"), stage, draw))
        assert result["slowdowns"].keys() == prepared.least_s.keys()
        assert all(slowdown >= 1 for slowdown in result["slowdowns"].values())
        assert 0 < result["interval"] < 1
