"""The store that the core brings: a new SQLite file.

Tests of a plug-in's store take over those that want a `url`, with a fixture of that name
(plugins/etcd/tests).
"""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of an empty store."""
    return f"sqlite://{tmp_path}/state.db"
