"""The fabric of a rung: the product's switches, hosts and controller, on a library of our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from bench.ladder.flows import ShimFlow, Truth
from bench.ladder.laboratory import (
    CSource,
    EventLoop,
    Loaded,
    VirtualTestbed,
    fabric_source,
    load,
    shim,
)
from bench.ladder.rungs import Rung
from echelon.model.errors import RunError
from echelon.model.fabric.model import Fabric
from echelon.model.p4program import constants
from echelon.switches.targets.virtual import NativeClock, NetworkInC

_FOLDER = Path(__file__).parent
# Those of `echelon.planning.policies.orders`, with which relative plans had their levels until
# switches put queues in the order of ranks. They are kept here, so that figures compare.
STEPS = (0.001, 0.03, 0.08, 0.15, 0.3, 0.6)
"""The ranks by which a flow is behind the most urgent one that put it one of seven levels lower."""
_OWN_FILES = ("ladder.h", "flows.c", "steps.c")
_TOFINO = constants("tna")
_CONSTANTS: Mapping[str, int] = {
    "SHIM_PORT": shim.SHIM_PORT,
    "FLAG_ACK": shim.ACK,
    "FLAG_DRAIN": shim.DRAIN,
    "FLAG_ALONE": shim.ALONE,
    "MARK_PROMPT": shim.PROMPT,
    "RANK_UNIT": _TOFINO["RANK_UNIT"],
    "TOP_DECAY": _TOFINO["TOP_DECAY"],
}


@cache
def load_ladder() -> Loaded:
    """Return the library of ladder.c. Raise `ToolchainError` if there is none."""
    fabric, declared = fabric_source()
    includes = {
        **fabric.includes,
        "fabric.c": fabric.text,
        # fabric.c includes its ports by this name. Ours include the product's by another, so that
        # queues, rates and accounts are the same code on all rungs.
        "tm.c": _read("ports.c"),
        "queues.c": fabric.includes["tm.c"],
    }
    for name in _OWN_FILES:
        includes[name] = _read(name)
    text = ""
    for name, number in _CONSTANTS.items():
        text += f"#define {name} {number}\n"
    text += _read("ladder.c")
    source = CSource("ladder", text, includes)
    return load(source, declared + includes["ladder.h"])


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Counts:
    """The bytes of flows ranked relative to others that have left all ports.

    All but `total` left while a packet of a flow that was more urgent at that moment waited there.
    """

    total: int
    lower_queue: int
    """It waited in a lower queue."""
    same_queue: int
    min_share: int
    """It waited in a higher queue, because a minimum share was due."""


def rung_in_c(rung: Rung) -> Any:
    """Return a rung for `ladder_begin`."""
    ffi, library, _ = load_ladder()
    in_c = ffi.new("ladder_rung *")
    in_c.order = getattr(library, f"ORDER_{rung.order.upper()}")
    in_c.free_acks = rung.free_acks
    in_c.true_stamps = rung.true_stamps
    in_c.ack_every = rung.ack_every or 0
    in_c.steps = STEPS

    limits = rung.limits
    if "steps" in limits:
        in_c.order = library.ORDER_STEPS
    in_c.top_is_kept = "top" in limits
    in_c.moves_alone = "alone" in limits
    return in_c


def counted() -> Counts:
    """Return what has left the ports since `ladder_begin`."""
    counts = load_ladder().library.ladder_counted()
    return Counts(counts.bytes, counts.lower_bytes, counts.same_bytes, counts.share_bytes)


class Ladder:
    """The fabrics of a rung for one plan. Only one of them in a process runs at a time."""

    def __init__(self, rung: Rung, flows: Sequence[ShimFlow]) -> None:
        self._rung = rung
        self._flows = flows
        self._native = load_ladder()
        self._kept: list[Any] = []
        """What C refers to."""

    def build(
        self,
        fabric: Fabric,
        control_latency_s: Fraction,
        queue_bytes: int | None,
    ) -> LadderTestbed:
        """Return the fabric (`VirtualFabricFactory`)."""
        clock = EventLoop(native=self._native)
        # Before the testbed: its ports may serve packets as soon as they stand.
        self._begin(clock)
        return LadderTestbed(fabric, control_latency_s, queue_bytes, clock)

    def _begin(self, clock: EventLoop) -> None:
        ffi, library, _ = self._native
        truth = Truth(ffi, self._flows, lambda: clock.now_ns)

        def called_back(notify: Callable[[int], None]) -> Any:
            return ffi.callback("void(uint32_t)", notify, onerror=clock.fail)

        started = called_back(truth.started)
        finished = called_back(truth.finished)
        # cffi frees what nothing in Python refers to, even if C still calls it.
        self._kept = [truth, started, finished]
        count = len(self._flows)
        rung = rung_in_c(self._rung)
        if library.ladder_begin(rung, truth.in_c, count, started, finished):
            raise MemoryError


class LadderTestbed(VirtualTestbed):
    """A fabric of embedded switches with the ports of a ladder, whose hosts pass it all frames."""

    @property
    def native(self) -> NetworkInC:
        network = super().native
        if network is None:
            raise RunError("a ladder needs hosts in C")
        return _LadderNetwork(network, self.clock.native)


class _LadderNetwork:
    """The network of a fabric in C, with the ladder between it and its hosts."""

    def __init__(self, network: NetworkInC, native: Loaded) -> None:
        self._network = network
        self._ffi, self._library, _ = native
        self._kept: list[Any] = []
        """What C refers to."""

    @property
    def clock(self) -> NativeClock:
        return replace(self._network.clock, send=self._function("ladder_send"))

    @property
    def now_ns(self) -> int:
        return self._network.now_ns

    def nic(self, host: str) -> int:
        return self._network.nic(host)

    def receive_in_c(
        self,
        host: str,
        receive: int,
        choose: int,
        receiver: int,
    ) -> None:
        ffi = self._ffi
        # The ladder sees frames first, and passes them on to whom the laboratory meant.
        host_in_c = ffi.new("ladder_host *")
        host_in_c.receive = ffi.cast(ffi.typeof(host_in_c.receive), receive)
        host_in_c.choose = ffi.cast(ffi.typeof(host_in_c.choose), choose)
        host_in_c.receiver = ffi.cast("void *", receiver)
        self._kept.append(host_in_c)
        self._network.receive_in_c(
            host,
            self._function("ladder_receive"),
            self._function("ladder_choose"),
            int(ffi.cast("uintptr_t", host_in_c)),
        )

    def when_told(self, callback: Callable[[], None], *, once: bool = True) -> int:
        return self._network.when_told(callback, once=once)

    def _function(self, name: str) -> int:
        function = self._ffi.addressof(self._library, name)
        return int(self._ffi.cast("uintptr_t", function))
