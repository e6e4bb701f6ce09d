"""Active flows and fabrics written out by hand."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.planning.allocation import ActiveFlow, Link


def build_active(
    sequence: int,
    links: tuple[Link, ...],
    *,
    job: str = "j",
    iteration: int = 1,
    echelonflow: str | None = "H",
    remaining_bytes: Fraction | int = 1000,
    start_s: Fraction = Fraction(0),
    deadline_s: Fraction = Fraction(0),
    max_rate_Bps: Fraction | None = None,  # noqa: N803
) -> ActiveFlow:
    return ActiveFlow(
        job=job,
        flow=f"f{sequence}",
        iteration=iteration,
        echelonflow=echelonflow,
        links=links,
        size_bytes=10**9,
        remaining_bytes=Fraction(remaining_bytes),
        start_s=start_s,
        deadline_s=deadline_s,
        sequence=sequence,
        max_rate_Bps=max_rate_Bps,
    )


def build_star(hosts: int, rate_bps: int = 8_000) -> Fabric:
    """Return hosts h1.. around one switch; 8 kbit/s carry a thousand bytes a second."""
    return Fabric(
        name="star",
        hosts={
            f"h{i}": Host(f"h{i}", f"10.0.0.{i}", f"02:00:00:00:00:{i:02x}")
            for i in range(1, hosts + 1)
        },
        switches={"s1": Switch("s1", 1)},
        cables=tuple(
            CableLink(LinkEnd(f"h{i}", 0), LinkEnd("s1", i), rate_bps, Fraction(0))
            for i in range(1, hosts + 1)
        ),
    )


@pytest.fixture(scope="session")
def active() -> Callable[..., ActiveFlow]:
    return build_active


@pytest.fixture(scope="session")
def star() -> Callable[..., Fabric]:
    return build_star
