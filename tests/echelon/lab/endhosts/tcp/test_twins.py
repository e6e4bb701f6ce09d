"""TCP in C and in Python: the same frames at the same times, whatever a network does to them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from cffi import FFI
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from echelon.model.fabric.model import Host
from echelon.switches.targets.virtual import NativeClock
from echelon_lab.endhosts.native import NativeEnds
from echelon_lab.endhosts.tcp.frames import TcpAddress
from echelon_lab.endhosts.tcp.native import NativeTcp, tally_of
from echelon_lab.endhosts.tcp.newreno import Aggressiveness
from echelon_lab.endhosts.tcp.sender import TcpSettings, TcpTally
from echelon_lab.endhosts.tcp.stack import Connection, TcpStack
from tests.drawing import examples
from tests.needs import needs

MS = 1_000_000
S = 1000 * MS
RATE_BPS = 100_000_000
DELAY_NS = MS
HOSTS = {
    name: Host(name, f"10.0.0.{at}", f"02:00:00:00:00:0{at}")
    for at, name in enumerate(("a", "b"), start=1)
}

pytestmark = needs("a C compiler")


class Trouble:
    """A fault model that loses, repeats, holds up and marks packets, at random but always alike;
    from `cut_ns` on nothing passes."""

    def __init__(
        self,
        clock: Any,
        rng: Random,
        lose: float,
        repeat: float,
        hold: float,
        mark: float,
        cut_ns: int,
    ):
        self._clock, self._rng, self._cut_ns = clock, rng, cut_ns
        self._lose, self._repeat, self._hold, self._mark = lose, repeat, hold, mark

    def __call__(self, _number: int, frame: bytes) -> list[tuple[int, bytes]]:
        rng = self._rng
        if rng.random() < self._lose or self._clock.now_ns >= self._cut_ns:
            return []
        if frame[15] & 3 == 2 and rng.random() < self._mark:
            frame = frame[:15] + bytes([frame[15] | 3]) + frame[16:]
        copies = 2 if rng.random() < self._repeat else 1
        return [
            (rng.randrange(100 * MS) if rng.random() < self._hold else 0, frame)
            for _ in range(copies)
        ]


class InPython:
    """The two hosts in Python."""

    def __init__(self, clock: Any, links: dict[str, Any]) -> None:
        self.stacks = {name: TcpStack(clock, links[name]) for name in HOSTS}
        self.tally = TcpTally()

    def deliver(self, host: str, now_ns: int, frame: bytes) -> None:
        self.stacks[host].deliver(now_ns, frame)

    def connect(
        self, src: str, dst: str, port: int, of: TcpSettings, on_lost: Callable[[], None], gone: Any
    ) -> Any:
        source, destination = HOSTS[src], HOSTS[dst]
        address = TcpAddress(source.mac, destination.mac, source.ipv4, destination.ipv4, port, 9)
        return Connection(
            self.stacks[src], self.stacks[dst], address, of, on_lost, self.tally, gone
        )


class InC:
    """The two hosts in C, on a network in C of which Python is what is behind its functions
    (`NetworkInC`).
    """

    def __init__(self, clock: Any, links: dict[str, Any]) -> None:
        self._clock, self._links = clock, links
        self._told: dict[int, Callable[[], None]] = {}
        self._tells: list[int] = []
        self._receivers: dict[str, tuple[Any, Any]] = {}
        ffi = self._ffi = FFI()
        self._now_ns = ffi.new("int64_t *")
        ring = "void (*)(void *, uint64_t)"
        self._functions = {
            "call": ffi.callback(f"void (void *, int64_t, {ring}, void *, uint64_t)", self._call),
            "tell": ffi.callback(
                "void (void *, uint64_t)", lambda _clock, number: self._tells.append(number)
            ),
            "send": ffi.callback("void (void *, const uint8_t *, uint32_t, uint64_t)", self._send),
            "waits": ffi.callback("uint32_t (const void *, uint64_t)", lambda _nic, _urgency: 0),
        }
        addresses = {name: self._address(function) for name, function in self._functions.items()}
        self.clock = NativeClock(0, self._address(self._now_ns), **addresses)
        self._ends = NativeEnds(self, HOSTS)
        self._tcp = NativeTcp(self._ends, HOSTS)
        self._counters = self._tcp.new_counters()

    @property
    def now_ns(self) -> int:
        return int(self._clock.now_ns)

    @property
    def tally(self) -> TcpTally:
        return tally_of(self._counters)

    def nic(self, host: str) -> int:
        return list(HOSTS).index(host) + 1

    def receive_in_c(self, host: str, receive: int, _choose: int, receiver: int) -> None:
        function = self._ffi.cast("int (*)(void *, int64_t, const uint8_t *, uint32_t)", receive)
        self._receivers[host] = function, self._ffi.cast("void *", receiver)

    def when_told(self, callback: Callable[[], None], *, once: bool = True) -> int:
        self._told[len(self._told) + 1] = callback
        return len(self._told)

    def deliver(self, host: str, now_ns: int, frame: bytes) -> None:
        function, receiver = self._receivers[host]
        self._in_c(function, receiver, now_ns, self._ffi.from_buffer(frame), len(frame))

    def connect(
        self, src: str, dst: str, port: int, of: TcpSettings, on_lost: Callable[[], None], gone: Any
    ) -> Any:
        connection = self._tcp.connect((src, dst), (port, 9), of, self._counters, on_lost, gone)
        assert self._tcp.has((src, dst), (port, 9))
        return connection

    def pass_time(self) -> None:
        self._now_ns[0] = self._clock.now_ns

    def _in_c(self, function: Any, *given: Any) -> None:
        self.pass_time()
        function(*given)
        assert len(self._tells) < 2
        while self._tells:
            self._told[self._tells.pop()]()

    def _call(self, _clock: Any, time_ns: int, function: Any, what: Any, value: int) -> None:
        self._clock.call_at(time_ns, self._in_c, function, what, value)

    def _send(self, nic: Any, data: Any, length: int, _urgency: int) -> None:
        self._links[list(HOSTS)[int(self._ffi.cast("uintptr_t", nic)) - 1]].send(
            self._ffi.buffer(data, length)[:]
        )

    def _address(self, pointer: Any) -> int:
        return int(self._ffi.cast("uintptr_t", pointer))


flows = st.tuples(
    st.sampled_from([("a", "b"), ("b", "a")]),
    st.lists(
        st.tuples(st.sampled_from([0, 1, 20, 150, 400]), st.integers(1, 150_000)),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(["open", "establish"]),
    st.booleans(),
)


@settings(
    max_examples=examples(300),
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    drawn=st.lists(flows, min_size=1, max_size=4),
    packet=st.sampled_from([130, 578, 1250, 9000]),
    window=st.sampled_from([3000, 18_000, 70_000, 1_000_000]),
    ecn=st.booleans(),
    factor=st.none() | (st.just(8192) | st.integers(0, 50_000)).map(Aggressiveness),
    seed=st.integers(0, 2**32),
    lose=st.sampled_from([0.0, 0.02, 0.2]),
    repeat=st.sampled_from([0.0, 0.2]),
    hold=st.sampled_from([0.0, 0.1, 0.4]),
    mark=st.sampled_from([0.0, 0.05, 0.5]),
    cut_ns=st.sampled_from([0, 40 * MS, 500 * MS, 10**15, 10**15]),
)
# After a pause the window begins anew; what is added to windows in avoidance is rounded from
# halves, too.
@example(
    [(("a", "b"), [(0, 150_000), (400, 150_000)], "open", True)],
    1250,
    10**6,
    False,
    None,
    1,
    0,
    0,
    0,
    0,
    10**15,
)
@example(
    [(("a", "b"), [(0, 400_000)] * 3, "open", True)],
    130,
    10**6,
    True,
    Aggressiveness(8192),
    1,
    0,
    0,
    0,
    0.05,
    10**15,
)
def test_c_and_python_send_the_same(
    toy_clock: Any,
    toy_link: Any,
    drawn: list[Any],
    packet: int,
    window: int,
    ecn: bool,
    factor: Aggressiveness | None,
    seed: int,
    lose: float,
    repeat: float,
    hold: float,
    mark: float,
    cut_ns: int,
) -> None:
    of = TcpSettings(packet, receive_window_bytes=window, ecn=ecn, aggressiveness=factor)

    def played(engine: type[Any]) -> tuple[Any, ...]:
        clock = toy_clock()
        scheduled: list[int] = []
        at_time = clock.call_at

        def schedule(time_ns: int, *call: Any) -> None:
            scheduled.append(time_ns)
            at_time(time_ns, *call)

        clock.call_at = schedule
        hosts: Any = None
        links, happened = {}, []
        for at, (src, dst) in enumerate((("a", "b"), ("b", "a"))):
            fate = Trouble(clock, Random(seed + at), lose, repeat, hold, mark, cut_ns)
            links[src] = toy_link(
                clock,
                RATE_BPS,
                DELAY_NS,
                lambda now_ns, frame, dst=dst: hosts.deliver(dst, now_ns, frame),
                fate,
            )
        hosts = engine(clock, links)

        def note(what: str, at: int) -> None:
            happened.append((clock.now_ns, what, at, connections[at].received_bytes))

        connections: list[Any] = []
        for at, ((src, dst), writes, begin, closes) in enumerate(drawn):
            connection = hosts.connect(
                src,
                dst,
                40_000 + at,
                of,
                lambda at=at: note("lost", at),
                lambda at=at: note("gone", at),
            )
            connections.append(connection)

            def act(do: Callable[[], None]) -> None:
                if engine is InC:
                    hosts.pass_time()
                do()

            time_ns = at * 10 * MS
            clock.call_at(time_ns, act, getattr(connection, begin))
            for pause_ms, size in writes:
                time_ns += pause_ms * MS
                clock.call_at(
                    time_ns,
                    act,
                    lambda write=connection.write, size=size, at=at: write(
                        size, lambda: note("received", at)
                    ),
                )
            if closes:
                clock.call_at(time_ns, act, connection.close)
        clock.run(until_ns=1200 * S)
        ends = [connection.received_bytes for connection in connections]
        frames = {name: link.frames for name, link in links.items()}
        return frames, happened, ends, hosts.tally, clock.now_ns, scheduled

    in_c, in_python = played(InC), played(InPython)
    for one, other in zip(in_c, in_python, strict=True):
        assert one == other
