"""Algorithms of plug-ins: found by entry points, named in job files like our own; broken ones harm
no others.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import get_args

import pytest

from echelon.model.jobs import algorithms, collectives
from echelon.model.jobs.algorithms import ALL_REDUCES, OPERATIONS, AllReduceName
from tests.faults import mentions

OWN = "echelon.model.jobs.collectives"


def registered(
    monkeypatch: pytest.MonkeyPatch, **entries: str
) -> dict[str, dict[str, collectives.Algorithm]]:
    found = [
        EntryPoint(name.replace("_", "-"), value, algorithms.GROUP)
        for name, value in entries.items()
    ]
    named = [EntryPoint(entry.name.replace("--", "."), entry.value, entry.group) for entry in found]
    monkeypatch.setattr(
        algorithms, "entry_points", lambda group: named if group == algorithms.GROUP else []
    )
    return {operation: dict(of) for operation, of in algorithms.registered().items()}


def test_without_plug_ins_there_are_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert registered(monkeypatch) == collectives.OPERATIONS


def test_our_own_come_first_and_cannot_be_replaced() -> None:
    for operation, own in collectives.OPERATIONS.items():
        assert [*OPERATIONS[operation]][: len(own)] == [*own]
        assert all(OPERATIONS[operation][name] is algorithm for name, algorithm in own.items())


def test_a_file_may_give_every_all_reduce_but_those_of_free_graphs() -> None:
    assert (
        set(get_args(AllReduceName))
        == set(ALL_REDUCES)
        == {*OPERATIONS["all-reduce"]} - {"hierarchical", "gloo"}
    )


def test_a_plug_in_adds_an_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "MINE", collectives.Direct(), raising=False)
    found = registered(monkeypatch, all_reduce__mine=f"{OWN}:MINE", all_reduce__ring=f"{OWN}:MINE")
    assert isinstance(found["all-reduce"]["mine"], collectives.Direct)
    assert found["all-reduce"]["ring"] is collectives.OPERATIONS["all-reduce"]["ring"]


@pytest.mark.parametrize(
    ("value", "name"),
    [("nowhere:NOTHING", "'nowhere'"), (f"{OWN}:OPERATIONS", "Algorithm")],
)
def test_a_broken_one_says_why_when_it_is_used(
    monkeypatch: pytest.MonkeyPatch, value: str, name: str
) -> None:
    broken = registered(monkeypatch, all_reduce__mine=value)["all-reduce"]["mine"]
    refusal = broken.refusal(4)
    assert refusal is not None
    assert mentions(refusal, name)
    assert refusal.endswith(")"), "says what to do"
    assert (broken.flow_count(4), broken.connection_bytes(4, 1), [*broken.rounds(4)]) == (0, 0, [])
