"""A fabric of Tofinos in virtual time, reached by BF Runtime.

Its switches execute the program's assembly.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import cast

from echelon.model.fabric.model import Fabric
from echelon_lab.virtual.embedded import Testbed
from echelon_tofino_model.bfruntime.device import BfrtDevice
from echelon_tofino_model.bfruntime.server import BfRuntimeServer
from echelon_tofino_model.bfruntime.service import BfRuntime
from echelon_tofino_model.bfruntime.traffic import TrafficManager
from echelon_tofino_model.emulator import TofinoSwitch
from echelon_tofino_model.emulator.device import OnSwitch, TofinoDevice
from softswitch.virtual.fabric import SwitchNode
from softswitch.virtual.switch import Pipelines

_LOOK_S = 0.05
"""The real seconds between looks whether a controller that is awaited is still there."""


class TofinoTestbed(Testbed[BfRuntimeServer]):
    """A fabric of switches with a Tofino's pipeline and traffic manager.

    `make` makes the device behind a switch's server. BF Runtime has no acknowledgement of digests,
    so virtual time waits for `acknowledged` if decisions depend on reports (`decide_with`), for as
    long as a controller is bound to the program.
    """

    def __init__(
        self,
        fabric: Fabric,
        control_latency_s: Fraction = Fraction(0),
        queue_bytes: int | None = None,
        *,
        make: Callable[[TrafficManager, OnSwitch], BfrtDevice] = TofinoDevice,
    ) -> None:
        self._make = make
        self._services: dict[str, BfRuntime] = {}
        self._waiting: Counter[str] = Counter()
        super().__init__(fabric, control_latency_s, queue_bytes)
        self._answered = threading.Condition(self._lock)

    def _serve(self, node: SwitchNode, device_id: int) -> BfRuntimeServer:
        traffic = TrafficManager(node.ports, lambda: self.clock.now_ns)
        self._services[node.name] = BfRuntime(
            self._make(traffic, partial(self._program, node)), self._lock
        )
        return BfRuntimeServer(self._services[node.name])

    def _program(self, node: SwitchNode, switch: TofinoSwitch) -> None:
        node.switch = cast("Pipelines", switch)
        report = switch.on_digest
        assert report is not None, "the device listens to every switch that it makes"

        def on_digest(
            now_ns: int,
            name: str,
            fields: Mapping[str, int],
        ) -> None:
            self._report_later(node.name, now_ns, partial(report, now_ns, name, fields))

        switch.on_digest = on_digest

    def acknowledged(self, switch: str) -> None:
        with self._answered:
            self._waiting[switch] -= 1
            self._answered.notify_all()

    def _await_controller(self, switch: str) -> None:
        self._waiting[switch] += 1
        if self._decided is None:
            return
        with self._answered:
            while self._waiting[switch] > 0 and self._services[switch].has_learner:
                self._answered.wait(_LOOK_S)
