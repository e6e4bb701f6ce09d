"""The import hook for programs that this package does not start itself (`injected`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_INJECTED = Path(__file__).parent / "injected"


def with_hook(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Python imports the hook first."""
    modules = [str(_INJECTED)]
    modules_before = environment.get("PYTHONPATH")
    if modules_before:
        modules.append(modules_before)
    return {**environment, "PYTHONPATH": os.pathsep.join(modules)}
