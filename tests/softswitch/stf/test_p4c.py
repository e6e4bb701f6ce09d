"""p4c's own STF tests for v1model, each compiled and run.

``P4C_TESTDATA`` names ``testdata/p4_16_samples`` of a p4c checkout; p4_14_samples beside it is run
as well. The last line of a run (``pytest -s``) says how many passed, and what did not.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from ctoolchain import compilers
from softswitch import SoftswitchError, load_program
from softswitch.native.choice import Choice
from softswitch.stf import StfError, parse, run
from tests.engines import ENGINES
from tests.needs import needs, skip
from tests.softswitch.stf.compiling import CompileError, compile_json

TESTDATA = os.environ.get("P4C_TESTDATA")

EXCUSED = {
    "extern-funcs-bmv2": "calls an extern function that is a shared library of BMv2's",
    "counter3": (
        "counts four more bytes a packet (a frame's CRC) than BMv2, where p4c does not check"
        " counters"
    ),
}
"""The tests that ask for what is no part of v1model as BMv2 has it."""


_NO_P4_14 = "Illegal language version"
"""The error of p4c for a P4_14 program if it was built, as it is by default, without
-DSUPPORT_P4_14=ON.
"""


@dataclass(frozen=True)
class Suite:
    """A folder of p4c's test data, relative to P4C_TESTDATA."""

    folder: str
    std: str
    least: int
    """tests that it had when this was written"""

    def tests(self) -> list[Path]:
        """Return the STF tests of v1model programs, including those that p4c itself expects to
        fail.
        """
        assert TESTDATA
        root = Path(TESTDATA, self.folder).resolve()
        return [
            test
            for test in sorted(root.glob("**/*.stf"))
            if self._is_v1model(test.with_suffix(".p4"))
        ]

    def _is_v1model(self, source: Path) -> bool:
        return source.exists() and (self.std == "p4-14" or "v1model.p4" in source.read_text())


SUITES = [Suite(".", "p4-16", 204), Suite("../p4_14_samples", "p4-14", 46)]


def expected_failures() -> set[str]:
    """Return the tests that p4c expects to fail on BMv2 (the list XFAIL_TESTS of its build),
    relative to ``testdata``.
    """
    assert TESTDATA
    build = Path(TESTDATA).resolve().parents[1] / "backends" / "bmv2" / "CMakeLists.txt"
    if not build.exists():
        return set()
    return set(re.findall(r"^\s*testdata/(\S+\.p4)\b", build.read_text(), re.MULTILINE))


def fault(source: Path, test: Path, std: str, engine: str) -> str | None:
    """Return the reason why a test does not pass, None if it does."""
    try:
        program = load_program(compile_json(source, std), source.name)
        native = Choice(engine, compilers()[-1:])(program)
        failures = run(
            program, parse(test.read_text(), str(test)), str(test), native=native
        ).failures
    except CompileError as error:
        return f"{source}: p4c: {str(error)[:200]}"
    except (SoftswitchError, StfError) as error:
        return f"{source}: {error}"
    return "; ".join(str(failure) for failure in failures) or None


@pytest.mark.p4c
@needs("p4c's tests")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.std)
def test_stf_tests_of_p4c_pass(suite: Suite, engine: str) -> None:
    tests = suite.tests()
    if suite.std == "p4-14" and tests:
        first = fault(tests[0].with_suffix(".p4"), tests[0], suite.std, engine)
        if _NO_P4_14 in (first or ""):
            skip("p4c's tests", "this p4c knows no P4_14 (build it with -DSUPPORT_P4_14=ON)")
    allowed = expected_failures()
    passed: list[str] = []
    failed: dict[str, str] = {}
    excused: dict[str, str] = {}
    assert len(tests) >= suite.least, f"only {len(tests)} tests found"
    for test in tests:
        source = test.with_suffix(".p4")
        reason = fault(source, test, suite.std, engine)
        if reason is None:
            passed.append(test.stem)
        elif test.stem in EXCUSED:
            excused[test.stem] = EXCUSED[test.stem]
        elif "/".join(source.parts[source.parts.index("testdata") + 1 :]) in allowed:
            excused[test.stem] = "p4c expects it to fail"
        else:
            failed[test.stem] = reason
    print(
        f"\n{suite.std}: {len(tests)} tests, {len(passed)} passed, {len(failed)} failed,"
        f" {len(excused)} excused"
    )
    for name, reason in (failed | excused).items():
        print(f"  {name}: {reason}")
    assert not failed, "\n".join(failed.values())
