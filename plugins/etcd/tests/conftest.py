"""One real etcd per module, and a new prefix in it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plugins.etcd.tests.etcd_process import EtcdProcess, etcd_process
from tests.echelon.service.conftest import build as build
from tests.echelon.service.conftest import logging_as_before as logging_as_before
from tests.needs import require


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    require("etcd")
    with etcd_process(tmp_path_factory.mktemp("etcd"), "--auto-compaction-retention=1h") as process:
        yield process


@pytest.fixture
def url(etcd: EtcdProcess, tmp_path: Path) -> str:
    """Return the URL of an empty store."""
    return f"{etcd.url}/{tmp_path.name}"
