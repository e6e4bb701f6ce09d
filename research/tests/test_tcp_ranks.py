"""Two pipelines over unmodified TCP, beside the shim; `python -m research.tcp_ranks` has more of
them.
"""

from __future__ import annotations

from research.tcp_ranks import PAIRS, PAUSE, SMALL, Mechanism, iteration_s, run_of


def test_tcp_that_switches_may_pause_is_within_a_tenth_of_the_shim() -> None:
    pair = PAIRS[1]
    shim, today = run_of(pair, None), run_of(pair, Mechanism("small windows", transport=SMALL))
    paused = run_of(pair, Mechanism("paused", recognition=PAUSE, transport=SMALL))
    for run in (today, paused):
        assert not any(run.reordered.values())
    assert iteration_s(paused) < 1.1 * iteration_s(shim)
    assert iteration_s(paused) < 0.95 * iteration_s(today)
