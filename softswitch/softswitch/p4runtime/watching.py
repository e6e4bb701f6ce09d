"""The ports that members of groups and one-shot actions depend on (`watch_port`).

P4Runtime 1.4 and 1.5, "Action Profile Group Programming": the value must be empty or "the SDN port
of an existing port on the device, otherwise the server must return INVALID_ARGUMENT".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from softswitch.p4runtime.bytestring import OutOfRangeError, decode
from softswitch.rpc.status import Code, RefusedError

__all__ = ["PortWatch"]

_PORT_BITS = 9
"""The width of v1model's ports."""


class PortWatch:
    """A check of the ports that a device's entities may watch.

    Only a write asks whether the port exists. A port that goes afterwards counts as down: what was
    written for it stays, and its members are chosen again when it comes back.

    Args:
        exists: tells whether the device has a port at this moment; ports may come and go.
    """

    def __init__(self, exists: Callable[[int], bool]) -> None:
        self._exists = exists
        self._restores = False

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Accept ports that are gone meanwhile: what was accepted before is written once more."""
        self._restores = True
        try:
            yield
        finally:
            self._restores = False

    def port(self, part: Any, place: str) -> int | None:
        """Return the port that a group's member or a one-shot action depends on, None for none.

        Raises:
            RefusedError: INVALID_ARGUMENT for a port that the device does not have.
        """
        name = "watch"
        if part.watch_port:
            name = "watch_port"
            try:
                port = decode(part.watch_port, _PORT_BITS)
            except OutOfRangeError as error:
                raise _refused(place, f"{name}: {error}") from None
        else:
            port = part.watch
            if not 0 <= port < 1 << _PORT_BITS:
                raise _refused(place, f"{name}: {port} does not fit bit<{_PORT_BITS}>")
            # The deprecated field cannot tell port 0 from none.
            if not port:
                return None
        is_missing = not self._exists(port)
        if is_missing and not self._restores:
            raise _refused(
                place,
                f"{name}: this switch has no port {port}; add the port first, or leave the field"
                " empty to choose the member whatever its port's state",
            )
        return port


def _refused(place: str, reason: str) -> RefusedError:
    return RefusedError(Code.INVALID_ARGUMENT, f"{place}: {reason}")
