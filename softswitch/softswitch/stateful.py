"""Counters, registers and meters.

They are the arrays of a program, and the state that direct ones keep in table entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from .errors import BadEntry
from .numerals import brief

GREEN, YELLOW, RED = 0, 1, 2

_NS = 1_000_000_000


class Cells(Protocol):
    """Numbers by index: a list, or a view of native memory."""

    def __getitem__(self, index: int, /) -> int: ...
    def __setitem__(self, index: int, value: int, /) -> None: ...
    def __iter__(self) -> Iterator[int]: ...


class _Array:
    """An array with a name and a size; ``kind`` is used in messages."""

    __slots__ = ("name", "size")
    kind = "array"

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size

    def _check(self, index: int) -> None:
        if not 0 <= index < self.size:
            raise BadEntry(f"{self.kind} '{self.name}': index {index} is not in 0..{self.size - 1}")


class Counter(_Array):
    """An array of packet-and-byte counters. It always counts both, so ``unit`` is ``both``.

    Without ``has_cells``, an engine sets them before they are used.
    """

    __slots__ = ("byte_counts", "packet_counts")
    kind = "counter"
    unit = "both"

    def __init__(
        self,
        name: str,
        size: int,
        has_cells: bool = True,
    ) -> None:
        super().__init__(name, size)
        cells = size if has_cells else 0
        self.packet_counts: Cells = [0] * cells
        self.byte_counts: Cells = [0] * cells

    def read(self, index: int) -> tuple[int, int]:
        """Return (packets, bytes). Raises :class:`BadEntry` for an index out of range."""
        self._check(index)
        return self.packet_counts[index], self.byte_counts[index]

    def write(
        self,
        index: int,
        packets: int,
        octets: int,
    ) -> None:
        self._check(index)
        self.packet_counts[index] = packets
        self.byte_counts[index] = octets


class Register(_Array):
    """An array of unsigned integers of ``width`` bits.

    Without ``has_cells``, an engine sets them before they are used.
    """

    __slots__ = ("cells", "width")
    kind = "register"

    def __init__(
        self,
        name: str,
        size: int,
        width: int,
        has_cells: bool = True,
    ) -> None:
        super().__init__(name, size)
        self.width = width
        self.cells: Cells = [0] * (size if has_cells else 0)

    def read(self, index: int) -> int:
        """Return a cell's value. Raises :class:`BadEntry` for an index out of range."""
        self._check(index)
        return self.cells[index]

    def write(self, index: int, value: int) -> None:
        """Store ``value``. Raises :class:`BadEntry` if it does not fit ``width`` bits."""
        self._check(index)
        if not 0 <= value < 1 << self.width:
            raise BadEntry(f"register '{self.name}': {brief(value)} does not fit {self.width} bits")
        self.cells[index] = value


@dataclass(frozen=True, slots=True)
class MeterConfig:
    """Rates per second and bursts, in packets or bytes as the meter counts.

    The peak is not below the committed rate.

    With an ``excess_burst`` there is one rate, the committed one, and the peak is not used.
    """

    committed_rate: int
    committed_burst: int
    peak_rate: int
    peak_burst: int
    excess_burst: int | None = None


class MeterCell:
    """One colour-blind three-colour marker, which marks everything green until it is configured.

    It has two rates (RFC 2698), or one rate with an excess burst (RFC 2697). Tokens are kept in
    units of 1e-9, so that rate times nanoseconds needs no rounding.
    """

    __slots__ = ("_committed", "_config", "_last_ns", "_peak")

    def __init__(self) -> None:
        self._config: MeterConfig | None = None
        self._committed = 0
        self._peak = 0
        self._last_ns: int | None = None

    @property
    def config(self) -> MeterConfig | None:
        return self._config

    def configure(self, config: MeterConfig | None) -> None:
        """Set rates, with both buckets full; None ends metering. Raises :class:`BadEntry`."""
        if config is not None:
            values = (
                config.committed_rate,
                config.committed_burst,
                config.peak_rate,
                config.peak_burst,
            )
            if min(values) < 0:
                raise BadEntry(f"meter: rates and bursts must not be negative, are {values}")
            if config.peak_rate < config.committed_rate:
                raise BadEntry(
                    f"meter: the peak rate {config.peak_rate} is below the"
                    f" committed rate {config.committed_rate}"
                )
            if config.excess_burst is not None and config.excess_burst < 0:
                raise BadEntry(
                    f"meter: the excess burst must not be negative, is {config.excess_burst}"
                )
            self._committed = config.committed_burst * _NS
            self._peak = (
                config.peak_burst if config.excess_burst is None else config.excess_burst
            ) * _NS
        self._config = config
        self._last_ns = None

    def execute(self, amount: int, now_ns: int) -> int:
        """Return the colour of a packet of ``amount`` units at ``now_ns``."""
        config = self._config
        if config is None:
            return GREEN
        last_ns = now_ns if self._last_ns is None else self._last_ns
        elapsed = max(0, now_ns - last_ns)
        self._last_ns = max(now_ns, last_ns)
        if config.excess_burst is not None:
            return self._execute_single(config, config.excess_burst, amount * _NS, elapsed)
        self._peak = min(self._peak + elapsed * config.peak_rate, config.peak_burst * _NS)
        self._committed = min(
            self._committed + elapsed * config.committed_rate, config.committed_burst * _NS
        )
        needed = amount * _NS
        if self._peak < needed:
            return RED
        self._peak -= needed
        if self._committed < needed:
            return YELLOW
        self._committed -= needed
        return GREEN

    def _execute_single(
        self,
        config: MeterConfig,
        excess_burst: int,
        needed: int,
        elapsed: int,
    ) -> int:
        """Mark by RFC 2697.

        Tokens that do not fit the committed bucket flow into the excess bucket.
        """
        filled = self._committed + elapsed * config.committed_rate
        self._committed = min(filled, config.committed_burst * _NS)
        self._peak = min(self._peak + filled - self._committed, excess_burst * _NS)
        if self._committed >= needed:
            self._committed -= needed
            return GREEN
        if self._peak >= needed:
            self._peak -= needed
            return YELLOW
        return RED


class Meter(_Array):
    """An array of meters; ``unit`` is ``bytes`` or ``packets``."""

    __slots__ = ("_cells", "unit")
    kind = "meter"

    def __init__(
        self,
        name: str,
        size: int,
        unit: str,
    ) -> None:
        super().__init__(name, size)
        self.unit = unit
        self._cells: dict[int, MeterCell] = {}

    def read(self, index: int) -> MeterConfig | None:
        """Return the configuration, None if there is none.

        Raises :class:`BadEntry` for an index out of range.
        """
        self._check(index)
        cell = self._cells.get(index)
        return None if cell is None else cell.config

    def configure(self, index: int, config: MeterConfig | None) -> None:
        """Configure a cell.

        Raises :class:`BadEntry` for an index out of range or rates that contradict each other.
        """
        self._check(index)
        if config is None:
            self._cells.pop(index, None)
        else:
            self._cells.setdefault(index, MeterCell()).configure(config)

    def execute(
        self,
        index: int,
        length_bytes: int,
        now_ns: int,
    ) -> int:
        """Return the colour of a packet; green if the cell is not configured.

        ``index`` must be in range.
        """
        cell = self._cells.get(index)
        if cell is None:
            return GREEN
        return cell.execute(length_bytes if self.unit == "bytes" else 1, now_ns)
