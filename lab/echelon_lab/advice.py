"""Advice on the policy to take for given jobs on a given fabric.

All policies run on the fluid engine, and are ranked.

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
"""Policies whose slowdowns differ by no more than this part are about as good.

The one that needs least comes first.
"""
MODEL_ERROR = 0.03
"""The median part by which fluid predictions differ from packets.

It is measured in research/notebook/policies.md, "Predictions".
"""
WITHOUT_KNOWLEDGE = "fair"
"""The policy that stands for a network without one: congestion control shares links."""


@dataclass(frozen=True, slots=True)
class Advised:
    """A policy and the slowdowns that it leads to.

    A job that has the network to itself has a slowdown of 1.
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
        """Return how many things it needs, of knowledge, hosts and a controller.

        This is one if it does not say. What only helps counts, because the slowdowns are those with
        its help.
        """
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
        yield self._choice()
        yield self._comparison()
        yield self._doubt()

    def _choice(self) -> str:
        best = self.best
        needs = ""
        if best.needs:
            needs = f" (needs {best.needs}{self._alternative()})"
        return (
            f"Take {best.policy}{needs}: an iteration takes {best.mean:.3f} times as long as alone"
            f" in the mean of the jobs, and {best.worst:.3f} times for {best.worst_job}, the worst"
            " one."
        )

    def _alternative(self) -> str:
        """Return which policy is better but needs more, in words; nothing if there is none."""
        best = self.best
        better = min(self.ranked, key=lambda advised: advised.mean)
        if better.burden <= best.burden:
            return ""
        gain = 1 - better.mean / best.mean
        return f"; {better.policy}, {gain:.1%} better in the mean, needs {better.needs}"

    def _comparison(self) -> str:
        best = self.best
        fair = None
        for advised in self.ranked:
            if advised.policy == WITHOUT_KNOWLEDGE:
                fair = advised
                break
        if fair is None or fair is best:
            close = []
            for advised in self.ranked[1:]:
                if _close(advised.mean, best.mean):
                    close.append(advised.policy)
            if close:
                return f"As good within 1 %: {', '.join(close)}."
            return "No other policy comes within 1 %."
        if _close(fair.mean, best.mean) and _close(fair.worst, best.worst):
            return "Fair sharing is as good within 1 %: these jobs hardly meet, and need no policy."
        mean = _change(1 - best.mean / fair.mean)
        worst = _change(1 - best.worst / fair.worst)
        return (
            f"That is {mean} in the mean and {worst} for the worst job"
            f" compared with fair sharing ({fair.mean:.3f} and {fair.worst:.3f})."
        )

    def _doubt(self) -> str:
        best = self.best
        doubted = min(
            self.ranked, key=lambda advised: (advised.doubted_mean, advised.doubted_worst)
        )
        if _close(best.doubted_mean, doubted.doubted_mean):
            outcome = f"{best.policy} stays the best ({best.doubted_mean:.3f})"
        else:
            outcome = (
                f"{doubted.policy} would be better"
                f" ({best.doubted_mean:.3f} against {doubted.doubted_mean:.3f})"
            )
        return (
            f"With sizes and computing wrong by up to {100 * DOUBT:.0f} % and unknown phases,"
            f" {outcome}; times from packets differ from these by {100 * MODEL_ERROR:.0f} % in the"
            " median."
        )


def ranked(
    exact: Mapping[str, Mapping[str, Any]],
    doubted: Mapping[str, Mapping[str, Any]],
    needs: Mapping[str, str],
) -> Advice:
    """Return the advice from measured slowdowns.

    They are as `echelon_lab.evaluation.measure.slowdowns` has them. The best mean comes first. Of
    those about as good, it is the one whose worst job fares best, and of those whose worst jobs
    fare about as well, the one that needs least.
    """
    rows = []
    failed = {}
    for policy, measured in exact.items():
        error = measured.get("error") or doubted[policy].get("error")
        if error is None:
            slowdowns = measured["slowdowns"]
            rows.append(_advised(policy, slowdowns, doubted[policy]["slowdowns"], needs))
        else:
            failed[policy] = error
    if not rows:
        return Advice((), failed)

    rows.sort(key=lambda advised: (advised.mean, advised.worst))
    close = [advised for advised in rows if _close(advised.mean, rows[0].mean)]
    close.sort(key=lambda advised: (advised.worst, advised.mean))
    equal = [advised for advised in close if _close(advised.worst, close[0].worst)]
    equal.sort(key=lambda advised: (advised.burden, advised.worst, advised.mean))
    return Advice(equal + close[len(equal) :] + rows[len(close) :], failed)


def _advised(
    policy: str,
    slowdowns: Mapping[str, float],
    doubted: Mapping[str, float],
    needs: Mapping[str, str],
) -> Advised:
    worst_job = max(slowdowns, key=slowdowns.__getitem__)
    return Advised(
        policy,
        mean=fmean(slowdowns.values()),
        worst=slowdowns[worst_job],
        worst_job=worst_job,
        doubted_mean=fmean(doubted.values()),
        doubted_worst=max(doubted.values()),
        needs=needs.get(policy, ""),
    )


def _close(slowdown: float, best: float) -> bool:
    return slowdown <= best * (1 + CLOSE)


def _change(gain: float) -> str:
    return f"{100 * abs(gain):.1f} % {'less' if gain >= 0 else 'more'}"
