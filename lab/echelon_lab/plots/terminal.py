"""A small timeline in characters, where there is no matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from echelon_lab.plots.charts import Bar
from echelon_lab.plots.kinds.timeline import Row, rows_of
from echelon_lab.plots.measured import Excerpt, MeasuredRun

_MOST_LINES = 24
"""The most lines of a picture, which decide how many workers it shows."""
_IDLE, _SEVERAL, _UNNUMBERED = ".", "=", "#"


def timeline(run: MeasuredRun, width: int = 80) -> str:
    """Return who computes and who sends in the first iteration under each policy, in lines of at
    most `width` characters.

    A digit is that of the micro-batch, `#` is work without a number, and `=` several flows at once.
    Workers that do not fit are left out, which the first line says.
    """
    first = Excerpt(1, 1)
    rows = {policy: rows_of(of, first) for policy, of in run.policies.items()}
    workers = list(next(iter(rows.values())))
    shown = workers[: max(1, (_MOST_LINES // len(rows) - 1) // 2)]
    end_s = max(
        bar.finish_s for of in rows.values() for worker in shown for bar in _bars(of[worker])
    )
    margin = max(map(len, shown)) + len("   computes ")
    step_s = end_s / (width - margin)
    if len(shown) < len(workers):
        left_out = f", {len(shown)} of {len(workers)} hosts"
    else:
        left_out = ""
    lines = [f"First iteration, {end_s:.4g} s{left_out} (digits: micro-batches, =: several flows)"]
    for policy, of in rows.items():
        lines.append(run.headline(policy, Excerpt()))
        for worker in shown:
            for does, lanes in (("computes", of[worker].computes), ("sends", of[worker].flows)):
                if lanes:
                    cells = "".join(
                        _cells([bar for lane in lanes for bar in lane], step_s, width - margin)
                    )
                    lines.append(f"  {worker} {does}".ljust(margin) + cells)
    return "\n".join(lines)


def _bars(row: Row) -> Iterator[Bar]:
    for lane in (*row.computes, *row.flows):
        yield from lane


def _cells(bars: Sequence[Bar], step_s: float, count: int) -> Iterator[str]:
    """Yield a character for what goes on in the middle of each of `count` steps."""
    for place in range(count):
        middle_s = (place + 0.5) * step_s
        labels = [
            bar.label[-1:] or _UNNUMBERED for bar in bars if bar.start_s <= middle_s < bar.finish_s
        ]
        yield _SEVERAL if len(labels) > 1 else labels[0] if labels else _IDLE
