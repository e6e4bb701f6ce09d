"""Files that come with the package beside its code: examples, topologies, P4 sources and the compiled programs."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def shipped() -> Path:
    """Return the directory that has `examples`, `topologies` and `p4src`, in an installed package or in a checkout."""
    installed = _PACKAGE / "_shipped"
    return installed if installed.is_dir() else _PACKAGE.parent.parent
