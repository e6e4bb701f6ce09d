"""p4c's own STF tests for v1model, each compiled and run: ``P4C_TESTDATA`` names ``testdata/p4_16_samples`` of p4c."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from softswitch import SoftswitchError, load_program
from softswitch.stf import StfError, parse, run

TESTDATA = os.environ.get("P4C_TESTDATA")

NEEDS_MORE = {"extern-funcs-bmv2": "calls an extern function that is a shared library of BMv2's"}
"""Tests that cannot run without something that is no part of v1model."""


@pytest.mark.p4c
@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not installed")
@pytest.mark.skipif(not TESTDATA, reason="P4C_TESTDATA does not name testdata/p4_16_samples of a p4c checkout")
def test_stf_tests_of_p4c_pass(tmp_path: Path) -> None:
    assert TESTDATA
    root = Path(TESTDATA).resolve()
    failed: list[str] = []
    passed = 0
    for test in sorted(root.glob("**/*.stf")):
        source = test.with_suffix(".p4")
        if test.stem in NEEDS_MORE or not source.exists() or "v1model.p4" not in source.read_text():
            continue
        reasons = outcome(source, test, tmp_path)
        passed += not reasons
        failed += reasons
    assert not failed, "\n".join(failed)
    assert passed >= 200, f"only {passed} tests found below {root}"


def outcome(source: Path, test: Path, scratch: Path) -> list[str]:
    """Why a test does not pass, nothing if it does."""
    program = scratch / "program.json"
    command = ["p4c-bm2-ss", "--std", "p4-16", "--arch", "v1model", "-o", str(program), str(source)]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    if compiled.returncode:
        return [f"{source}: p4c: {' '.join(compiled.stderr.split())[:200]}"]
    try:
        loaded = load_program(program.read_bytes(), source.name)
        return [str(failure) for failure in run(loaded, parse(test.read_text(), str(test)), str(test)).failures]
    except (SoftswitchError, StfError) as error:
        return [str(error)]
