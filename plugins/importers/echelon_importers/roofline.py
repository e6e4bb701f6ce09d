"""Times of a GPU for operations and bytes, where a file has none.

The roofline (S. Williams et al., Communications of the ACM 52(4), 2009) takes the longer of two
times: that of the operations at the rate at which large matrices were measured to multiply, and
that of the bytes at the bandwidth of the memory. ASTRA-sim does the same (`system/Roofline.cc`),
with rates of its configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from echelon.model.documents import DocumentError
from echelon.model.extras import plug_in


@dataclass(frozen=True, slots=True)
class Roofline:
    """The two rates that limit a GPU."""

    gpu: str
    flops_per_s: Fraction
    """Operations a second that large matrix multiplications reach."""
    memory_bytes_per_s: int

    def duration_s(self, operations: int, moved_bytes: int) -> Fraction:
        """Return the seconds for the operations and the bytes that they move in memory."""
        computing_s = operations / self.flops_per_s
        moving_s = Fraction(moved_bytes, self.memory_bytes_per_s)
        return max(computing_s, moving_s)


def find_roofline(gpu: str) -> Roofline:
    """Return the rates of a GPU by its name in `echelon job new`. Raises `DocumentError`.

    A GPU that is given by its rates, as ``peak=275,local=300,memory=1200``, reaches its peak.
    """
    try:
        from echelon_lab.models.gpus import find_gpu
    except ModuleNotFoundError:
        raise DocumentError("--gpu", "", f"{plug_in('echelon.commands', 'job.new')}") from None
    unit = find_gpu(gpu)
    efficiency = unit.efficiency
    if efficiency is None and "=" in gpu:
        efficiency = Fraction(1)
    if efficiency is None:
        reason = (
            f"no measurement of the {unit.name} is known here (name another GPU, or give"
            " --computing)"
        )
        raise DocumentError("--gpu", "", reason)
    rate = unit.peak_flops * efficiency
    return Roofline(unit.name, rate, unit.memory_bytes_per_s)
