"""The P4 program does with every packet what the model of the protocol's page does."""

from __future__ import annotations

from functools import cache

import pytest
from finsy import P4Schema
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.aggregation.tests.program_switch import InProcess, ProgramSwitch, built
from plugins.aggregation.tests.sequences import Sequence
from tests.drawing import examples

VALUES = 32


@cache
def schema() -> P4Schema:
    installed = built()
    return P4Schema(installed.p4info, installed.binary)


def make_switch() -> ProgramSwitch:
    return ProgramSwitch(InProcess(built()), schema())


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_softswitch_runs_the_program_as_the_page_says(seed: int) -> None:
    Sequence(seed, make_switch, VALUES).run()


@pytest.mark.long
def test_softswitch_runs_many_sequences() -> None:
    for seed in range(3000):
        Sequence(seed, make_switch, VALUES).run()
