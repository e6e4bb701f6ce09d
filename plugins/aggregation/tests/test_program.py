"""The P4 program does with every packet what the model of the protocol's page does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.aggregation.tests.program_switch import Programs, programs
from plugins.aggregation.tests.sequences import run_many
from tests.drawing import examples
from tests.needs import needs


@pytest.fixture(scope="module")
def softswitches() -> Iterator[Programs]:
    with programs("softswitch") as found:
        yield found


@settings(max_examples=examples(120), deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_softswitch_runs_the_program_as_the_page_says(softswitches: Programs, seed: int) -> None:
    softswitches.run(seed)


@needs("bmv2")
def test_bmv2_runs_the_program_as_the_page_says() -> None:
    with programs("bmv2") as found:
        for seed in range(30):
            found.run(seed)


@pytest.mark.long
def test_softswitch_runs_many_sequences() -> None:
    run_many(range(3000), "softswitch")


@pytest.mark.long
@needs("bmv2")
def test_bmv2_runs_many_sequences() -> None:
    run_many(range(1000), "bmv2")
