"""Settings that all points of a sweep have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

from echelon.model.documents import DocumentError
from echelon.switches.targets import DEFAULT_TARGET
from echelon_lab.machine import version


@dataclass(frozen=True, slots=True)
class ExperimentSettings:
    """The settings of a sweep that its command line gives."""

    scale: Fraction = Fraction(1, 100)
    """Divisor of published rates and sizes. Times are not scaled."""
    seed: int = 0
    packet_bytes: int = 9000
    """Size of a packet on the wire: jumbo frames, so that a scaled link carries as few packets as
    possible in a second."""
    quick: bool = False
    """Whether to run a subset that takes less than two minutes."""
    fabric: str = "virtual"
    target: str = DEFAULT_TARGET
    version: str = field(default_factory=version)
    """The version of the program."""

    def __post_init__(self) -> None:
        if not Fraction(1, 10_000) <= self.scale <= 1:
            raise DocumentError(
                "--scale",
                "",
                f"{self.scale} is not between 1/10000 and 1 (give a fraction, such as 1/100)",
            )

    def identity(self) -> dict[str, Any]:
        """Return the settings as JSON."""
        return {**asdict(self), "scale": str(self.scale)}

    @classmethod
    def from_identity(cls, identity: Mapping[str, Any]) -> ExperimentSettings:
        """Return the settings that `identity` was made of.

        Raise `DocumentError` if it cannot have been.
        """
        try:
            return cls(**{**identity, "scale": Fraction(str(identity["scale"]))})
        except (TypeError, KeyError, ValueError, ZeroDivisionError):
            raise DocumentError(
                "machine.json", "settings", "are not those of a sweep (run the experiment)"
            ) from None
