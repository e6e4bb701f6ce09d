"""TotientPerms: the rings among which TopoOpt chooses (TopoOpt, W. Wang et al., NSDI '23, section
4.3).

A ring all-reduce may pass the members of its group in any order. The orders considered are those of
a stride: member i sends to member i + p. They are one ring of all k members where p has no divisor
in common with k; there are as many as Euler's totient says.
"""

from __future__ import annotations

from math import gcd, isqrt

MOST_STRIDES = 64
"""The strides from which only 1 and primes count, about k / ln k of them (section 4.3)."""


def totient_perms(members: int, *, duplex: bool = False) -> tuple[int, ...]:
    """Return the strides of the rings of so many members, 2 or more, in ascending order.

    Over cables that carry as much in both directions, a ring of stride k - p is that of p
    backwards: `duplex` leaves out the larger of each pair.
    """
    most = members // 2 if duplex else members - 1
    strides = []
    for stride in range(1, most + 1):
        if gcd(stride, members) == 1:
            strides.append(stride)
    if len(strides) > MOST_STRIDES:
        primes = filter(_is_prime, strides)
        return (1, *primes)
    return tuple(strides)


def ring(members: int, stride: int) -> tuple[int, ...]:
    """Return the members, from 0, in the order in which the ring of this stride passes them."""
    steps = range(members)
    return tuple(step * stride % members for step in steps)


def _is_prime(number: int) -> bool:
    if number < 2:
        return False
    divisors = range(2, isqrt(number) + 1)
    return all(number % divisor for divisor in divisors)
