"""The numbers of the thesis that ours are put beside.

Source: J. Salamy, Network Requirements for Distributed Machine Learning Training in the Cloud, SM
thesis, MIT, February 2022, chapter 3. Rates in Gbit/s, times in seconds, data in MB (10^6 bytes),
all at the thesis's own scale: a link of 25 Gbit/s.

Errata, as far as they concern these numbers:

- Table 2.1 gives BERT-large 366,428,986 parameters; by equation 3.1 Table 3.1's 2011 MB are those
  of 335,141,888.
- The congestion point of BERT-large in Table 3.2 is not legible in the copy that these were read
  from; its difference from theory, 10 %, is.
- Section 3.2 says that 20.5 Gbit/s of iperf makes BERT-large's iteration 5.3 times longer, and
  equation 3.4 that it is 5.257 s then: 6.3 times the 0.84 s of Table 3.1.
- Section 3.3.1 gives A = 0.204, B = 1.44 for BERT-large and equation 3.5, with B on the re-scaled
  axis of equation 3.2: there, 25 / (25 - BW) is under the root, so that on the axis of equation 3.5
  B is five times as large (7.2; Table 3.9 has 7.281).
- Table 3.2's difference for DenseNet-161 is 56 % (text of section 3.2, and by its own numbers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

LINK_GBPS = 25.0
"""Capacity C of the bottleneck."""
LIGHT, HEAVY = Fraction(3, 10), Fraction(8, 10)
"""Parts of it that cross traffic takes in figure 3-5."""

Traffic = Literal["iperf", "websearch", "burst"]
Transport = Literal["rdma", "tcp"]


@dataclass(frozen=True, slots=True)
class ZeroLoad:
    """A row of Table 3.1: no cross traffic, four workers, over RDMA."""

    data_mb: float
    iteration_s: Fraction
    required_gbps: float


TABLE_3_1: Mapping[str, ZeroLoad] = {
    "bert-large": ZeroLoad(2011, Fraction("0.84"), 19.15),
    "vgg-16": ZeroLoad(830, Fraction("0.37"), 17.95),
    "densenet-161": ZeroLoad(172, Fraction("0.38"), 3.63),
    "resnet-50": ZeroLoad(153, Fraction("0.16"), 7.69),
}


@dataclass(frozen=True, slots=True)
class CongestionData:
    """A row of Table 3.2, 3.4 or 3.6: data of an iteration by theory and by congestion point."""

    theory_mb: float
    measured_mb: float | None
    """None: not legible."""
    difference_percent: float


CONGESTION: Mapping[Traffic, Mapping[str, CongestionData]] = {
    "iperf": {  # Table 3.2
        "bert-large": CongestionData(2011.0, None, 10),
        "vgg-16": CongestionData(830.1, 928.7, 12),
        "densenet-161": CongestionData(172.1, 268.8, 56),
        "resnet-50": CongestionData(153.3, 182.5, 19),
    },
    "websearch": {  # Table 3.4
        "bert-large": CongestionData(1787.6, 2296.4, 28),
        "vgg-16": CongestionData(737.9, 990.7, 34),
        "densenet-161": CongestionData(153.0, 355.2, 132),
        "resnet-50": CongestionData(136.3, 198.8, 46),
    },
    "burst": {  # Table 3.6
        "bert-large": CongestionData(1787.6, 2343.5, 31),
        "vgg-16": CongestionData(737.9, 925.3, 25),
        "densenet-161": CongestionData(153.0, 284.9, 86),
        "resnet-50": CongestionData(136.3, 203.2, 49),
    },
}


@dataclass(frozen=True, slots=True)
class PublishedCongestionPoint:
    """The point where congestion begins: cross traffic, and the iteration time where the text gives
    it.
    """

    cross_gbps: float
    iteration_s: float | None = None


CONGESTION_POINTS: Mapping[Traffic, Mapping[str, PublishedCongestionPoint]] = {
    "iperf": {
        "vgg-16": PublishedCongestionPoint(13.99, 0.68),
        "densenet-161": PublishedCongestionPoint(19.7),
        "resnet-50": PublishedCongestionPoint(18.1),
    },
    "websearch": {
        "vgg-16": PublishedCongestionPoint(15.70, 0.85),
        "densenet-161": PublishedCongestionPoint(17.9),
        "resnet-50": PublishedCongestionPoint(15.8),
    },
    "burst": {
        "bert-large": PublishedCongestionPoint(14.6),
        "vgg-16": PublishedCongestionPoint(16.60, 0.88),
        "densenet-161": PublishedCongestionPoint(19.9),
        "resnet-50": PublishedCongestionPoint(18.4),
    },
}
"""Points of sections 3.2, 3.3.1 and 3.3.2; the figures 3-2, 3-3 and 3-4 show the others without
naming them.
"""


@dataclass(frozen=True, slots=True)
class MostCongested:
    """A row of Table 3.3, 3.5 or 3.7: bandwidth at the highest load of a series."""

    theory_gbps: float
    """Data of an iteration by equation 3.1 over the iteration time (equation 3.4)."""
    available_gbps: float
    """Bandwidth that the cross traffic left of the link."""

    @property
    def difference_gbps(self) -> float:
        return self.available_gbps - self.theory_gbps


MOST_CONGESTED: Mapping[Traffic, Mapping[str, MostCongested]] = {
    "iperf": {  # Table 3.3
        "bert-large": MostCongested(3.06, 4.54),
        "vgg-16": MostCongested(5.19, 6.52),
        "densenet-161": MostCongested(2.04, 3.42),
        "resnet-50": MostCongested(2.90, 4.21),
    },
    "websearch": {  # Table 3.5
        "bert-large": MostCongested(1.06, 3.18),
        "vgg-16": MostCongested(1.13, 3.19),
        "densenet-161": MostCongested(0.98, 2.97),
        "resnet-50": MostCongested(3.85, 5.83),
    },
    "burst": {  # Table 3.7
        "bert-large": MostCongested(0.078, 0.347),
        "vgg-16": MostCongested(0.232, 3.601),
        "densenet-161": MostCongested(0.131, 3.306),
        "resnet-50": MostCongested(0.095, 0.347),
    },
}

SPARE_GBPS: Mapping[Traffic, Mapping[str, float]] = {  # Table 3.8
    "iperf": {"bert-large": 1.24, "vgg-16": 1.12, "densenet-161": 1.64, "resnet-50": 1.21},
    "websearch": {"bert-large": 2.63, "vgg-16": 2.39, "densenet-161": 2.84, "resnet-50": 2.25},
    "burst": {"bert-large": 2.62, "vgg-16": 2.51, "densenet-161": 2.75, "resnet-50": 2.52},
}
"""Mean of available less theoretical bandwidth over the points where the link is saturated."""


@dataclass(frozen=True, slots=True)
class PublishedFit:
    """Coefficients of equation 3.7, ``t = a exp(b / (25 - BW)^n)``; b in (Gbit/s)^n."""

    a_s: float
    b: float
    n: float
    where: str


FITS: Mapping[tuple[Traffic, Transport, str], PublishedFit] = {
    ("iperf", "rdma", "bert-large"): PublishedFit(0.618, 9.95, 1, "equation 3.3"),
    ("iperf", "rdma", "vgg-16"): PublishedFit(0.254, 10.75, 1, "equation 3.3"),
    ("websearch", "rdma", "bert-large"): PublishedFit(0.200, 7.281, 0.5, "Table 3.9"),
    ("websearch", "rdma", "resnet-50"): PublishedFit(0.140, 22.793, 2, "Table 3.9"),
    ("websearch", "tcp", "bert-large"): PublishedFit(0.564, 3.667, 0.5, "Tables 3.9, 3.10"),
    ("websearch", "tcp", "resnet-50"): PublishedFit(0.0645, 3.311, 0.5, "Tables 3.9, 3.10"),
    ("burst", "tcp", "bert-large"): PublishedFit(0.268, 7.310, 0.5, "Table 3.10"),
    ("burst", "tcp", "resnet-50"): PublishedFit(0.0862, 4.174, 0.5, "Table 3.10"),
}

TCP_ZERO_LOAD_BERT_S = 1.45
"""BERT-large without cross traffic over TCP (section 3.4.2): the servers' processors take part in
sending.
"""
