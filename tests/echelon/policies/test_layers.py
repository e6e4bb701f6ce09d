"""Jobs with fewer layers."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.jobs.analysis import topological_order
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.policies.echelon.layers import with_fewer_layers
from tests.drawing import examples


def layered(layers: int, hosts: int, sizes: list[int] | None = None) -> Job:
    """Return a job in whose layers all hosts compute and then send to all others."""
    names = [f"h{number}" for number in range(hosts)]
    computes = []
    flows = []
    echelonflows = []
    before: tuple[str, ...] = ()
    for layer in range(layers):
        size_bytes = 1000 if sizes is None else sizes[layer]
        units = [f"unit-{layer}-{host}" for host in names]
        for unit, host in zip(units, names, strict=True):
            computes.append(ComputeUnit(unit, host, Fraction(1, 100), before))
        sent = []
        for unit, src in zip(units, names, strict=True):
            for dst in names:
                if src != dst:
                    sent.append(f"flow-{layer}-{src}-{dst}")
                    flows.append(Flow(sent[-1], src, dst, size_bytes, (unit,)))
        before = tuple(sent)
        echelonflows.append(EchelonFlow(f"layer-{layer}", before, (Fraction(0),) * len(sent)))
    return Job(
        name="layered",
        computes=tuple(computes),
        flows=tuple(flows),
        echelonflows=tuple(echelonflows),
    )


@given(st.integers(1, 12), st.integers(2, 4), st.integers(1, 100))
@settings(max_examples=examples(50))
def test_a_job_computes_and_sends_as_much(layers: int, hosts: int, most_flows: int) -> None:
    job = layered(layers, hosts)
    fewer = with_fewer_layers(job, most_flows)
    names = set(topological_order(fewer))
    assert names <= set(topological_order(job))
    assert sum(unit.duration_s for unit in fewer.computes) == sum(
        unit.duration_s for unit in job.computes
    )
    assert sum(flow.size_bytes for flow in fewer.flows) == sum(
        flow.size_bytes for flow in job.flows
    )
    grouped = [name for group in fewer.echelonflows for name in group.flows]
    assert sorted(grouped) == sorted(flow.name for flow in fewer.flows)
    a_layer = hosts * (hosts - 1)
    assert len(fewer.flows) <= max(most_flows + a_layer, a_layer)


def test_layers_that_differ_stay() -> None:
    job = layered(3, 2, [1, 2, 3])
    assert with_fewer_layers(job, 1) == job


@pytest.mark.parametrize(("most_flows", "layers"), [(12, 6), (6, 3), (4, 2), (1, 1)])
def test_layers_follow_each_other(most_flows: int, layers: int) -> None:
    fewer = with_fewer_layers(layered(6, 2), most_flows)
    assert len(fewer.flows) == 2 * layers
    first, *others = [unit for unit in fewer.computes if unit.worker == "h0"]
    assert first.after == ()
    for before, unit in zip([first, *others], others, strict=False):
        number = before.name.split("-")[1]
        assert set(unit.after) == {f"flow-{number}-h0-h1", f"flow-{number}-h1-h0"}
