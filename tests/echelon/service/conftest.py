"""A laboratory for each test that asks for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.echelon.service.lab import Lab

Build = Callable[..., Lab]


@pytest.fixture
def build() -> Iterator[Build]:
    """Makes a `Lab` whose switches run; everything of it is gone at the end of the test."""
    labs: list[Lab] = []
    # Paths of Unix sockets are short by law: pytest's own directories may not fit.
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
