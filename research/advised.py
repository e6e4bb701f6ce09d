"""The advice of `echelon advise` beside the outcome from packets.

`python -m research.advised [FILE...]` prints both.

Every policy that decides once runs each scenario from packets, for as long as its slowest job needs
alone for `ITERATIONS`. A line for each scenario: the advice, the best from packets, and the regret,
by what part the mean slowdown under the advice is larger. Policies that decide again and again take
hours from packets and are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from echelon.planning.policies.registry import described
from echelon_lab.advice import CLOSE, ranked
from echelon_lab.evaluation.measure import Knowledge, Mode, slowdowns
from echelon_lab.scenarios.scenario import PolicyChoice

ITERATIONS = 10
POLICIES = ("aalo", "cassini", "crux", "echelon", "fair", "fifo", "mfs", "mltcp", "srpt", "unfair")
SCENARIOS = (
    "dp_pair", "fig2", "mix_dp4", "mix_dp6", "mix_dpsame4", "mix_mixed4", "mix_mixed6", "mix_pp6", "overlap",
    "parameter_server", "shared_link", "staleness",
)  # fmt: skip


def main() -> None:
    folder = Path("topologies/scenarios")
    files = [Path(word) for word in sys.argv[1:]]
    if not files:
        files = [folder / f"{name}.yaml" for name in SCENARIOS]
    regrets = []
    needs = {kind.name: kind.needs for kind in described()}
    for file in files:
        exact = _ran(file, "plan", Knowledge())
        best = ranked(exact, exact, needs).best.policy
        happened = {}
        for name, result in _ran(file, "packets", Knowledge()).items():
            happened[name] = fmean(result["slowdowns"].values())
        then = min(happened, key=happened.__getitem__)
        regret = happened[best] / happened[then] - 1
        regrets.append(regret)
        print(
            f"{file.stem}: take {best} ({happened[best]:.3f}), best from packets {then}"
            f" ({happened[then]:.3f}), fair {happened['fair']:.3f}, regret {regret:.1%}",
            flush=True,
        )
    print(*_report(regrets), sep="\n")


def _ran(
    file: Path,
    mode: Mode,
    knowledge: Knowledge,
) -> Mapping[str, Mapping[str, Any]]:
    """Return the measurement of each policy that ran."""
    results = {}
    for name in POLICIES:
        result = slowdowns(str(file), PolicyChoice(name), mode, ITERATIONS, knowledge)
        if "error" in result:
            print(f"{file.stem}: {name} ({mode}): {result['error']}", file=sys.stderr)
        else:
            results[name] = result
    return results


def _report(regrets: list[float]) -> Iterator[str]:
    near = sum(regret <= CLOSE for regret in regrets)
    yield (
        f"best within {CLOSE:.0%}: {near} of {len(regrets)}; regret {fmean(regrets):.1%} in the"
        f" mean, {max(regrets):.1%} at most"
    )


if __name__ == "__main__":
    main()
