"""The choice between C, which is built at first use, and Python, which computes the same slower."""

from __future__ import annotations

import os

VARIABLE = "ECHELON_ENGINE"


def wanted_engine(error: type[Exception]) -> str:
    """Return what the environment variable ECHELON_ENGINE says: native, python or auto.

    Native fails without a compiler; auto is the default. Raise `error` for anything else.
    """
    wanted = os.environ.get(VARIABLE, "auto")
    if wanted not in ("auto", "native", "python"):
        raise error(f"{VARIABLE} is '{wanted}': use auto, native or python")
    return wanted
