"""PyTorch, where it is installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="needs PyTorch (pip install 'echelon-p4[torch]'; a CPU build is enough)"
)
