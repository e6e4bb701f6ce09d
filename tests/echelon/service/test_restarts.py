"""Short sequences of changes to a real service that is killed after each; ``python -m tests.soak
restarts`` is long.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.echelon.service.restarts import play
from tests.echelon.service.site import TRIANGLE, site


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_the_state_after_a_kill_is_that_before(seed: int) -> None:
    with TemporaryDirectory(prefix="lab-") as directory, site(Path(directory), TRIANGLE) as one:
        assert play(one, seed, steps=4, store="state.db") == 4
        assert not [record for record in one.records() if "exception" in record]
