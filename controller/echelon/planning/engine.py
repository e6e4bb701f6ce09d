"""The choice between what computes: C, which is built at first use, or Python, which computes the
same, slower.
"""

from __future__ import annotations

import os

VARIABLE = "ECHELON_ENGINE"


def wanted_engine(error: type[Exception]) -> str:
    """Return what the environment variable ECHELON_ENGINE says: native (fail without a compiler),
    python, or auto, the default. Raise `error` for anything else."""
    wanted = os.environ.get(VARIABLE, "auto")
    if wanted not in ("auto", "native", "python"):
        raise error(f"{VARIABLE} is '{wanted}': use auto, native or python")
    return wanted
