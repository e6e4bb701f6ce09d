"""The rank of a packet at its sender, where switches do not rank.

It is what the P4 program computes in a switch.

`ranks.h` is the same in C, for hosts in C and for the program in the kernel
(`echelon_torch.agent`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from echelon.model.errors import RunError
from echelon.model.p4program import constants
from echelon.planning.plan import CONTROL_QUEUE
from echelon.switches.lowering.at_hosts import HostRule
from echelon.switches.lowering.identity import ShimIdentity
from echelon_lab.endhosts.shim import STRAGGLER_FROM, UNSTAMPED, DataSegment

_CONSTANTS = constants()
MEMORY_SHIFT = _CONSTANTS["MEMORY_SHIFT"]
LEFT_SHIFT_BIAS = _CONSTANTS["LEFT_SHIFT_BIAS"]
CLASS_SHIFT = 3
"""The upper three of the six bits of a code point are the queue."""
CONTROL = CONTROL_QUEUE << CLASS_SHIFT
"""The code point of acknowledgements."""
_BIAS = _CONSTANTS["SLACK_BIAS"]
# Keys of tables and ages in stamps have 32 bits.
_MOST = 2**32 - 1
_RULE = Struct("=2q6I8I8BI4x")
# RANK_LEVELS of `ranks.h`.
_LEVELS = 8
_NS_PER_US = 1000
_STAMP = Struct("!IHH")


def packed(rule: HostRule) -> bytes:
    """Return a rule as `struct rank_rule` of `ranks.h`."""
    keys = [step.lowest for step in rule.levels]
    queues = [step.queue for step in rule.levels] or [rule.queue]
    return _RULE.pack(
        _signed(rule.rank_at_zero),
        rule.top,
        rule.offset_us,
        rule.due_us,
        rule.factor,
        rule.alone_us,
        rule.factor_shift,
        rule.left_shift,
        *_padded(keys),
        *_padded(queues),
        len(keys),
    )


def _padded(numbers: Sequence[int]) -> list[int]:
    """Return one number for each level."""
    return [*numbers, *[0] * (_LEVELS - len(numbers))]


def emulated(rules: Iterable[HostRule]) -> tuple[HostRule, ...]:
    """Return the rules.

    Raise `RunError` for one that emulated hosts do not have: of a flow without a shim.
    """
    selected = tuple(rules)
    for rule in selected:
        if not isinstance(rule.identity, ShimIdentity):
            raise RunError(
                f"job {rule.job}: is recognised by bytes, but emulated hosts rank flows with a shim"
                " only (write 'recognition: {by: shim}', or let switches rank)"
            )
    return selected


def _signed(number: int) -> int:
    """Return the lower 48 bits of a number, which are two's complement."""
    return (number + 2**47) % 2**48 - 2**47


@dataclass(slots=True)
class _State:
    """A sender's knowledge of an EchelonFlow."""

    epoch: int | None = None
    reference_us: int = 0
    late_us: int = 0
    memory: int = 0


@dataclass(slots=True)
class _Stream:
    """The packets of a flow."""

    epoch: int | None = None
    queue: int = 0


@dataclass(slots=True)
class RankPacket:
    """The properties of a packet that decide about its rank."""

    epoch: int
    left_bytes: int
    """Bytes of the flow from this packet on."""
    last: bool = False
    alone: bool = False
    """All that was sent before has arrived."""
    resent: bool = False
    age_us: int = 0
    """The age of the iteration as the sender was told it (`echelon_lab.endhosts.agreement`)."""
    memory: int = 0


class Ranked(NamedTuple):
    """The answer."""

    queue: int
    waits: bool = False
    """Whether the flow should have a higher queue, and will when a packet is alone."""
    age_us: int = 0
    """The age of the iteration that the packet tells others."""
    memory: int = 0


@dataclass(slots=True)
class FlowRank:
    """A flow at its sender. Flows of one EchelonFlow have one state."""

    rule: HostRule
    state: _State = field(default_factory=_State)
    stream: _Stream = field(default_factory=_Stream)

    def rank(self, now_us: int, packet: RankPacket) -> Ranked:
        """Rank a packet that leaves now.

        Only a packet that is alone, or the first of its flow in an iteration, goes to a higher
        queue than the one before: it would overtake that. In a lower one it cannot, because queues
        are strict.
        """
        rule = self.rule
        state = self.state
        stream = self.stream
        wanted = rule.queue
        age_us = packet.age_us
        memory = packet.memory
        if rule.levels:
            # A straggler must not set the times of the newer iteration back.
            if _is_behind(state.epoch, packet.epoch):
                return Ranked(0, age_us=age_us, memory=memory)
            key = self._key(now_us, packet)
            wanted = rule.levels[
                bisect_right(rule.levels, key, key=lambda step: step.lowest) - 1
            ].queue
            age_us = 0
            if rule.factor:
                passed_us = now_us - state.reference_us
                age_us = min(max(passed_us, 1), _MOST)
                memory = state.memory
                if packet.last:
                    state.late_us = min(max(passed_us - rule.offset_us, state.late_us), _MOST)
        # The queue of the stream is that of its newest packets.
        if packet.resent or _is_behind(stream.epoch, packet.epoch):
            return Ranked(wanted, age_us=age_us, memory=memory)
        waits = stream.epoch == packet.epoch and not packet.alone and wanted > stream.queue
        stream.epoch = packet.epoch
        stream.queue = stream.queue if waits else wanted
        return Ranked(stream.queue, waits, age_us, memory)

    def _key(self, now_us: int, packet: RankPacket) -> int:
        rule = self.rule
        state = self.state
        if packet.age_us and rule.factor:
            told_us = now_us - packet.age_us
        else:
            told_us = None
        if state.epoch != packet.epoch:
            state.epoch = packet.epoch
            if told_us is None:
                # Until a host tells when the iteration began, the flow counts as on time.
                state.reference_us = now_us - rule.offset_us
            else:
                state.reference_us = told_us
            if rule.factor:
                delay = (
                    max(state.late_us - rule.alone_us, 0) * rule.factor
                    >> rule.factor_shift + MEMORY_SHIFT
                )
                total = state.memory + delay
                # A quarter is forgotten with each iteration; stamps have 16 bits for the rest.
                state.memory = min(total - (total >> 2), 0xFFFF)
                state.late_us = 0
        elif told_us is not None:
            # The earliest beginning that any host has told is the iteration's.
            state.reference_us = min(state.reference_us, told_us)
        slack = state.reference_us + rule.due_us - now_us + _BIAS
        slack = min(max(slack, 0), _MOST)
        if not rule.factor:
            return slack
        state.memory = max(state.memory, packet.memory)
        tardiness = (_MOST - slack) * rule.factor >> rule.factor_shift
        left = (
            min(packet.left_bytes << LEFT_SHIFT_BIAS >> rule.left_shift, _MOST) * rule.factor
            >> rule.factor_shift
        )
        # As `echelon.planning.rankings.deadline.deadline_rank`, in the integers of a switch.
        rank = _signed(tardiness + rule.rank_at_zero + (state.memory << MEMORY_SHIFT) - left)
        return min(max(rule.top - rank, 0), _MOST)


def _is_behind(stored: int | None, epoch: int) -> bool:
    return stored is not None and (epoch - stored) % 256 >= STRAGGLER_FROM


class HostRanks:
    """The ranks of the flows with a shim that one host sends."""

    def __init__(self, host: str, rules: Iterable[HostRule]) -> None:
        self._flows: dict[bytes, FlowRank] = {}
        states: dict[tuple[str, str | None], _State] = {}
        for rule in rules:
            if rule.src == host and isinstance(rule.identity, ShimIdentity):
                job = rule.identity.job.to_bytes(2, "big")
                number = job + rule.identity.flow.to_bytes(2, "big")
                state = states.setdefault((rule.job, rule.echelonflow), _State())
                self._flows[number] = FlowRank(rule, state)

    def mark(
        self,
        now_ns: int,
        key: bytes,
        segment: DataSegment,
        stamp: bytes,
    ) -> tuple[int, bytes]:
        """Return the code point and the stamp of a segment that leaves now.

        Its flow has the key `key` (`echelon_lab.endhosts.shim.flow_key`). It asks for draining
        where that lets the flow have a higher queue.
        """
        flow = self._flows.get(key[1:])
        if flow is None:
            return 0, stamp
        age_us, memory, _ = _STAMP.unpack(stamp)
        packet = RankPacket(
            epoch=key[0],
            left_bytes=segment.remaining,
            last=segment.last,
            alone=segment.alone,
            resent=segment.resent,
            age_us=age_us,
            memory=memory,
        )
        ranked = flow.rank(now_ns // _NS_PER_US, packet)
        segment.drain |= ranked.waits
        if ranked.age_us:
            stamp = _STAMP.pack(ranked.age_us, ranked.memory, 0)
        else:
            stamp = UNSTAMPED
        return ranked.queue << CLASS_SHIFT, stamp
