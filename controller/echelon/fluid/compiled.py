"""`shared_rates` on floats, compiled by numba once a process has so much to compute that it pays.

numba is the optional extra ``fast``. Compiled or interpreted, the source is the same, and so is every bit of a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from echelon.allocation import Number
from echelon.fluid import filling
from echelon.fluid.filling import SharedPorts, Standings

WORTH_LOADING = 20_000
"""The number of rates after which a process loads numba and its compiled code: computing so many takes about as long as
loading.
"""


class _SharedRates:
    """The function of that name, which changes from interpreted to compiled."""

    def __init__(self) -> None:
        self._function: Callable[..., Any] = filling.shared_rates
        self._left = WORTH_LOADING

    def __call__(
        self,
        flows: Sequence[int],
        standings: Standings,
        ports: SharedPorts,
        zero: Number,
        acknowledging: Number,
        tolerance: Number,
    ) -> tuple[list[Number], list[bool]]:
        if self._left > 0:
            self._left -= len(flows)
            if self._left <= 0:
                self.load()
        rates, held_up = self._function(flows, standings, ports, zero, acknowledging, tolerance)
        return rates, held_up

    def load(self) -> None:
        """Compute with the compiled function from now on, if the extra ``fast`` is installed."""
        self._left = 0
        if can_compile():
            self._function = compiled_shared_rates()


shared_rates_in_floats = _SharedRates()


def can_compile() -> bool:
    """Return whether the extra ``fast`` is installed."""
    return find_spec("numba") is not None


def compiled_shared_rates() -> Callable[..., Any]:
    """Return the compiled function. numba keeps what it compiles, so only the first process waits for it."""
    import numpy as np
    from numba import njit
    from numba.extending import overload, register_jitable

    @overload(filling.table, strict=False)
    def _(*_: object) -> Callable[..., Any]:
        return lambda value, rows, columns: np.full((rows, columns), value)

    for part in filling.PARTS:
        register_jitable(part)
    compiled: Callable[..., Any] = njit(filling.shared_rates, cache=True)
    return compiled
