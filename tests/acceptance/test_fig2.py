"""The worked example of EchelonFlow (HotNets '22, Fig. 2), from packets: published finish times in
units of 1 s.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
from acceptance.runs import ideal, softswitch

FLOWS = ("activation-s1-m1", "activation-s1-m2", "activation-s1-m3")
FINISH = {"fair": (Fraction(9, 2), Fraction(13, 2), 7), "varys": (7, 7, 7), "echelon": (3, 5, 7)}
COMPUTE_FINISH = {"fair": Fraction(17, 2), "varys": 10, "echelon": 8}


@pytest.mark.parametrize("policy", FINISH)
def test_exactly_by_the_policys_own_rates(policy: str) -> None:
    run = ideal("fig2", policy)
    flows = run.iteration("pipeline").flows
    assert tuple(flows[name].finish for name in FLOWS) == FINISH[policy]
    assert run.compute_finish_s("pipeline") == COMPUTE_FINISH[policy]


@pytest.mark.xdist_group("fig2")
@pytest.mark.parametrize("policy", FINISH)
def test_within_one_percent_softswitch(policy: str) -> None:
    run = softswitch("fig2", policy)
    flows = run.iteration("pipeline").flows
    measured = [float(flows[name].finish) for name in FLOWS]
    assert measured == pytest.approx([float(x) for x in FINISH[policy]], rel=0.01)
    assert run.compute_finish_s("pipeline") == pytest.approx(
        float(COMPUTE_FINISH[policy]), rel=0.01
    )
    assert run.run.reordered == {"pipeline": 0}
