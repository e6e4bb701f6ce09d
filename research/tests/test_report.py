"""Tables, figures and findings, of curves of which we know what is true."""

from __future__ import annotations

import csv
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from echelon_lab.points.store import PointStore, Stored
from research.settings import ExperimentSettings
from research.thesis.experiments import LOADS
from research.thesis.models import MODELS
from research.thesis.points import Setup, point
from research.thesis.report import sections, write
from research.thesis.series import curves_of, rising
from research.thesis.tables import tables

SETTINGS = ExperimentSettings()
Truth = Callable[[str, float], float]
"""Iteration time of a model at a load (Gbit/s), seconds."""


def theory(model: str, load_gbps: float) -> float:
    """Return the time of an iteration: with the sending that the load delays, or without load if
    that is longer.
    """
    zero_s = float(MODELS[model].zero_load_s)
    sent_bits = float(MODELS[model].sent_bytes(3)) * 8
    return max(zero_s, zero_s - sent_bits / 25e9 + sent_bits / ((25 - load_gbps) * 1e9))


def fill(
    store: PointStore, traffic: str, transport: str, policy: str, truth: Truth, model: str
) -> None:
    for load in LOADS:
        at = point(traffic, transport, model, load * 25, policy)
        mean_s = truth(model, float(load * 25))
        achieved_bps = float(load) * 250e6
        cross = {"achieved_bps": achieved_bps, "offered_bps": achieved_bps} if load else None
        shared = {"flows": 10, "unfinished": 0, "mean_time_s": mean_s / 10, "shared_unfinished": 0}
        result = {
            "iterations_s": [mean_s * 0.9, mean_s * 1.1],
            "cross": cross,
            "compared": cross and {**cross, "from_s": 2.0, "to_s": 20.0},
            "sharing": [{**shared, "shared_mean_time_s": mean_s / 20}] if load else [],
        }
        identity = {
            "kind": "thesis-point",
            "configuration": at.setup.configuration,
            "model": model,
            "transport": transport,
            "traffic": at.traffic,
            "load_gbps": str(at.load_gbps),
            "policy": policy,
            "fewest": 20,
            "compute_s": "1/10",
            "settings": SETTINGS.identity(),
        }
        store.put(at.name, Stored(identity, result, 1.0))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> PointStore:
    store = PointStore(tmp_path_factory.mktemp("filled"))
    for model in MODELS:
        fill(store, "websearch", "rdma", "fifo", theory, model)
        fill(
            store,
            "websearch",
            "rdma",
            "echelon",
            lambda name, _: float(MODELS[name].zero_load_s) * 1.05,
            model,
        )
        fill(store, "websearch", "tcp", "fifo", theory, model)
        # Worse than consistent traffic from half of the link on.
        worse: Truth = lambda name, load: theory(name, load) * (1 + max(0.0, load - 12.5) / 10)  # noqa: E731
        fill(store, "burst", "tcp", "fifo", worse, model)
    return store


def test_what_holds_is_said_to_hold(filled: PointStore, tmp_path: Path) -> None:
    files = write(filled, SETTINGS, tmp_path)
    text = files[0].read_text()
    findings = text.partition("## Findings")[2].partition("## Why")[0]
    assert findings.count("- agrees: ") > 30
    by_title = dict(part.split("**\n\n", 1) for part in findings.split("\n\n**")[1:])
    for title, lines in by_title.items():
        if "Congestion" not in title:
            assert "does not agree" not in lines, title
    points = next(
        lines for title, lines in by_title.items() if title.startswith("Congestion points")
    )
    assert len(points.strip().splitlines()) == 2 * len(MODELS)
    assert {file.name for file in files} >= {
        "thesis.md",
        "figure_3-3.png",
        "figure_3-4.png",
        "figure_3-5.png",
        "figure_3-6.png",
        "figure_3-7.png",
        "table_3-1.csv",
        "table_3-4.csv",
        "table_3-5.csv",
        "table_3-8.csv",
        "table_3-9_3-10.csv",
        "scheduling.csv",
        "cross_traffic.csv",
    }
    assert all(file.stat().st_size > 100 for file in files)


def test_what_does_not_hold_is_said_plainly(tmp_path: Path) -> None:
    def late(model: str, load_gbps: float) -> float:
        return theory(model, load_gbps) * 1.05

    store = PointStore(tmp_path)
    for model in MODELS:
        fill(store, "websearch", "rdma", "fifo", late, model)
        fill(store, "websearch", "rdma", "echelon", late, model)
        fill(store, "websearch", "tcp", "fifo", late, model)
        fill(
            store,
            "burst",
            "tcp",
            "fifo",
            lambda name, load: late(name, load) * (1.2 if load else 1),
            model,
        )
    text = "\n".join(sections(curves_of(store, SETTINGS)))
    assert (
        text.count(
            "**does not agree**: ResNet-50, 3 workers over RDMA: 0.1680 s, thesis 0.16 s (+5.00 %)"
        )
        == 1
    )
    assert text.count("**does not agree**: 30%, ") == len(MODELS)
    assert text.count("- agrees: 80%, ") == len(MODELS)
    assert "**does not agree**: consistent web-search, RDMA, BERT-large" in text


def test_tables_have_our_numbers_beside_the_thesiss(filled: PointStore) -> None:
    found = {
        table.name: list(csv.DictReader(table.csv().splitlines()))
        for table in tables(curves_of(filled, SETTINGS))
    }
    bert = next(row for row in found["table_3-5"] if row["model"] == "BERT-large")
    last_s = theory("bert-large", 24.0)
    assert float(bert["required (Gbit/s)"]) == pytest.approx(1787.42 * 8e-3 / last_s, rel=1e-3)
    assert float(bert["available (Gbit/s)"]) == pytest.approx(1.0)
    assert float(bert["thesis: required"]) == 1.06
    assert {float(row["ratio"]) for row in found["cross_traffic"]} == {2.0}


def test_points_of_other_settings_are_left_out(filled: PointStore) -> None:
    assert len(curves_of(filled, SETTINGS)) > 0
    assert len(curves_of(filled, ExperimentSettings(seed=1))) == 0
    assert len(curves_of(filled, ExperimentSettings(scale=Fraction(1, 200)))) == 0


def test_loads_that_come_out_as_one_are_one(filled: PointStore) -> None:
    curve = curves_of(filled, SETTINGS).curve("websearch", "rdma", "vgg-16", "fifo")
    assert [at.load_gbps for at in curve] == [float(load) * 25 for load in LOADS]
    assert [at.achieved_gbps for at in rising(curve)] == sorted({at.achieved_gbps for at in curve})
    assert len(rising([*curve, *curve])) == len(curve)


def test_the_tail_is_the_nearest_rank() -> None:
    from dataclasses import replace

    at = curves_of([_stored()], SETTINGS).curve("websearch", "rdma", "vgg-16", "fifo")[0]
    hundred = replace(at, iterations_s=[float(i) for i in range(1, 101)])
    assert (hundred.p99_s, hundred.mean_s) == (99.0, 50.5)
    assert replace(at, iterations_s=[3.0, 1.0, 2.0]).p99_s == 3.0


def _stored() -> Stored:
    setup = Setup("b", "vgg-16", "rdma")
    identity = {
        "kind": "thesis-point",
        "configuration": setup.configuration,
        "model": setup.model,
        "transport": setup.transport,
        "traffic": "none",
        "load_gbps": "0",
        "policy": "fifo",
        "fewest": 20,
        "compute_s": "1/10",
        "settings": SETTINGS.identity(),
    }
    return Stored(
        identity, {"iterations_s": [1.0], "cross": None, "compared": None, "sharing": []}, 1.0
    )
