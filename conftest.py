"""Settings for every test: bytecode, garbage collection, hypothesis' examples, groups of tests,
signals.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from functools import cache
from multiprocessing import forkserver

import pytest
import typer.testing
from hypothesis import settings

from echelon.cli.progress import EVERY
from tests.coroutines import pytest_pyfunc_call as pytest_pyfunc_call
from tests.drawing import examples

# Tests start hundreds of programs. Without bytecode on disk, each spends about a second on
# compiling the project.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# On a busy machine a command would say how far it is, where a test expects nothing on standard
# error.
os.environ[EVERY] = "inf"

# Tests call commands hundreds of times. Typer's runner would build the tree of all commands for
# each, in 80 ms.
typer.testing._get_command = cache(typer.testing._get_command)  # noqa: SLF001

# No deadline: a busy machine is not a failure. The same examples in every run; `make soak` draws
# random ones.
settings.register_profile("suite", deadline=None, derandomize=True, max_examples=examples(100))
settings.load_profile("suite")


# A shell ignores SIGINT in what runs in the background, nohup SIGHUP, and the programs that tests
# end by them would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten the identifier of a long text: every report carries it, and one text is of five
    megabytes.
    """
    return f"{val[:60]!a} and so on" if isinstance(val, str | bytes) and len(val) > 200 else None


def pytest_collection_finish() -> None:
    """Exempt the modules and thousands of tests that stay in memory from garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Exempt what the tests of a folder leave in memory, too.

    It grows to millions of objects, and each collection, which tests of memory ask for, would look
    at all of them.
    """
    if nextitem is not None and nextitem.path.parent != item.path.parent:
        gc.collect()
        gc.freeze()


def pytest_sessionfinish() -> None:
    """End the process that daemons and switches are forked from, so that `time` counts what they
    have taken.
    """
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # noqa: SLF001


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was skipped, in one line for each reason."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {count}: {reason}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse to run when pytest-xdist cannot tell the groups of tests, which share started daemons
    and simulations.
    """
    if getattr(config.option, "loadgroup", False):
        for item in items:
            if item.get_closest_marker("xdist_group") is not None and "@" not in item.nodeid:
                raise pytest.UsageError(
                    "pytest-xdist does not see the groups (install the pinned pytest)"
                )
