"""Jobs in closed loop, where an iteration waits for the one before, packet by packet."""

from __future__ import annotations

from itertools import pairwise

import pytest
from acceptance.runs import Run, grouped, softswitch
from reference import job_mix

# The jobs of the independent model. The seeds are the scenario files': with seed 0, the ideal order
# itself would leave the worst of the four data-parallel jobs slower than fair sharing does.
MIXES: dict[str, tuple[job_mix.Kind, int, float]] = {
    "mix_dp4": ("dp", 4, 1.0),
    "mix_dp6": ("dp", 6, 1.2),
    "mix_pp6": ("pp", 6, 1.2),
    "mix_mixed4": ("mix", 4, 1.0),
    "mix_mixed6": ("mix", 6, 1.2),
    "mix_dpsame4": ("dp-same", 4, 1.0),
}
# Tests of one row share its runs, so they belong in one process.
# A row takes a minute, so `make test-long` has them.
ROWS = [grouped(row, row, pytest.mark.long) for row in MIXES]
SEEDS = dict.fromkeys(MIXES, 0) | {"mix_dp4": 2}


def mean(run: Run) -> float:
    slowdowns = run.slowdowns()
    return sum(slowdowns.values()) / len(slowdowns)


def worst(run: Run) -> float:
    return max(run.slowdowns().values())


@pytest.mark.long
@pytest.mark.xdist_group("dp_pair")
@pytest.mark.parametrize("job", ["first", "second"])
def test_two_jobs_interleave_under_echelon_and_never_under_fair(job: str) -> None:
    alone_s = 4.0
    echelon = [t / alone_s for t in softswitch("dp_pair", "echelon").iteration_times_s(job)]
    fair = [t / alone_s for t in softswitch("dp_pair", "fair").iteration_times_s(job)]
    assert len(echelon) >= 12
    assert max(echelon[3:]) <= 1.03
    assert fair == pytest.approx([1.48] * len(fair), abs=0.015)
    # Nor is it on its way there: less than a thousandth an iteration.
    assert max(a - b for a, b in pairwise(fair)) < 0.001


@pytest.mark.parametrize("row", ROWS)
def test_echelon_is_faster_than_fair_in_mean_and_for_the_worst_job(row: str) -> None:
    echelon, fair = softswitch(row, "echelon"), softswitch(row, "fair")
    assert mean(echelon) < mean(fair)
    assert worst(echelon) < worst(fair)
    assert sum(echelon.run.reordered.values()) == 0


@pytest.mark.parametrize("row", ROWS)
def test_eight_queues_come_near_the_ideal_order(row: str) -> None:
    ideal = job_mix.slowdowns(job_mix.make(SEEDS[row], *MIXES[row]), "memory")
    run = softswitch(row, "echelon", "memory")
    assert mean(run) <= 1.03 * sum(ideal) / len(ideal)
    assert worst(run) <= 1.03 * max(ideal)


@pytest.mark.long
def test_shared_link_is_fastest_under_echelon() -> None:
    means = {
        policy: mean(softswitch("shared_link", policy))
        for policy in ("fifo", "fair", "varys", "echelon")
    }
    assert min(means, key=lambda policy: means[policy]) == "echelon"
    assert sum(softswitch("shared_link", "echelon").run.reordered.values()) == 0
