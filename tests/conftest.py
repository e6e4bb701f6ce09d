"""What holds for every test: how hypothesis draws examples, that groups stay together, and that Ctrl-C works."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# No deadline: a busy machine is not a failure. The same examples in every run; `make soak` draws random ones.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in the background so, and the programs that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse to run when pytest-xdist cannot tell the groups of tests, which share started daemons and simulations."""
    if getattr(config.option, "loadgroup", False):
        for item in items:
            if item.get_closest_marker("xdist_group") is not None and "@" not in item.nodeid:
                raise pytest.UsageError("pytest-xdist does not see the groups (install the pinned pytest)")
