"""Advice on the policy to take for given jobs on a given fabric.

All policies run on the fluid engine, and are ranked.

Every policy runs twice: as if job files were right, and as if sizes and computing of each job were
misjudged by up to `DOUBT` and phases were unknown. The advice follows the first and says what the
second changes. No policy is preferred to one that needs less for a gain within the uncertainty of
both (`Advised.interval`, `Advised.noise`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import hypot
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
    doubted_mean: float | None
    """None: no run has ended in which jobs are misjudged."""
    doubted_worst: float | None
    needs: str
    run: str = ""
    """The length and the grain of its runs, in words."""
    stage: int = 0
    """The number of the stage of its runs: the higher, the better they are."""
    interval: float = 0.0
    """The part by which the mean may be off to either side, with 95 % confidence."""
    worst_interval: float = 0.0
    noise: float = 0.0
    """The part by which both are off because runs are short or coarse."""

    def uncertainty(self, other: Advised) -> float:
        """Return the part by which two means have to differ to say something."""
        return max(CLOSE, self.noise, other.noise, hypot(self.interval, other.interval))

    def worst_uncertainty(self, other: Advised) -> float:
        """Return the same for the worst jobs."""
        intervals = hypot(self.worst_interval, other.worst_interval)
        return max(CLOSE, self.noise, other.noise, intervals)

    def is_as_good(self, other: Advised) -> bool:
        """Return whether the other has no better mean for certain."""
        return self.mean <= other.mean * (1 + self.uncertainty(other))

    def is_worst_as_good(self, other: Advised) -> bool:
        """Return whether the other's worst job does not fare better for certain."""
        return self.worst <= other.worst * (1 + self.worst_uncertainty(other))

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
        better = min(self._compared, key=lambda advised: advised.mean)
        if better.burden <= best.burden:
            return ""
        gain = 1 - better.mean / best.mean
        return f"; {better.policy}, {gain:.1%} better in the mean, needs {better.needs}"

    @property
    def _compared(self) -> Sequence[Advised]:
        """The policies whose runs are as good as those of the best."""
        return [advised for advised in self.ranked if advised.stage == self.best.stage]

    def _comparison(self) -> str:
        best = self.best
        fair = None
        for advised in self._compared:
            if advised.policy == WITHOUT_KNOWLEDGE:
                fair = advised
                break
        if fair is None or fair is best:
            return self._close_ones()
        percent = _percent(best.uncertainty(fair))
        if fair.is_as_good(best) and fair.is_worst_as_good(best):
            return (
                f"Fair sharing is as good within {percent}: these jobs hardly meet, and need no"
                " policy."
            )
        mean = _change(1 - best.mean / fair.mean)
        worst = _change(1 - best.worst / fair.worst)
        return (
            f"That is {mean} in the mean and {worst} for the worst job"
            f" compared with fair sharing ({fair.mean:.3f} and {fair.worst:.3f});"
            f" the uncertainty is {percent}."
        )

    def _close_ones(self) -> str:
        """Return which policies are as good as the best, in words."""
        best = self.best
        close = []
        uncertainty = CLOSE
        for advised in self._compared:
            if advised is not best and advised.is_as_good(best):
                close.append(advised.policy)
                uncertainty = max(uncertainty, advised.uncertainty(best))
        percent = _percent(uncertainty)
        if not close:
            return f"No other policy comes within {percent}."
        names = ", ".join(close)
        if best.policy == WITHOUT_KNOWLEDGE:
            return f"No gain over fair sharing is beyond the uncertainty of {percent}: {names}."
        return f"As good within {percent}: {names}."

    def _doubt(self) -> str:
        best = self.best
        accuracy = (
            f"times from packets differ from these by {100 * MODEL_ERROR:.0f} % in the median."
        )
        doubted = [advised for advised in self._compared if advised.doubted_mean is not None]
        if best not in doubted:
            return f"Wrong sizes and unknown phases have not been simulated; {accuracy}"

        least = min(doubted, key=_doubted)
        if _close(_doubted(best)[0], _doubted(least)[0]):
            outcome = f"{best.policy} stays the best ({best.doubted_mean:.3f})"
        else:
            outcome = (
                f"{least.policy} would be better"
                f" ({best.doubted_mean:.3f} against {least.doubted_mean:.3f})"
            )
        return (
            f"With sizes and computing wrong by up to {100 * DOUBT:.0f} % and unknown phases,"
            f" {outcome}; {accuracy}"
        )


def ranked(
    exact: Mapping[str, Mapping[str, Any]],
    doubted: Mapping[str, Mapping[str, Any]],
    needs: Mapping[str, str],
) -> Advice:
    """Return the advice from measured slowdowns.

    They are as `echelon_lab.evaluation.measure.slowdowns` has them, beside which `exact` may say
    how good they are (`echelon_lab.advising.campaign.Estimates`). Policies of the finest stage come
    before others, and better means before worse ones. First of all is the one to take: of those of
    the finest stage about as good as the best, those whose worst jobs fare best, and of those about
    as good again, the one that needs least, or fair sharing.
    """
    rows = []
    failed = {}
    for policy, measured in exact.items():
        doubted_run = doubted.get(policy, {})
        error = measured.get("error") or doubted_run.get("error")
        if error is None:
            slowdowns = doubted_run.get("slowdowns")
            rows.append(_advised(policy, measured, slowdowns, needs.get(policy, "")))
        else:
            failed[policy] = error
    if not rows:
        return Advice((), failed)

    rows.sort(key=lambda advised: (-advised.stage, advised.mean, advised.worst))
    best = rows[0]
    finest = [advised for advised in rows if advised.stage == best.stage]
    close = [advised for advised in finest if advised.is_as_good(best)]
    close.sort(key=lambda advised: (advised.worst, advised.mean))
    equal = [advised for advised in close if advised.is_worst_as_good(close[0])]
    chosen = min(equal, key=_by_burden)
    rows.remove(chosen)
    return Advice((chosen, *rows), failed)


def _by_burden(advised: Advised) -> tuple[int, bool, float, float]:
    is_other = advised.policy != WITHOUT_KNOWLEDGE
    return advised.burden, is_other, advised.worst, advised.mean


def _doubted(advised: Advised) -> tuple[float, float]:
    assert advised.doubted_mean is not None
    assert advised.doubted_worst is not None
    return advised.doubted_mean, advised.doubted_worst


def _advised(
    policy: str,
    measured: Mapping[str, Any],
    doubted: Mapping[str, float] | None,
    needs: str,
) -> Advised:
    slowdowns = measured["slowdowns"]
    worst_job = max(slowdowns, key=slowdowns.__getitem__)
    return Advised(
        policy,
        mean=fmean(slowdowns.values()),
        worst=slowdowns[worst_job],
        worst_job=worst_job,
        doubted_mean=fmean(doubted.values()) if doubted else None,
        doubted_worst=max(doubted.values()) if doubted else None,
        needs=needs,
        run=measured.get("run", ""),
        stage=measured.get("stage", 0),
        interval=measured.get("interval", 0.0),
        worst_interval=measured.get("worst_interval", 0.0),
        noise=measured.get("noise", 0.0),
    )


def _close(slowdown: float, best: float) -> bool:
    return slowdown <= best * (1 + CLOSE)


def _change(gain: float) -> str:
    return f"{100 * abs(gain):.1f} % {'less' if gain >= 0 else 'more'}"


def _percent(part: float) -> str:
    return f"{100 * part:.1f}".removesuffix(".0") + " %"
