"""A small timeline in characters, where there is no matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from echelon_lab.plots.charts import Bar
from echelon_lab.plots.kinds.timeline import rows_of
from echelon_lab.plots.measured import Excerpt, MeasuredRun

_MOST_LINES = 24
"""The most lines of a picture, which decide how many workers it shows."""
_IDLE = "."
_SEVERAL = "="
_UNNUMBERED = "#"


def timeline(run: MeasuredRun, width: int = 80) -> str:
    """Return who computes and who sends in the first iteration under each policy.

    Lines have at most `width` characters. A digit is that of the micro-batch, `#` is work without a
    number, and `=` several flows at once. Workers that do not fit are left out, which the first
    line says.
    """
    first = Excerpt(1, 1)
    rows = {}
    for policy, results in run.policies.items():
        rows[policy] = rows_of(results, first)
    workers = list(next(iter(rows.values())))
    most = (_MOST_LINES // len(rows) - 1) // 2
    drawn = workers[: max(1, most)]
    if not drawn:
        return "The first iteration has too many flows and compute units to draw."
    end_s = 0.0
    for by_worker in rows.values():
        for worker in drawn:
            end_s = max(end_s, *(bar.finish_s for bar in by_worker[worker].bars))
    margin = max(len(worker) for worker in drawn) + len("   computes ")
    count = width - margin

    left_out = ""
    if len(drawn) < len(workers):
        left_out = f", {len(drawn)} of {len(workers)} hosts"
    lines = [f"First iteration, {end_s:.4g} s{left_out} (digits: micro-batches, =: several flows)"]
    for policy, by_worker in rows.items():
        lines.append(run.headline(policy, Excerpt()))
        for worker in drawn:
            row = by_worker[worker]
            for activity, lanes in (("computes", row.computes), ("sends", row.flows)):
                if lanes:
                    bars = [bar for lane in lanes for bar in lane]
                    head = f"  {worker} {activity}".ljust(margin)
                    lines.append(head + "".join(_cells(bars, end_s / count, count)))
    return "\n".join(lines)


def _cells(
    bars: Sequence[Bar],
    step_s: float,
    count: int,
) -> Iterator[str]:
    """Yield a character for what goes on in the middle of each of `count` steps."""
    for place in range(count):
        middle_s = (place + 0.5) * step_s
        labels = []
        for bar in bars:
            if bar.start_s <= middle_s < bar.finish_s:
                labels.append(bar.label[-1:] or _UNNUMBERED)
        if len(labels) > 1:
            yield _SEVERAL
        elif labels:
            yield labels[0]
        else:
            yield _IDLE
