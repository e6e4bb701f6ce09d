"""What tests of captures need: PyTorch, and networks of their own."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

import pytest

from echelon.lab.hosts import sandbox

needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="needs PyTorch (pip install 'echelon-p4[torch]'; a CPU build is enough)"
)
_MISSING = sandbox.missing() or (None if shutil.which("tc") else "tc is not in PATH (it is in /sbin, of iproute2)")
needs_network = pytest.mark.skipif(_MISSING is not None, reason=_MISSING or "")
