"""Two pipelines over unmodified TCP, beside the shim; `python -m research.tcp_ranks` has more of
them.
"""

from __future__ import annotations

from operator import attrgetter

import pytest

from research.tcp_ranks import PAIRS, PAUSE, SMALL, Mechanism, fair, iteration_s, run_of

MECHANISMS = [
    Mechanism("plain"),
    Mechanism("small windows", transport=SMALL),
    Mechanism("paused", recognition=PAUSE, transport=SMALL),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=attrgetter("name"))
def test_tcp_is_within_a_tenth_of_the_shim(mechanism: Mechanism) -> None:
    pair = PAIRS[1]
    run = run_of(pair, mechanism)
    assert not any(run.reordered.values())
    assert iteration_s(run) < 1.1 * iteration_s(run_of(pair, None))
    assert iteration_s(run) < 0.9 * iteration_s(run_of(pair, Mechanism("fair", fair)))
