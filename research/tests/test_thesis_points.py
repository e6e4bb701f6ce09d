"""Points of the thesis as scenarios, and one of them measured through a real switch."""

from __future__ import annotations

from fractions import Fraction

import pytest

from echelon_lab.scenarios.scenario import scenario_of
from echelon_lab.traffic.outcome import FlowOutcome
from echelon_lab.traffic.schedule import PacedFlow, ScheduledFlow
from research.experiment import Selection
from research.measure import Bottleneck, measure, sharing, virtual_runner
from research.processor_sharing import Use
from research.settings import ExperimentSettings
from research.thesis.configurations import CONFIGURATIONS, LINK_BPS
from research.thesis.experiments import LOADS, THESIS
from research.thesis.models import MODELS
from research.thesis.points import CONFIGURATION_OF, document, iterations_of, point

SMALL = ExperimentSettings(scale=Fraction(1, 1000), quick=True)


@pytest.mark.parametrize("traffic", CONFIGURATION_OF)
@pytest.mark.parametrize("transport", ["rdma", "tcp"])
@pytest.mark.parametrize("model", MODELS)
def test_every_worker_sends_what_equation_3_1_says(
    traffic: str, transport: str, model: str
) -> None:
    at = point(traffic, transport, model, Fraction(20), "fifo")
    scenario = scenario_of(document(at, Fraction(3, 10), 5, ExperimentSettings()), "thesis")
    (job,) = scenario.jobs
    ring = CONFIGURATIONS[at.setup.configuration].ring
    assert job.workers == ring
    expected = float(MODELS[model].sent_bytes(len(ring))) / 100
    for worker in ring:
        assert sum(flow.size_bytes for flow in job.flows if flow.src == worker) == pytest.approx(
            expected, rel=1e-4
        )
        computed = sum(unit.duration_s for unit in job.computes if unit.worker == worker)
        assert computed == pytest.approx(0.3, rel=1e-9)
    (source,) = scenario.traffic
    assert source.pairs == (CONFIGURATIONS[at.setup.configuration].cross,)
    assert source.flows.load_bps == 200_000_000  # type: ignore[union-attr]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_cross_traffic_and_ring_meet_on_one_link_alone(name: str) -> None:
    configuration = CONFIGURATIONS[name]
    traffic = next(traffic for traffic, of in CONFIGURATION_OF.items() if of == name)
    scenario = scenario_of(
        document(point(traffic, "rdma", "vgg-16", Fraction(5), "fifo"), Fraction(0), 1, SMALL), "x"
    )
    link_bps = LINK_BPS // 1000
    bottleneck = configuration.bottleneck(link_bps)
    next_hops, fabric = scenario.fabric.next_hops, scenario.fabric

    def links(src: str, dst: str) -> set[tuple[str, str]]:
        out, at = set(), src
        while at != dst:
            (following,) = fabric.ports[at].values() if at in fabric.hosts else next_hops[at, dst]
            out.add((at, following))
            at = following
        return out

    crossed = links(*configuration.cross)
    (job,) = scenario.jobs
    shared = {link: [f for f in job.flows if link in links(f.src, f.dst)] for link in crossed}
    # Where training meets it on a link as slow as the bottleneck, it is the same flows all along:
    # one queue before it.
    slow = [
        {flow.name for flow in flows}
        for link, flows in shared.items()
        if flows and fabric.rate_bps[link] == link_bps
    ]
    assert slow
    assert all(of == slow[0] for of in slow)
    assert slow[0] == {flow.name for flow in job.flows if bottleneck.carries(flow)}


def test_sweeps_are_as_large_as_they_say() -> None:
    sizes = {name: len(of.points(ExperimentSettings(), Selection())) for name, of in THESIS.items()}
    assert sizes == {
        "thesis-iperf": 4 * 12 * 2,
        "thesis-websearch": 4 * 12 * 2 + 2 * 12 + 3,
        "thesis-burst": 102,
    }
    # The one control point without load is a point of the sweep itself.
    assert sizes["thesis-burst"] == 4 * 12 * 2 + 3 * 2
    assert LOADS[-1] == Fraction(96, 100)
    selected = Selection(("vgg-16",), (Fraction(4, 5),), ("echelon",))
    (only,) = THESIS["thesis-iperf"].points(ExperimentSettings(), selected)
    assert (only.setup.model, only.load_gbps, only.policy) == ("vgg-16", 20, "echelon")
    assert all(
        iterations_of(at, ExperimentSettings()) >= 5
        for at in THESIS["thesis-websearch"].points(ExperimentSettings(), Selection())
    )


def test_a_point_is_measured_through_the_switch_and_again_the_same() -> None:
    at = point("websearch", "rdma", "resnet-50", Fraction(10), "fifo")
    made = document(at, Fraction("0.1"), 3, SMALL)
    bottleneck = CONFIGURATIONS["b"].bottleneck(25_000_000)
    first, second = (
        measure(
            made, "small", warm_up=1, fewest=3, bottlenecks=[bottleneck], make_runner=virtual_runner
        )
        for _ in range(2)
    )
    assert first == second
    assert len(first["iterations_s"]) == 2
    taken_s = first["to_s"] - first["from_s"]
    assert sum(first["iterations_s"]) == pytest.approx(taken_s, abs=1e-6)
    # What crossed the bottleneck in that time: two iterations of one worker's ring, exactly.
    sent = 2 * float(MODELS["resnet-50"].sent_bytes(3)) / 1000 * 8
    assert first["training_bps"] == [pytest.approx(sent / taken_s, rel=1e-3)]
    assert first["cross"]["flows"] > 0
    assert first["sharing"][0]["flows"] == first["compared"]["flows"] > 0


def test_cross_traffic_is_compared_over_the_same_time_under_every_policy() -> None:
    """Under fifo iterations take longer than under echelon, which is given more of them."""
    found = {}
    for policy, iterations in (("fifo", 3), ("echelon", 5)):
        at = point("websearch", "rdma", "resnet-50", Fraction(20), policy)
        found[policy] = measure(
            document(at, Fraction("0.1"), iterations, SMALL),
            "small",
            warm_up=1,
            fewest=3,
            bottlenecks=[CONFIGURATIONS["b"].bottleneck(25_000_000)],
            make_runner=virtual_runner,
        )
    fifo, echelon = found["fifo"], found["echelon"]
    assert (fifo["from_s"], fifo["to_s"]) != (echelon["from_s"], echelon["to_s"])
    window = fifo["compared"]["from_s"], fifo["compared"]["to_s"]
    assert window == (echelon["compared"]["from_s"], echelon["compared"]["to_s"])
    assert all(of["to_s"] >= window[1] > window[0] > 0 for of in found.values())
    # The same flows were offered, and count.
    for key in ("flows", "offered_bps"):
        assert fifo["compared"][key] == echelon["compared"][key]
    assert (
        fifo["sharing"][0]["flows"] == echelon["sharing"][0]["flows"] == fifo["compared"]["flows"]
    )
    assert fifo["compared"]["achieved_bps"] > echelon["compared"]["achieved_bps"]


def test_sharing_compares_the_same_flows_over_the_same_time() -> None:
    bottleneck = Bottleneck("dst", ("h1",), 80)  # 10 bytes a second
    flows = [
        FlowOutcome(ScheduledFlow(0, "h3", "h1", 20), 0.0, 9.0),
        FlowOutcome(ScheduledFlow(1_000_000, "h3", "h1", 100), 1.0, None),
        FlowOutcome(ScheduledFlow(2_000_000, "h3", "h2", 1), 2.0, 3.0),  # elsewhere
        FlowOutcome(PacedFlow(2_000_000, "h3", "h1", 1, 8, 0), 2.0, 3.0),
    ]
    # 5 bytes a second are left: 20 bytes alone for 1 s, then two share: 15 more take 6 s; the rest
    # has 5 a second.
    found = sharing(flows, [Use(0.0, 20.0, 100.0)], bottleneck, 0.0, 10.0, float)
    assert (found.flows, found.unfinished, found.shared_unfinished) == (2, 1, 1)
    assert found.mean_time_s == pytest.approx((9 + 9) / 2)
    assert found.shared_mean_time_s == pytest.approx((7 + 9) / 2)
    late = sharing(flows, [Use(0.0, 20.0, 100.0)], bottleneck, 0.5, 10.0, float)
    assert late.flows == 1
