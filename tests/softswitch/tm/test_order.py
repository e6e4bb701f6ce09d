"""The order of service, against a model that knows only the rules: plain lists, token buckets,
exact fractions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.tm import QUEUES, QueueConfig
from tests.drawing import examples
from tests.reference.traffic_manager import (
    GUARANTEE_CREDIT_BYTES,
    SHAPER_CREDIT_BYTES,
    PortScheduler,
)

# Rates at which a byte takes whole nanoseconds, so that instants need no rounding and the model is
# exact.
RATES_BPS = [8 * 10**9 // ns_per_byte for ns_per_byte in (1, 2, 5, 8, 40, 1000)]


@dataclass
class Bucket:
    """Tokens in bits; what it may do, it may do from 0 tokens on, into debt."""

    rate_bps: int | None
    credit_bytes: int
    tokens: Fraction = Fraction(0)

    def pass_time(self, duration_ns: int) -> None:
        if self.rate_bps:
            earned = Fraction(self.rate_bps * duration_ns, 10**9)
            self.tokens = min(self.tokens + earned, Fraction(self.credit_bytes * 8))

    def pay(self, length: int) -> None:
        if self.rate_bps:
            self.tokens -= 8 * length

    def change(self, rate_bps: int | None) -> None:
        if rate_bps is None or self.rate_bps is None:
            self.tokens = Fraction(0)
        elif rate_bps != self.rate_bps:  # debt is bits and stays, credit goes
            self.tokens = min(self.tokens, Fraction(0))
        self.rate_bps = rate_bps


@dataclass
class ModelQueue:
    config: QueueConfig
    packets: list[tuple[int, int, int, int]] = field(
        default_factory=list
    )  # serial, length, enqueued at, depth met
    shaper: Bucket = field(init=False)
    guarantee: Bucket = field(init=False)

    def __post_init__(self) -> None:
        self.shaper = Bucket(self.config.max_rate_bps, SHAPER_CREDIT_BYTES)
        self.guarantee = Bucket(self.config.min_rate_bps or None, GUARANTEE_CREDIT_BYTES)

    @property
    def bytes(self) -> int:
        return sum(packet[1] for packet in self.packets)

    @property
    def eligible(self) -> bool:
        return bool(self.packets) and (self.shaper.rate_bps is None or self.shaper.tokens >= 0)

    @property
    def owed(self) -> bool:
        return self.eligible and self.guarantee.rate_bps is not None and self.guarantee.tokens >= 0


@st.composite
def queue_configs(draw: st.DrawFn) -> QueueConfig:
    max_rate = draw(st.sampled_from([None, *RATES_BPS]))
    below = [rate for rate in RATES_BPS if max_rate is None or rate <= max_rate]
    return QueueConfig(
        level=draw(st.integers(0, 2)),
        weight=draw(st.integers(1, 1023)),
        min_rate_bps=draw(st.sampled_from([0, 0, *below])),
        max_rate_bps=max_rate,
        depth_bytes=draw(st.sampled_from([5000, 1 << 20, 1 << 20])),
    )


# Few queues, often full ones: most choices are between several, and most packets meet a rate.
queues = st.sampled_from([0, 1, 2, 2, 3, QUEUES])
batches = st.lists(st.integers(1, 1500), min_size=1, max_size=8)
operations = st.one_of(
    st.tuples(st.just("enqueue"), queues, batches),
    st.tuples(st.just("enqueue"), queues, batches),
    st.tuples(st.just("dequeue"), st.integers(1, 8), st.none()),
    st.tuples(st.just("dequeue"), st.integers(1, 8), st.none()),
    st.tuples(st.just("pass"), st.integers(1, 50_000), st.none()),
    st.tuples(st.just("configure"), st.integers(0, 3), queue_configs()),
)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.sampled_from([None, *RATES_BPS]),
    st.lists(queue_configs(), min_size=4, max_size=4),
    st.lists(operations, min_size=10, max_size=60),
)
def test_every_choice_follows_the_rules(
    rate_bps: int | None, configs: list[QueueConfig], operations: list[tuple[str, int, object]]
) -> None:
    port = PortScheduler(rate_bps, configs)
    model = [ModelQueue(port.config(queue)) for queue in range(QUEUES)]
    now_ns = line_free_ns = serial = unknown = 0

    def pass_time(duration_ns: int) -> None:
        nonlocal now_ns
        for queue in model:
            queue.shaper.pass_time(duration_ns)
            queue.guarantee.pass_time(duration_ns)
        now_ns += duration_ns

    def take() -> None:
        nonlocal line_free_ns
        promised_ns = port.next_eligible_ns(now_ns)
        leaving = port.dequeue(now_ns)
        assert (leaving is not None) == (promised_ns == now_ns)
        eligible = [queue for queue in model if queue.eligible]
        if leaving is None:
            assert line_free_ns > now_ns or not eligible
            return
        assert line_free_ns <= now_ns
        source = model[leaving.queue]
        # First in, first out, with its own data.
        (item, length, enq_ns, depth), *source.packets = source.packets
        assert leaving[1:6] == (item, length, enq_ns, depth, len(source.packets))
        source.packets.insert(0, (item, length, enq_ns, depth))
        # The rules.
        owed = [queue for queue in model if queue.owed]
        assert source in eligible
        assert leaving.guaranteed == bool(owed)
        if owed:
            assert source in owed
            source.guarantee.pay(length)
        else:
            assert source.config.level == max(queue.config.level for queue in eligible)
        source.shaper.pay(length)
        del source.packets[0]
        if rate_bps is not None:
            line_free_ns = now_ns + length * 8 * 10**9 // rate_bps

    for operation, number, extra in operations:
        if operation == "pass":
            pass_time(number)
        elif operation == "enqueue":
            assert isinstance(extra, list)
            for length in extra:
                serial += 1
                if number == QUEUES:
                    assert not port.enqueue(number, serial, length, now_ns)
                    unknown += 1
                    continue
                queue = model[number]
                fits = queue.bytes + length <= queue.config.depth_bytes
                assert port.enqueue(number, serial, length, now_ns) == fits
                if fits:
                    if not queue.packets:
                        queue.shaper.tokens = min(queue.shaper.tokens, Fraction(0))
                        queue.guarantee.tokens = min(queue.guarantee.tokens, Fraction(0))
                    queue.packets.append((serial, length, now_ns, len(queue.packets)))
        elif operation == "configure":
            assert isinstance(extra, QueueConfig)
            port.configure(number, extra, now_ns)
            model[number].config = extra
            model[number].shaper.change(extra.max_rate_bps)
            model[number].guarantee.change(extra.min_rate_bps or None)
        else:
            for _ in range(number):
                take()
                wait_ns = port.next_eligible_ns(now_ns)
                if wait_ns is None:
                    break
                if wait_ns > now_ns:
                    if wait_ns > now_ns + 1:  # not a nanosecond sooner than promised
                        pass_time(wait_ns - now_ns - 1)
                        assert port.dequeue(now_ns) is None
                    pass_time(wait_ns - now_ns)

    assert port.unknown_queue_packets == unknown
    assert port.queued_packets == sum(len(queue.packets) for queue in model)
    assert sum(stats.queued_bytes for stats in port.stats) == sum(queue.bytes for queue in model)
    for queue, stats in zip(model, port.stats, strict=True):
        assert (stats.queued_packets, stats.queued_bytes) == (len(queue.packets), queue.bytes)
        assert stats.enqueued_packets == stats.dequeued_packets + stats.queued_packets
        assert stats.enqueued_bytes == stats.dequeued_bytes + stats.queued_bytes
