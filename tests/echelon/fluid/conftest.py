"""Jobs and fabrics written out by hand, so that the simulator's tests depend on no other part of
the product.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.fluid import native
from tests.engines import ENGINES


def build_star(hosts: int, rate_bps: int = 8_000_000) -> Fabric:
    """Return hosts h1.. around one switch; 8 Mbit/s carry a million bytes a second."""
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


def build_pipeline(
    stages: int,
    micro_batches: int,
    unit_s: Fraction = Fraction(1),
    size_bytes: int = 2_000_000,
    name: str = "pipeline",
) -> Job:
    """Forward passes only, as in Fig. 2: stage s on host h<s>; units c<s>.<m>, flows f<s>.<m> to
    stage s + 1.
    """
    computes, flows, echelonflows = [], [], []
    for s in range(1, stages + 1):
        for m in range(1, micro_batches + 1):
            after = ((f"c{s}.{m - 1}",) if m > 1 else ()) + ((f"f{s - 1}.{m}",) if s > 1 else ())
            computes.append(ComputeUnit(f"c{s}.{m}", f"h{s}", unit_s, after))
            if s < stages:
                flows.append(Flow(f"f{s}.{m}", f"h{s}", f"h{s + 1}", size_bytes, (f"c{s}.{m}",)))
        if s < stages:
            names = tuple(f"f{s}.{m}" for m in range(1, micro_batches + 1))
            echelonflows.append(
                EchelonFlow(f"H{s}", names, tuple(unit_s * m for m in range(micro_batches)))
            )
    return Job(name, tuple(computes), tuple(flows), tuple(echelonflows))


def build_bulk(
    name: str, compute_s: Fraction, size_bytes: int, start_s: Fraction = Fraction(0)
) -> Job:
    """Compute on h1, then one flow to h2."""
    return Job(
        name,
        (ComputeUnit("c", "h1", compute_s),),
        (Flow("f", "h1", "h2", size_bytes, ("c",)),),
        (EchelonFlow("H", ("f",), (Fraction(0),)),),
        start_s,
    )


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the engine that computes: a test that asks for it runs on both."""
    if request.param == "python":
        monkeypatch.setattr(native, "available", lambda: False)
    return str(request.param)


@pytest.fixture(scope="session")
def star() -> Callable[..., Fabric]:
    return build_star


@pytest.fixture(scope="session")
def pipeline() -> Callable[..., Job]:
    return build_pipeline


@pytest.fixture(scope="session")
def bulk() -> Callable[..., Job]:
    return build_bulk
