"""Tofinos that take longer than any deadline (tests/echelon/control/test_slow_switches.py)."""

from __future__ import annotations

import pytest

from echelon.switches.southbound.session import IntentSession
from echelon_tofino.target.session import BfrtSession
from tests.echelon.control.conftest import fig2 as fig2
from tests.echelon.control.test_slow_switches import slow as slow
from tests.echelon.control.test_slow_switches import (
    test_a_run_in_virtual_time_waits_for_them as test_a_run_in_virtual_time_waits_for_them,
)
from tests.echelon.control.test_slow_switches import (
    test_no_switch_waits_for_a_controller_that_has_failed as test_no_switch_waits_for_a_controller_that_has_failed,
)
from tests.echelon.control.test_slow_switches import (
    test_other_sessions_give_up as test_other_sessions_give_up,
)


@pytest.fixture
def target() -> str:
    """The target whose switches are too late."""
    return "tofino"


@pytest.fixture
def session_class() -> type[IntentSession]:
    """The class of the target's sessions."""
    return BfrtSession
