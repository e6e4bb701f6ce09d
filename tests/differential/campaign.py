"""Many cases of one program on two switches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.differential.case import Case, Outcome, Sent
from tests.differential.catalogue import Subject
from tests.differential.compare import differences
from tests.differential.generator import make
from tests.differential.target import Target, TargetError, run

PACKETS_PER_CASE = 120


@dataclass(frozen=True)
class Verdict:
    """A case, what the other switch made of it (None if it failed at it), and how softswitch
    differs.
    """

    case: Case
    theirs: Outcome | None
    packets_out: int
    differences: tuple[str, ...]


def judge(subject: Subject, case: Case, ours: Target, theirs: Target) -> Verdict:
    """Run a case on both switches. A switch that fails at it is a difference too."""
    try:
        one = run(ours, subject, case)
    except TargetError as error:
        return Verdict(case, None, 0, (str(error),))
    out = sum(len(result.outputs) for result in one.results if isinstance(result, Sent))
    try:
        other = run(theirs, subject, case, one)
    except TargetError as error:
        return Verdict(case, None, out, (str(error),))
    return Verdict(case, other, out, tuple(differences(subject, case, one, other)))


def campaign(
    subject: Subject, seed: int, packet_count: int, ours: Target, theirs: Target
) -> Iterator[Verdict]:
    """Yield the results of cases of `packet_count` packets altogether, the same for a seed."""
    number = 0
    while packet_count > 0:
        rng = random.Random(f"{seed} {subject.name} {number}")
        case = make(subject, rng, min(PACKETS_PER_CASE, packet_count))
        number += 1
        packet_count -= case.packet_count
        yield judge(subject, case, ours, theirs)
