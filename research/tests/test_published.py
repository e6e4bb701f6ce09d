"""The thesis's numbers against each other: what was misread would not fit."""

from __future__ import annotations

import math

import pytest

from research.thesis.models import MODELS
from research.thesis.published import (
    CONGESTION,
    CONGESTION_POINTS,
    FITS,
    MOST_CONGESTED,
    SPARE_GBPS,
    TABLE_3_1,
    TCP_ZERO_LOAD_BERT_S,
)

RINGS = {"iperf": 4, "websearch": 3, "burst": 3}


@pytest.mark.parametrize("name", MODELS)
def test_equation_3_1_gives_the_data_of_all_tables(name: str) -> None:
    model = MODELS[name]
    assert float(model.sent_bytes(4)) / 1e6 == pytest.approx(TABLE_3_1[name].data_mb, abs=0.5)
    for traffic, of_traffic in CONGESTION.items():
        assert float(model.sent_bytes(RINGS[traffic])) / 1e6 == pytest.approx(
            of_traffic[name].theory_mb, abs=0.25
        )


@pytest.mark.parametrize("name", MODELS)
def test_data_over_time_is_the_bandwidth_required(name: str) -> None:
    row = TABLE_3_1[name]
    # Times are rounded to hundredths of a second.
    low, high = (row.data_mb * 8e-3 / (float(row.iteration_s) + off) for off in (0.0051, -0.0051))
    assert low <= row.required_gbps <= high


@pytest.mark.parametrize("traffic", CONGESTION)
def test_differences_follow_from_the_data(traffic: str) -> None:
    for row in CONGESTION[traffic].values():  # type: ignore[index]
        if row.measured_mb is not None:
            assert (row.measured_mb / row.theory_mb - 1) * 100 == pytest.approx(
                row.difference_percent, abs=0.6
            )


@pytest.mark.parametrize("traffic", CONGESTION_POINTS)
def test_points_are_where_their_data_are(traffic: str) -> None:
    for name, point in CONGESTION_POINTS[traffic].items():  # type: ignore[index]
        measured_mb = CONGESTION[traffic][name].measured_mb  # type: ignore[index]
        time_s = measured_mb * 8e-3 / (25 - point.cross_gbps)
        # No iteration is shorter than without cross traffic (TCP, in the third sweep, has its own).
        assert time_s > 0.95 * float(TABLE_3_1[name].iteration_s)
        assert time_s < 4 * float(TABLE_3_1[name].iteration_s)


def test_the_text_gives_some_of_the_tables_numbers() -> None:
    bert = MOST_CONGESTED["iperf"]["bert-large"]
    assert pytest.approx(bert.theory_gbps, abs=0.005) == 2011 * 8e-3 / 5.257
    assert bert.difference_gbps == pytest.approx(1.48, abs=0.005)
    mean = sum(row.difference_gbps for row in MOST_CONGESTED["websearch"].values()) / 4
    assert mean == pytest.approx(2.03, abs=0.02)
    steps = [SPARE_GBPS["websearch"][name] - SPARE_GBPS["iperf"][name] for name in MODELS]
    assert 1.0 <= min(steps) < max(steps) <= 1.4


def test_fits_pass_near_the_zero_load_times_that_are_given() -> None:
    def at_zero(traffic: str, transport: str, model: str) -> float:
        fit = FITS[traffic, transport, model]  # type: ignore[index]
        return fit.a_s * math.exp(fit.b / 25**fit.n)

    assert at_zero("websearch", "rdma", "bert-large") == pytest.approx(0.84, rel=0.05)
    assert at_zero("websearch", "rdma", "resnet-50") == pytest.approx(0.16, rel=0.1)
    assert at_zero("iperf", "rdma", "vgg-16") == pytest.approx(0.37, rel=0.1)
    assert at_zero("websearch", "tcp", "bert-large") == pytest.approx(
        TCP_ZERO_LOAD_BERT_S, rel=0.25
    )


def test_fusion_buffers() -> None:
    assert {name: model.buckets for name, model in MODELS.items()} == {
        "bert-large": 20,
        "vgg-16": 9,
        "densenet-161": 2,
        "resnet-50": 2,
    }
