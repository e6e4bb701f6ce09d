"""Times of computing of a list: as measured, from shapes of matrices, or as options say."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from echelon_importers.aicb.options import AicbOptions
from echelon_importers.aicb.rows import Row
from echelon_importers.roofline import find_roofline


class ComputingTimes:
    """Seconds of computing for the rows of each stage."""

    def __init__(self, options: AicbOptions, stages: Sequence[Sequence[Row]]) -> None:
        self.gpu = options.gpu
        self.flops_per_s = None
        if options.gpu is not None:
            self.flops_per_s = find_roofline(options.gpu).flops_per_s
        self.rows = [row for rows in stages for row in rows if row.kind == "computation"]
        self.computing_s = Fraction(0)
        """What each rank computes in equal parts after its rows."""
        if options.computing is not None and not self.rows:
            self.computing_s = options.computing
        self.parts = [max(1, len(rows)) for rows in stages]
        """The number of those parts in each stage."""

    def part_s(self, stage: int) -> Fraction:
        """Return what the ranks of a stage compute after each row."""
        return self.computing_s / self.parts[stage]

    def duration_s(self, row: Row) -> Fraction | None:
        """Return what a row of computing takes; None: nothing says it."""
        if row.elapsed_ms is not None:
            return row.elapsed_ms / 1000
        if row.flops is not None and self.flops_per_s is not None:
            return row.flops / self.flops_per_s
        return None

    def notes(self) -> list[str]:
        """Return lines for the reader about options that change nothing."""
        needs_gpu = any(row.elapsed_ms is None for row in self.rows)
        if self.gpu is None or needs_gpu:
            return []
        return [f"--gpu {self.gpu} changes nothing: no row of computing lacks a time"]
