"""Hosts with GPUs and NICs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

NIC_SHARE = Fraction(91, 100)
"""The part of their line rate that a host's NICs carry together.

Four HDR cards of 200 Gbit/s reach 91 of 100 GB/s in NCCL's all-reduce over hosts with A100s
(NVIDIA/nccl-tests, issue 100; 119 and 175 have 85 and 86, with peaks of 96). It is carried over to
other cards. In a job file the rates are the fabric's: give it 91 % of the line rate.
"""


@dataclass(frozen=True, slots=True)
class Host:
    """A host: how many GPUs it has, and the line rate of all its NICs together."""

    gpus: int
    line_bps: int | None = None

    @property
    def bytes_per_s(self) -> Fraction:
        """Return the bytes that its NICs carry in a second. Raises `ValueError` without a rate."""
        if self.line_bps is None:
            raise ValueError("the line rate of the host's NICs is not known (give line_bps)")
        return NIC_SHARE * self.line_bps / 8
