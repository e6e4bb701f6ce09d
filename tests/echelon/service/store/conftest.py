"""The two stores: a new SQLite file, and a new prefix in one real etcd per module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.echelon.service.store.etcd_process import EtcdProcess, etcd_process
from tests.needs import require


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    require("etcd")
    with etcd_process(tmp_path_factory.mktemp("etcd"), "--auto-compaction-retention=1h") as process:
        yield process


@pytest.fixture(params=["sqlite", "etcd"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store."""
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/state.db"
    process: EtcdProcess = request.getfixturevalue("etcd")
    return f"{process.url}/{tmp_path.name}"
