"""Made traces in the format of coflow-benchmark."""

from __future__ import annotations

from random import Random


def made_trace(
    seed: int, ports: int, coflows: int, *, gap_ms: int = 200, largest_mb: int = 64
) -> str:
    """Return the text of a trace: most coflows are narrow and small, a few are wide and large."""
    rng = Random(seed)
    lines = [f"{ports} {coflows}"]
    arrival_ms = 0
    for number in range(1, coflows + 1):
        wide, large = rng.random() < 0.25, rng.random() < 0.25
        mappers = rng.sample(range(ports), rng.randint(1, ports if wide else 2))
        reducers = rng.sample(range(ports), rng.randint(1, ports if wide else 2))
        shares = " ".join(
            f"{port}:{rng.randint(1, largest_mb if large else 4)}.0" for port in reducers
        )
        lines.append(
            f"{number} {arrival_ms} {len(mappers)} {' '.join(map(str, mappers))} {len(reducers)}"
            f" {shares}"
        )
        arrival_ms += rng.randint(0, 2 * gap_ms)
    return "\n".join(lines) + "\n"
