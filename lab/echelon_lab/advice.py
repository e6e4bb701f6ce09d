"""Advice on the policy to take for given jobs on a given fabric: all of them on the fluid engine,
ranked.

Every policy runs twice: as if job files were right, and as if sizes and computing of each job were
misjudged by up to `DOUBT` and phases were unknown. The advice follows the first and says what the
second changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

DOUBT = 0.2
"""The part by which profiles of jobs may be wrong in the second run."""
DRAWS = 3
"""The number of draws of the second run."""
CLOSE = 0.01
"""Policies whose slowdowns differ by no more than this part are about as good: the one that needs
least comes first.
"""
MODEL_ERROR = 0.03
"""The median part by which fluid predictions differ from packets (docs/policies-measured.md,
"Predictions").
"""
WITHOUT_KNOWLEDGE = "fair"
"""What the network does without any policy: congestion control shares links."""


@dataclass(frozen=True, slots=True)
class Advised:
    """A policy and the slowdowns that it leads to, of which 1 is a job that has the network to
    itself.
    """

    policy: str
    mean: float
    worst: float
    worst_job: str
    doubted_mean: float
    doubted_worst: float
    needs: str

    @property
    def burden(self) -> int:
        """Return how many things it needs, of knowledge, hosts and a controller: one if it does not
        say. What only helps counts, because the slowdowns are those with its help."""
        if self.needs == "nothing":
            return 0
        return len(re.split("[,;]", self.needs))


@dataclass(frozen=True, slots=True)
class Advice:
    """The policies, the one to take first."""

    ranked: Sequence[Advised]
    failed: Mapping[str, str]
    """The reasons why policies did not run."""

    @property
    def best(self) -> Advised:
        """The policy to take."""
        return self.ranked[0]

    def sentences(self) -> Iterator[str]:
        """Yield which policy to take, why, and what the answer is worth."""
        best = self.best
        others = self.ranked[1:]
        fair = next((one for one in self.ranked if one.policy == WITHOUT_KNOWLEDGE), None)
        better = min(self.ranked, key=lambda one: one.mean)
        aside = (
            f"; {better.policy}, {1 - better.mean / best.mean:.1%} better in the mean, needs"
            f" {better.needs}"
        )
        yield (
            f"Take {best.policy}"
            + (
                f" (needs {best.needs}{aside if better.burden > best.burden else ''})"
                if best.needs
                else ""
            )
            + f": an iteration takes {best.mean:.3f} times as long as alone in the mean of the"
            " jobs, "
            f"and {best.worst:.3f} times for {best.worst_job}, the worst one."
        )
        if fair is None or fair is best:
            close = [one.policy for one in others if one.mean <= best.mean * (1 + CLOSE)]
            yield (
                f"As good within 1 %: {', '.join(close)}."
                if close
                else "No other policy comes within 1 %."
            )
        elif fair.mean <= best.mean * (1 + CLOSE) and fair.worst <= best.worst * (1 + CLOSE):
            yield "Fair sharing is as good within 1 %: these jobs hardly meet, and need no policy."
        else:
            gains = 1 - best.mean / fair.mean, 1 - best.worst / fair.worst
            yield (
                f"That is {_change(gains[0])} in the mean and {_change(gains[1])} for the worst job"
                f" compared with fair sharing ({fair.mean:.3f} and {fair.worst:.3f})."
            )
        doubted = min(self.ranked, key=lambda one: (one.doubted_mean, one.doubted_worst))
        held = best.doubted_mean <= doubted.doubted_mean * (1 + CLOSE)
        yield (
            f"With sizes and computing wrong by up to {100 * DOUBT:.0f} % and unknown phases, "
            + (f"{best.policy} stays the best" if held else f"{doubted.policy} would be better")
            + f" ({best.doubted_mean:.3f}"
            + ("" if held else f" against {doubted.doubted_mean:.3f}")
            + f"); times from packets differ from these by {100 * MODEL_ERROR:.0f} % in the median."
        )


def ranked(
    exact: Mapping[str, Mapping[str, Any]],
    doubted: Mapping[str, Mapping[str, Any]],
    needs: Mapping[str, str],
) -> Advice:
    """Return the advice from measured slowdowns, as `echelon_lab.evaluation.measure.slowdowns` has
    them.

    The best mean comes first. Of those about as good, it is the one whose worst job fares best, and
    of those whose worst jobs fare about as well, the one that needs least.
    """
    rows = []
    failed = {}
    for policy, measured in exact.items():
        both = measured, doubted[policy]
        problem = next((one["error"] for one in both if "error" in one), None)
        if problem is not None:
            failed[policy] = problem
            continue
        of, then = (one["slowdowns"] for one in both)
        worst_job = max(of, key=of.__getitem__)
        rows.append(
            Advised(
                policy,
                fmean(of.values()),
                of[worst_job],
                worst_job,
                fmean(then.values()),
                max(then.values()),
                needs.get(policy, ""),
            )
        )
    rows.sort(key=lambda one: (one.mean, one.worst))
    close = [one for one in rows if one.mean <= rows[0].mean * (1 + CLOSE)]
    close.sort(key=lambda one: (one.worst, one.mean))
    equal = [one for one in close if one.worst <= close[0].worst * (1 + CLOSE)]
    equal.sort(key=lambda one: (one.burden, one.worst, one.mean))
    return Advice(equal + close[len(equal) :] + rows[len(close) :], failed)


def _change(gain: float) -> str:
    return f"{100 * abs(gain):.1f} % {'less' if gain >= 0 else 'more'}"
