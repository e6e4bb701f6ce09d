"""How often a token leaves its host on the way to its experts."""

from __future__ import annotations

from fractions import Fraction
from math import comb
from typing import Literal

from echelon_lab.models.layers import Layer

Dispatch = Literal["each", "host"]


def copies(layer: Layer, hosts: int, dispatch: Dispatch) -> Fraction:
    """Return how many copies of a token there are for experts on so many hosts, in the mean.

    All-to-alls of NCCL have a copy for `each` active expert. DeepEP sends one to each `host` that
    has some of them, which passes it on over its own links. Tokens choose k of E experts alike: a
    host with m of these has none of them in C(E - m, k) of C(E, k) cases. A router may first choose
    some of the groups of experts (DeepSeek-V3, arXiv:2412.19437, section 2.1.2: 4 of 8, each on a
    host of its own where 64 GPUs share experts). They limit hosts where these have whole groups.
    """
    if dispatch == "each":
        return Fraction(layer.active)
    experts = layer.expert_count
    reached = hosts
    if hosts % layer.groups == 0:
        experts = experts * layer.chosen_groups // layer.groups
        reached = hosts * layer.chosen_groups // layer.groups
    elsewhere = comb(experts - experts // reached, layer.active)
    return reached * (1 - Fraction(elsewhere, comb(experts, layer.active)))
