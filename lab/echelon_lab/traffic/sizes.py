"""Distributions of flow sizes, from tables of published cumulative distributions.

A table is a text file of points ``bytes cumulative`` with comments after ``#``: so much of all
flows (0 to 1) is not larger than so many bytes. The tables in `cdf/` are known by their names; each
says where its points are from.

Between its points such a table can be read in two ways, which differ in the mean by a third and
more:

* ``points``: only the sizes in the table occur, each as often as the step up to it says. The thesis
  draws like this.
* ``linear``: sizes between two points are equally likely, as most traffic generators have it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from random import Random

from echelon.model.documents import DocumentError, suggestion
from echelon.model.errors import Code
from echelon.model.quantities import excerpt, number
from echelon_lab.traffic.schedule import MAX_SIZE_BYTES

_DIRECTORY = Path(__file__).parent / "cdf"


class _Points:
    def mean(self, sizes: Sequence[int], shares: Sequence[Fraction]) -> Fraction:
        mean = sizes[0] * shares[0]
        for index in range(1, len(sizes)):
            step = shares[index] - shares[index - 1]
            mean += sizes[index] * step
        return mean

    def size(
        self,
        sizes: Sequence[int],
        shares: Sequence[float],
        u: float,
    ) -> int:
        """Return the size below which a share `u` (0 or more, less than 1) of the flows is."""
        return sizes[bisect_right(shares, u)]


class _Linear:
    def mean(self, sizes: Sequence[int], shares: Sequence[Fraction]) -> Fraction:
        mean = sizes[0] * shares[0]
        for index in range(1, len(sizes)):
            step = shares[index] - shares[index - 1]
            middle = Fraction(sizes[index - 1] + sizes[index], 2)
            mean += middle * step
        return mean

    def size(
        self,
        sizes: Sequence[int],
        shares: Sequence[float],
        u: float,
    ) -> int:
        index = bisect_right(shares, u)
        if index == 0:
            return sizes[0]
        low = shares[index - 1]
        # Above the share before it, since `u` lies between them.
        high = shares[index]
        smaller = sizes[index - 1]
        larger = sizes[index]
        return max(round(smaller + (larger - smaller) * (u - low) / (high - low)), 1)


READINGS: Mapping[str, _Points | _Linear] = {"points": _Points(), "linear": _Linear()}
"""The rules for reading a table between its points, by name.

Files and the command line use the names. `sizes` and `shares` are its columns, ascending.
"""


_ALL_PERCENT = 100


@dataclass(frozen=True)
class SizeDistribution:
    """A distribution of flow sizes in bytes of payload."""

    name: str
    points: tuple[tuple[int, Fraction], ...]
    """Points of (bytes, share of flows that are not larger), both ascending, up to the share 1.

    Two points of one size are a step.
    """
    draw: str = "points"
    """Key of `READINGS`."""
    about: str = field(default="", compare=False)
    """Source of the points."""

    def __post_init__(self) -> None:
        if self.draw not in READINGS:
            raise ValueError(
                f"unknown reading of a distribution '{self.draw}'"
                f" ({suggestion(self.draw, READINGS)})"
            )
        fault = _fault(self.points)
        if fault:
            reason, _ = fault
            raise ValueError(f"distribution {self.name}: {reason}")

    @cached_property
    def mean_bytes(self) -> Fraction:
        """The exact mean.

        (Sizes that are drawn between points are rounded to whole bytes, at least 1.)
        """
        return READINGS[self.draw].mean(*self._columns)

    def quantile(self, u: float) -> int:
        """Return the size in bytes below which a share `u` of the flows is; 0 <= u < 1."""
        return READINGS[self.draw].size(self._columns[0], self._shares, u)

    def sample(self, rng: Random) -> int:
        """Draw one size in bytes, with one call of ``rng.random()``."""
        return self.quantile(rng.random())

    def scaled(self, factor: Fraction) -> SizeDistribution:
        """Return the distribution with all sizes times `factor`, rounded to whole bytes.

        Each has a byte at least.
        """
        if factor <= 0:
            raise ValueError(f"{factor} cannot scale sizes (give a number above 0)")
        largest, _ = self.points[-1]
        if largest * factor > MAX_SIZE_BYTES:
            raise ValueError(
                f"scaled by that, sizes are above {MAX_SIZE_BYTES} bytes (give a smaller number)"
            )
        points = []
        for size, share in self.points:
            scaled = 0
            if size:
                scaled = max(round(size * factor), 1)
            points.append((scaled, share))
        return replace(self, points=tuple(points))

    @cached_property
    def _columns(self) -> tuple[tuple[int, ...], tuple[Fraction, ...]]:
        sizes, shares = zip(*self.points, strict=True)
        return sizes, shares

    @cached_property
    def _shares(self) -> tuple[float, ...]:
        # Each drawing looks a size up, for which fractions are slow.
        return tuple(float(share) for share in self._columns[1])


def _fault(points: Sequence[tuple[int, Fraction]]) -> tuple[str, Code] | None:
    """Return what is wrong with the points of a distribution, and its code."""
    if not points:
        return "has no points (give lines of: bytes share)", "empty-document"
    for (a, low), (b, high) in pairwise(points):
        if b < a or high < low:
            reason = f"{b} {float(high):g} follows {a} {float(low):g} (both columns ascend)"
            return reason, "invalid-value"
    smallest, first_share = points[0]
    largest, last_share = points[-1]
    if first_share < 0 or smallest < 0:
        return "begins below 0 (sizes and shares are 0 or more)", "out-of-range"
    if largest > MAX_SIZE_BYTES:
        return f"has sizes above {MAX_SIZE_BYTES} bytes (give sizes in bytes)", "too-large"
    if last_share != 1:
        reason = (
            f"ends at the share {float(last_share):g}"
            " (the largest size has the share 1, or 100 of percentages)"
        )
        return reason, "invalid-value"
    if smallest == 0 and first_share > 0:
        return "has flows of 0 bytes (give the size 0 the share 0)", "too-small"
    if largest == 0:
        return "has no size above 0 (give sizes in bytes)", "too-small"
    return None


def builtin_sizes() -> tuple[str, ...]:
    """Return the names of the distributions that come with Echelon."""
    return tuple(sorted(path.stem for path in _DIRECTORY.glob("*.txt")))


def load_sizes(name_or_path: str | Path, draw: str = "points") -> SizeDistribution:
    """Return a distribution by its name (`builtin_sizes`) or from a file.

    Raises `DocumentError`.
    """
    text = str(name_or_path)
    path = _DIRECTORY / f"{text}.txt"
    if text not in builtin_sizes():
        path = Path(text)
        if not path.exists():
            choice = suggestion(text, builtin_sizes())
            reason = f"is neither a distribution of sizes nor a file ({choice})"
            raise DocumentError(text, "", reason, code="unknown-name")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        reason = f"{error.strerror or error} (check the path)"
        raise DocumentError(text, "", reason, code="unreadable-file") from None
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not UTF-8 text (save the file as UTF-8)"
        raise DocumentError(text, "", reason, code="not-utf8") from None
    points = _as_shares(tuple(_points(lines, text)))
    fault = _fault(points)
    if fault:
        reason, code = fault
        raise DocumentError(text, "", reason, code=code)
    about = " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))
    return SizeDistribution(path.stem, points, draw, about)


def _as_shares(points: tuple[tuple[int, Fraction], ...]) -> tuple[tuple[int, Fraction], ...]:
    """Return points with shares in the place of percentages, as generators for ns-3 have them.

    The largest size has the share 1, so nothing else ends at 100.
    """
    if not points or points[-1][1] != _ALL_PERCENT:
        return points
    return tuple((size, share / _ALL_PERCENT) for size, share in points)


def _points(lines: Iterable[str], file: str) -> Iterable[tuple[int, Fraction]]:
    for line_number, line in enumerate(lines, start=1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        try:
            size, share = fields
            yield int(size), number(share)
        except ValueError:
            reason = (
                f"{excerpt(line.strip())} is not a point"
                " (write bytes and the share up to it: 10000 0.15)"
            )
            raise DocumentError(file, f"line {line_number}", reason) from None
