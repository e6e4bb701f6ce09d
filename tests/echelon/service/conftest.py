"""Laboratories: switches and daemons as processes of their own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.echelon.service.lab import LINE, RULE, TWO_BY_TWO, Daemon, Lab, reset, settle
from tests.shared import Shared

Build = Callable[..., Lab]


@contextmanager
def building() -> Iterator[Build]:
    """Yield what makes a `Lab` whose switches run; remove everything of it at the end."""
    labs: list[Lab] = []
    # The paths of Unix sockets are limited to about 100 characters: those of pytest's own
    # directories may not fit.
    with TemporaryDirectory(prefix="lab-") as directory:

        def make(fabric: Mapping[str, Any], **settings: Any) -> Lab:
            here = Path(directory) / str(len(labs))
            here.mkdir()
            lab = Lab(
                here, fabric, **{"policy": {"name": "echelon", "parameters": RULE}, **settings}
            )
            labs.append(lab)
            lab.start()
            return lab

        try:
            yield make
        finally:
            for lab in labs:
                lab.stop()


@dataclass(frozen=True)
class Service:
    """A daemon and its switches, which tests of the group `daemon` share."""

    lab: Lab
    daemon: Daemon


@contextmanager
def serving(fabric: Mapping[str, Any]) -> Iterator[Service]:
    with building() as build:
        lab = build(fabric)
        yield Service(lab, lab.daemon())


_two_by_two, _line = (Shared(partial(serving, fabric)) for fabric in (TWO_BY_TWO, LINE))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    for service in (_two_by_two, _line):
        service.end_unless(nextitem, Path(__file__).parent)


@pytest.fixture
def two_by_two() -> Service:
    """Return a service without jobs, under the policy `echelon` without searches, with all links
    up.
    """
    return _fresh(_two_by_two())


@pytest.fixture
def line() -> Service:
    """Return the like for one switch."""
    return _fresh(_line())


def _fresh(service: Service) -> Service:
    with service.lab.client(service.daemon) as client:
        reset(client, RULE)
        settle(client)
    return service


@pytest.fixture
def build() -> Iterator[Build]:
    """Make labs for one test, whose policy makes no searches unless a test chooses another."""
    with building() as build:
        yield build


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Restore the configuration of `logging` after the test."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in list(root.manager.loggerDict)}
    yield
    for handler in [one for one in root.handlers if one not in before]:
        root.removeHandler(handler)
    root.setLevel(level)
    for name in list(root.manager.loggerDict):
        logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))
    logging.captureWarnings(False)
