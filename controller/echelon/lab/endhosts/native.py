"""The ends of flows with a shim in C (shim.c), for hosts whose network is in C: the same packets as those of
`echelon.lab.endhosts.transport`, many times as fast."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from ctoolchain import CSource, Loaded, load
from echelon.engine import VARIABLE
from echelon.errors import RunError
from echelon.lab.endhosts import shim
from echelon.lab.endhosts.ranks import CONTROL, LEFT_SHIFT_BIAS, MEMORY_SHIFT, packed
from echelon.lab.endhosts.shim import FlowAddress, PacketTally
from echelon.lab.endhosts.transport import CREDIT_SEGMENTS, MAX_BACKOFF, MAX_TIMEOUTS, stuck
from echelon.lab.scenarios.scenario import Transport
from echelon.lowering.at_hosts import HostRule
from echelon.lowering.identity import ShimIdentity
from echelon.rankings.base import Overdue, Ranking, Steps
from echelon.targets.virtual import NetworkInC

__all__ = ["NativeEnds", "NativeFlow"]

_FOLDER = Path(__file__).parent
_LENGTHS_AND_CHECKSUM = (slice(16, 18), slice(24, 26), slice(38, 40))


@cache
def _library() -> Loaded:
    header = (_FOLDER / "shim.h").read_text(encoding="utf-8")
    numbers = {"STRAGGLER_FROM": shim.STRAGGLER_FROM, "MEMORY_SHIFT": MEMORY_SHIFT, "LEFT_SHIFT_BIAS": LEFT_SHIFT_BIAS}
    text = "".join(f"#define {name} {number}\n" for name, number in numbers.items())
    text += (_FOLDER / "shim.c").read_text(encoding="utf-8")
    ranks = (_FOLDER / "ranks.h").read_text(encoding="utf-8")
    loaded = load(CSource("shim", text, {"shim.h": header, "ranks.h": ranks}), header)
    assert loaded is not None, "the network in C was built by a compiler"
    return loaded


class NativeEnds:
    """The senders and receivers of flows with a shim at all hosts of a network in C."""

    def __init__(self, network: NetworkInC, hosts: Iterable[str]) -> None:
        self.ffi, self.library, _ = _library()
        self._network = network
        clock = network.clock
        given = self.ffi.new("shim_network *")
        for name in ("clock", "now_ns", "call", "tell", "send", "waits"):
            setattr(given, name, self._pointer(self.ffi.typeof(getattr(given, name)), getattr(clock, name)))
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
            "ack_frame": shim.ACK_BYTES,
            "most_timeouts": MAX_TIMEOUTS,
            "most_backoff": MAX_BACKOFF,
            "credit_segments": CREDIT_SEGMENTS,
        }
        failure = network.when_told(self._fail, once=False)
        made = self.library.shim_new(given, self.ffi.new("shim_constants *", constants), failure)
        self._run = self.ffi.gc(_made(made), self.library.shim_free)
        self._flows: dict[int, NativeFlow] = {}
        self._orders: dict[tuple[int, Ranking], tuple[Any, Any, Any]] = {}
        """The order that a ranking gives to flows of a job, in C, with the arrays that it refers to."""
        self._groups: dict[tuple[int, str], int] = {}
        self.hosts: dict[str, Any] = {}
        """The structure of each host in C."""
        deliver, choose = (
            self._address(self.ffi.addressof(self.library, name)) for name in ("shim_deliver", "shim_choose")
        )
        for name in hosts:
            nic = self.ffi.cast("void *", network.nic(name))
            host = self.hosts[name] = _made(self.library.shim_add_host(self._run, nic))
            network.receive_in_c(name, deliver, choose, self._address(host))

    def rank(self, rules: Iterable[HostRule]) -> None:
        """Have hosts rank what they send."""
        self.library.shim_mark(self._run, CONTROL)
        states: dict[tuple[str, str | None], int] = {}
        for rule in rules:
            if isinstance(shim_of := rule.identity, ShimIdentity):
                state = states.setdefault((rule.job, rule.echelonflow), len(states))
                host, given = self.hosts[rule.src], packed(rule)
                if self.library.shim_rank(host, shim_of.job, shim_of.flow, state, given):
                    raise MemoryError

    def close(self) -> None:
        """Let all hosts fall silent."""
        for host in self.hosts.values():
            self.library.shim_close(host)

    def add(self, flow: NativeFlow) -> None:
        """Keep a flow, to name it if it gets nowhere."""
        self._flows[self._address(flow.in_c)] = flow

    def told(self, callback: Callable[[], None]) -> int:
        """Return the number by which C has this called."""
        return self._network.when_told(callback)

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
        made = self.ffi.new("shim_order *")
        made.highest = ranking.queues[-1]
        made.group = 0 if group is None else self._groups.setdefault((job, group), len(self._groups) + 1)
        match urgency:
            case Overdue(due_s, left_s, unit_s, head_start):
                made.kind = self.library.ORDER_OVERDUE
                made.due_s, made.left_s, made.unit_s, made.head_start = due_s, left_s, unit_s, head_start
                return made, None, None
            case Steps(thresholds, values, due_s):
                made.kind = self.library.ORDER_STEPS_OF_BYTES if due_s is None else self.library.ORDER_STEPS_OF_AGE
                made.due_s = due_s or 0.0
                made.steps = len(thresholds)
                arrays = self.ffi.new("double[]", thresholds), self.ffi.new("double[]", values)
                made.thresholds, made.values = arrays
                return made, *arrays
            case _:
                name = type(ranking).__name__
                raise RunError(f"hosts in C do not know the order of ranking {name} (set {VARIABLE}=python)")

    def _fail(self) -> None:
        flow = self._flows[self._address(self.library.shim_failed(self._run))]
        raise RunError(stuck(flow.described, self._network.now_ns, flow.src))

    def _address(self, pointer: Any) -> int:
        return int(self.ffi.cast("uintptr_t", pointer))

    def _pointer(self, kind: Any, address: int) -> Any:
        return self.ffi.cast(kind, address)


class NativeFlow:
    """A flow, the same in every iteration."""

    def __init__(
        self,
        ends: NativeEnds,
        what: str,
        between: tuple[str, str],
        address: FlowAddress,
        size_bytes: int,
        transport: Transport,
        initial: int,
        retransmit_after_ns: int,
        tally: Any,
        is_paced: bool,
    ) -> None:
        self._ends = ends
        self._what = what
        self._iteration = 0
        self.src, dst = between
        self.in_c = ends.ffi.new("shim_flow *")
        """The structure in C."""
        flow = self.in_c
        flow.source, flow.destination = ends.hosts[self.src], ends.hosts[dst]
        flow.job, flow.flow = address.job, address.flow
        flow.data_headers = _blank(address)
        flow.ack_headers = _blank(address.reversed())
        flow.size_bytes, flow.packet_bytes = size_bytes, transport.packet_bytes
        flow.window, flow.initial = transport.window_packets, min(initial, transport.window_packets)
        flow.retransmit_after_ns = retransmit_after_ns
        flow.is_paced = is_paced
        flow.tally = tally
        ends.add(self)

    @property
    def described(self) -> str:
        """The flow in its last iteration, for errors."""
        return f"{self._what} in iteration {self._iteration}"

    def start(self, iteration: int, on_complete: Callable[[], None], ranking: Ranking | None) -> None:
        """Send the flow now; call `on_complete` when its last byte has arrived. Hosts send in the order of rankings."""
        self.expect(iteration, on_complete, is_ranked=ranking is not None)
        self.send(iteration, None, ranking)

    def expect(self, iteration: int, on_complete: Callable[[], None], *, is_ranked: bool = False) -> None:
        """Receive the flow; call `on_complete` when its last byte has arrived. A host sends acknowledgements of a
        ranked flow first."""
        told = self._ends.told(on_complete)
        if self._ends.library.shim_expect(self.in_c, iteration % 256, told, is_ranked):
            raise MemoryError

    def send(self, iteration: int, on_acknowledged: Callable[[], None] | None, ranking: Ranking | None = None) -> None:
        """Send the flow now; call `on_acknowledged`, if given, when all of it is known to have arrived."""
        self._iteration = iteration
        ends = self._ends
        told = 0 if on_acknowledged is None else ends.told(on_acknowledged)
        if ends.library.shim_send(self.in_c, iteration % 256, told, ends.order(self.in_c.job, ranking)):
            raise MemoryError

    def pace(self, rate_Bps: float | None) -> None:  # noqa: N803
        """Send at this rate from now on, in bytes per second, if the flow is still sent; None: no limit."""
        rate = -1.0 if rate_Bps is None else rate_Bps
        self._ends.library.shim_pace(self.in_c, self._iteration % 256, rate)


def knows(ranking: Ranking | None) -> bool:
    """Return whether hosts in C know the order that a ranking gives."""
    return ranking is None or isinstance(ranking.at_host().urgency, Steps | Overdue)


def new_tally(ends: NativeEnds) -> Any:
    """Return counters in C, for `tally_of`."""
    return ends.ffi.new("uint64_t[3]")


def tally_of(counters: Any) -> PacketTally:
    """Return the counts of counters in C."""
    return PacketTally(*map(int, counters))


def _blank(address: FlowAddress) -> bytes:
    """Return the headers of a flow's frames without lengths and checksum."""
    made = bytearray(shim.headers(address, shim.MIN_FRAME_BYTES))
    for part in _LENGTHS_AND_CHECKSUM:
        made[part] = bytes(2)
    return bytes(made)


def _made(pointer: Any) -> Any:
    if not pointer:
        raise MemoryError
    return pointer
