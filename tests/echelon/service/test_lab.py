"""The laboratory itself: the fork server passes over modules that are not there, without a word."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.echelon.service.lab import PRELOADED


@pytest.mark.parametrize("name", PRELOADED)
def test_what_daemons_and_switches_are_forked_with_is_there(name: str) -> None:
    assert find_spec(name) is not None
