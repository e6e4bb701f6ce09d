"""The ends of flows with a shim in C (shim.c), for hosts whose network is in C.

They send the same packets as `echelon_lab.endhosts.transport`, many times as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ctoolchain import CSource, Loaded, load
from echelon.model.errors import RunError
from echelon.planning.engine import VARIABLE
from echelon.planning.rankings.base import Overdue, Ranking, Steps
from echelon.planning.windows import ACK_BYTES, FlowWindows, Windows, shares_window
from echelon.switches.lowering.at_hosts import HostRule
from echelon.switches.lowering.identity import ShimIdentity
from echelon.switches.targets.virtual import NativeClock, NetworkInC
from echelon_lab.endhosts import shim
from echelon_lab.endhosts.ranks import CONTROL, LEFT_SHIFT_BIAS, MEMORY_SHIFT, packed
from echelon_lab.endhosts.shim import FlowAddress, PacketTally
from echelon_lab.endhosts.transport import CREDIT_SEGMENTS, MAX_BACKOFF, MAX_TIMEOUTS, stuck

__all__ = ["NativeEnds", "NativeFlow"]

_FOLDER = Path(__file__).parent
_LENGTHS_AND_CHECKSUM = (slice(16, 18), slice(24, 26), slice(38, 40))


def load_ends(
    source: Path,
    numbers: Mapping[str, int],
    *more: str,
) -> Loaded:
    """Return a library of ends of flows, with these numbers defined.

    It is made from a C file, its header and others beside this file.
    """
    network = _read("network.h")
    header = source.with_suffix(".h").read_text(encoding="utf-8")
    text = "".join(f"#define {name} {number}\n" for name, number in numbers.items())
    text += source.read_text(encoding="utf-8")
    includes = {"network.h": network, source.with_suffix(".h").name: header}
    includes |= {name: _read(name) for name in ("basics.h", *more)}
    return load(CSource(source.stem, text, includes), network + header)


def network_in_c(ffi: Any, clock: NativeClock) -> Any:
    """Return the structure that a library of ends of flows is given."""
    structure = ffi.new("network_in_c *")
    for name in ("clock", "now_ns", "call", "tell", "send", "waits"):
        setattr(
            structure, name, ffi.cast(ffi.typeof(getattr(structure, name)), getattr(clock, name))
        )
    return structure


@cache
def _library() -> Loaded:
    numbers = {
        "STRAGGLER_FROM": shim.STRAGGLER_FROM,
        "MEMORY_SHIFT": MEMORY_SHIFT,
        "LEFT_SHIFT_BIAS": LEFT_SHIFT_BIAS,
    }
    return load_ends(_FOLDER / "shim.c", numbers, "ranks.h")


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


class NativeEnds:
    """The senders and receivers of flows with a shim at all hosts of a network in C."""

    def __init__(self, network: NetworkInC, hosts: Iterable[str]) -> None:
        self.ffi, self.library, _ = _library()
        self.network = network
        in_c = network_in_c(self.ffi, network.clock)
        constants = {
            "port": shim.SHIM_PORT,
            "version_bits": shim.SHIM_VERSION << 4,
            "alone": shim.ALONE,
            "last": shim.LAST,
            "ack": shim.ACK,
            "drain": shim.DRAIN,
            "marked_resent": shim.RESENT,
            "marked_prompt": shim.PROMPT,
            "memory_unit": shim.MEMORY_UNIT,
            "straggler_from": shim.STRAGGLER_FROM,
            "least_frame": shim.MIN_FRAME_BYTES,
            "ack_frame": ACK_BYTES,
            "most_timeouts": MAX_TIMEOUTS,
            "most_backoff": MAX_BACKOFF,
            "credit_segments": CREDIT_SEGMENTS,
        }
        failure = network.when_told(self._fail, once=False)
        structure = self.ffi.new("shim_constants *", constants)
        run = self.library.shim_new(in_c, structure, failure)
        self._run = self.ffi.gc(not_null(run), self.library.shim_free)
        self._flows: dict[int, NativeFlow] = {}
        self._orders: dict[tuple[int, Ranking], tuple[Any, Any, Any]] = {}
        """Return the order that a ranking gives to flows of a job, in C.

        The arrays that it refers to follow.
        """
        self._groups: dict[tuple[int, str], int] = {}
        self.hosts: dict[str, Any] = {}
        """The structure of each host in C."""
        deliver = self._address(self.ffi.addressof(self.library, "shim_deliver"))
        choose = self._address(self.ffi.addressof(self.library, "shim_choose"))
        for name in hosts:
            nic = self.ffi.cast("void *", network.nic(name))
            host = self.hosts[name] = not_null(self.library.shim_add_host(self._run, nic))
            network.receive_in_c(name, deliver, choose, self._address(host))

    def rank(self, rules: Iterable[HostRule]) -> None:
        """Have hosts rank what they send."""
        self.library.shim_mark(self._run, CONTROL)
        states: dict[tuple[str, str | None], int] = {}
        for rule in rules:
            identity = rule.identity
            if isinstance(identity, ShimIdentity):
                state = states.setdefault((rule.job, rule.echelonflow), len(states))
                host = self.hosts[rule.src]
                in_c = packed(rule)
                if self.library.shim_rank(host, identity.job, identity.flow, state, in_c):
                    raise MemoryError

    def pass_on(
        self,
        host: str,
        receive: int,
        receiver: int,
    ) -> None:
        """Give frames without a shim that arrive at a host to a function in C first.

        See `NetworkInC.receive_in_c`.
        """
        function = self.ffi.cast("int (*)(void *, int64_t, const uint8_t *, uint32_t)", receive)
        self.library.shim_pass_on(self.hosts[host], function, self.ffi.cast("void *", receiver))

    def close(self) -> None:
        """Let all hosts fall silent."""
        for host in self.hosts.values():
            self.library.shim_close(host)

    def add(self, flow: NativeFlow) -> None:
        """Keep a flow, to name it if it gets nowhere."""
        self._flows[self._address(flow.in_c)] = flow

    def number_of(self, callback: Callable[[], None]) -> int:
        """Return the number by which C has this called."""
        return self.network.when_told(callback)

    def order(self, job: int, ranking: Ranking | None) -> Any:
        """Return the order that a ranking gives to a flow of a job at its host, in C.

        Raise `RunError` for one that only Python knows.
        """
        if ranking is None:
            return self.ffi.NULL
        key = job, ranking
        if key not in self._orders:
            self._orders[key] = self._new_order(job, ranking)
        return self._orders[key][0]

    def _new_order(self, job: int, ranking: Ranking) -> tuple[Any, Any, Any]:
        urgency, group = ranking.at_host()
        order = self.ffi.new("shim_order *")
        order.shares = shares_window(ranking)
        order.highest = ranking.queues[-1]
        if group is None:
            # No group.
            order.group = 0
        else:
            order.group = self._groups.setdefault((job, group), len(self._groups) + 1)
        match urgency:
            case Overdue(due_s, left_s, unit_s, head_start):
                order.kind = self.library.ORDER_OVERDUE
                order.due_s = due_s
                order.left_s = left_s
                order.unit_s = unit_s
                order.head_start = head_start
                return order, None, None
            case Steps(thresholds, values, due_s):
                if due_s is None:
                    order.kind = self.library.ORDER_STEPS_OF_BYTES
                else:
                    order.kind = self.library.ORDER_STEPS_OF_AGE
                order.due_s = due_s or 0.0
                order.steps = len(thresholds)
                order.thresholds = in_c_thresholds = self.ffi.new("double[]", thresholds)
                order.values = in_c_values = self.ffi.new("double[]", values)
                return order, in_c_thresholds, in_c_values
            case _:
                name = type(ranking).__name__
                raise RunError(
                    f"hosts in C do not know the order of ranking {name} (set {VARIABLE}=python)"
                )

    def _fail(self) -> None:
        flow = self._flows[self._address(self.library.shim_failed(self._run))]
        raise RunError(stuck(flow.described, self.network.now_ns, flow.src))

    def _address(self, pointer: Any) -> int:
        return int(self.ffi.cast("uintptr_t", pointer))


class NativeFlow:
    """A flow, the same in every iteration."""

    def __init__(
        self,
        ends: NativeEnds,
        description: str,
        between: tuple[str, str],
        address: FlowAddress,
        size_bytes: int,
        windows: Windows,
        window: FlowWindows,
        retransmit_after_ns: int,
        tally: Any,
        is_paced: bool,
    ) -> None:
        self._ends = ends
        self._description = description
        self._iteration = 0
        self.src, dst = between
        self.in_c = ends.ffi.new("shim_flow *")
        """The structure in C."""
        flow = self.in_c
        flow.source = ends.hosts[self.src]
        flow.destination = ends.hosts[dst]
        flow.job = address.job
        flow.flow = address.flow
        flow.data_headers = _blank(address)
        flow.ack_headers = _blank(address.reversed())
        flow.size_bytes = size_bytes
        flow.packet_bytes = windows.packet_bytes
        flow.window = window.single
        flow.every = windows.together
        flow.stream_window = window.shared
        flow.initial = window.initial
        flow.retransmit_after_ns = retransmit_after_ns
        flow.is_paced = is_paced
        flow.tally = tally
        ends.add(self)

    @property
    def described(self) -> str:
        """The flow in its last iteration, for errors."""
        return f"{self._description} in iteration {self._iteration}"

    def start(
        self,
        iteration: int,
        on_complete: Callable[[], None],
        ranking: Ranking | None,
    ) -> None:
        """Send the flow now; call `on_complete` when its last byte has arrived.

        Hosts send in the order of rankings.
        """
        # Paced flows have their rates, and need no window of a stream.
        shares = shares_window(ranking) and not self.in_c.is_paced
        self.expect(iteration, on_complete, is_ranked=ranking is not None, shares=shares)
        self.send(iteration, None, ranking)

    def expect(
        self,
        iteration: int,
        on_complete: Callable[[], None],
        *,
        is_ranked: bool = False,
        shares: bool = False,
    ) -> None:
        """Receive the flow; call `on_complete` when its last byte has arrived.

        A host sends acknowledgements of a ranked flow first. `shares`: the flow shares the window
        of its stream.
        """
        # The shim counts iterations in eight bits.
        notice = self._ends.number_of(on_complete)
        library = self._ends.library
        if library.shim_expect(self.in_c, iteration % 256, notice, is_ranked, shares):
            raise MemoryError

    def send(
        self,
        iteration: int,
        on_acknowledged: Callable[[], None] | None,
        ranking: Ranking | None = None,
    ) -> None:
        """Send the flow now.

        Call `on_acknowledged`, if given, when all of it is known to have arrived.
        """
        self._iteration = iteration
        ends = self._ends
        # Number 0 calls nobody.
        if on_acknowledged is None:
            notice = 0
        else:
            notice = ends.number_of(on_acknowledged)
        if ends.library.shim_send(
            self.in_c, iteration % 256, notice, ends.order(self.in_c.job, ranking)
        ):
            raise MemoryError

    def pace(self, rate_Bps: float | None) -> None:  # noqa: N803
        """Send at this rate from now on, if the flow is still sent.

        The rate is in bytes per second; None: no limit.
        """
        # For C a rate below 0 is no limit.
        rate = -1.0
        if rate_Bps is not None:
            rate = rate_Bps
        self._ends.library.shim_pace(self.in_c, self._iteration % 256, rate)


def knows(ranking: Ranking | None) -> bool:
    """Return whether hosts in C know the order that a ranking gives."""
    return ranking is None or isinstance(ranking.at_host().urgency, Steps | Overdue)


def new_tally(ends: NativeEnds) -> Any:
    """Return counters in C, for `tally_of`."""
    return ends.ffi.new("uint64_t[3]")


def tally_of(counters: Any) -> PacketTally:
    """Return the counts in a C array from `new_tally`."""
    return PacketTally(*map(int, counters))


def _blank(address: FlowAddress) -> bytes:
    """Return the headers of a flow's frames without lengths and checksum."""
    frame = bytearray(shim.headers(address, shim.MIN_FRAME_BYTES))
    for part in _LENGTHS_AND_CHECKSUM:
        frame[part] = bytes(2)
    return bytes(frame)


def not_null(pointer: Any) -> Any:
    """Return what C has made. Raise `MemoryError` if it has not."""
    if not pointer:
        raise MemoryError
    return pointer
