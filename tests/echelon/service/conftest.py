"""Laboratories: switches and daemons as processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.echelon.service.lab import Lab

Build = Callable[..., Lab]


@contextmanager
def building() -> Iterator[Build]:
    """Yield what makes a `Lab` whose switches run; remove everything of it at the end."""
    labs: list[Lab] = []
    # The paths of Unix sockets are limited to about 100 characters: those of pytest's own directories may not fit.
    with TemporaryDirectory(prefix="lab-") as directory:

        def make(fabric: Mapping[str, Any], **settings: Any) -> Lab:
            here = Path(directory) / str(len(labs))
            here.mkdir()
            lab = Lab(here, fabric, **settings)
            labs.append(lab)
            lab.start()
            return lab

        try:
            yield make
        finally:
            for lab in labs:
                lab.stop()


@pytest.fixture
def build() -> Iterator[Build]:
    """Make labs for one test."""
    with building() as build:
        yield build
