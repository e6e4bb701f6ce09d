"""The table of metrics in docs/reference/metrics.md.

`python -m docs.generate.metrics` writes it anew.
"""

from __future__ import annotations

from pathlib import Path

from docs.generate.text import code, table, tables
from echelon.controller.service.metrics import METRICS

PAGE = Path(__file__).parents[1] / "reference" / "metrics.md"
HEAD = ("name", "kind", "labels", "meaning")


def metrics() -> str:
    """Return the table."""
    rows = []
    for metric in METRICS:
        name, said = (
            metric.name + "_total" * (metric.kind == "counter"),
            metric.short or metric.help,
        )
        meaning = said[0].lower() + said[1:] if said[1].islower() else said
        rows.append(
            (code(f"echelon_{name}"), metric.kind, ", ".join(map(code, metric.labels)), meaning)
        )
    return table(HEAD, rows).rstrip("\n")


def written(page: str) -> str:
    """Return the page with this table in the place of that which it has."""
    (old,) = (one for one in tables(page) if one.startswith("| name | kind |"))
    return page.replace(old, metrics())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
