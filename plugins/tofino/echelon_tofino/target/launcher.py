"""The launcher of softswitch as a Tofino, which serves BF Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echelon.switches.targets.launching import Place, Ports
from echelon.switches.targets.softswitch import SoftswitchLauncher

_FRAME_BYTES = 1514
"""A full packet at the default MTU."""


class TofinoLauncher(SoftswitchLauncher):
    """A launcher of `softswitch` with a Tofino's traffic manager.

    The controller reaches it by BF Runtime only.
    """

    target = "tofino"

    def arguments(self, place: Place, ports: Ports) -> Sequence[str]:
        return [*super().arguments(place, ports), "--bf-runtime", f"127.0.0.1:{ports.other}"]

    def entry(self, place: Place, ports: Ports) -> Mapping[str, object]:
        entry: dict[str, object] = {"address": f"127.0.0.1:{ports.other}"}
        if place.queue_bytes is not None:
            entry["depth"] = -(-place.queue_bytes // _FRAME_BYTES)
        return entry

    def serves_at(self, ports: Ports) -> Sequence[int]:
        return (ports.grpc, ports.other)
