"""softswitch against BMv2: the same entries and packets for both, a few cases of every program.

`python -m tests.differential` is the same at full length.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential.bmv2 import Bmv2Target
from tests.differential.campaign import campaign
from tests.differential.catalogue import names, subject
from tests.differential.soft import DeviceTarget
from tests.needs import needs

SEED = 2026
PACKETS = 90
WAIT_NS = 20_000

pytestmark = [pytest.mark.bmv2, needs("bmv2")]


@pytest.fixture(scope="module")
def bmv2() -> Iterator[Bmv2Target]:
    with Bmv2Target() as target:
        yield target


@pytest.mark.parametrize("name", names())
def test_no_difference(name: str, bmv2: Bmv2Target) -> None:
    found = [
        line
        for verdict in campaign(subject(name), SEED, PACKETS, DeviceTarget(wait_ns=WAIT_NS), bmv2)
        for line in verdict.differences
    ]
    assert found == []
