"""Every compiled program of this repository does natively what it does in Python."""

from __future__ import annotations

import pytest

from ctoolchain import compilers
from softswitch.native import compile_native
from tests.soak.specimens import Specimen, specimens
from tests.softswitch.native.twins import compare

FAST = compilers()[-1:]
"""The compiler that takes the least time."""


@pytest.mark.skipif(not FAST, reason="there is no C compiler")
@pytest.mark.parametrize("specimen", specimens(), ids=lambda specimen: specimen.name)
def test_both_engines_do_the_same(specimen: Specimen) -> None:
    native = compile_native(specimen.load().ir, FAST)
    assert compare(specimen, 150, 7, native) > 0
