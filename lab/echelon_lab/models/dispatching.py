"""The copies of a token that leave its host on the way to its experts."""

from __future__ import annotations

from fractions import Fraction
from math import comb
from typing import Literal

from echelon_lab.models.layers import Layer

Dispatch = Literal["each", "host"]


def copies(layer: Layer, hosts: int, dispatch: Dispatch) -> Fraction:
    """Return the mean number of copies of a token for experts on so many hosts.

    All-to-alls of NCCL have a copy for `each` active expert. DeepEP sends one to each `host` that
    has some of them, which passes it on over its own links. Tokens choose k of E experts, all with
    the same probability: a host with m experts has none of the k in C(E - m, k) of C(E, k) cases. A
    router may first choose some of the groups of experts (DeepSeek-V3, arXiv:2412.19437, section
    2.1.2: 4 of 8, each on a host of its own where 64 GPUs share experts). Groups limit the hosts
    where no host has more than one of them.
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
