"""The rank at a sender, in Python and in C, against the compiled P4 program, packet by packet."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.frames import MACS, ipv4, shim

from ctoolchain import CSource, load
from echelon.model.fabric.builders import one_tor
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.p4program import constants, program
from echelon.planning.plan import FlowPlan
from echelon.planning.rankings.deadline import Deadline, Relative
from echelon.planning.rankings.fixed import Fixed
from echelon.switches.lowering.at_hosts import HostRule, lower_at_hosts
from echelon.switches.lowering.capabilities import Capabilities
from echelon.switches.lowering.identity import ShimIdentity
from echelon.switches.targets import TARGETS
from echelon_lab.endhosts import ranks
from echelon_lab.endhosts.ranks import FlowRank, Ranked, RankPacket, packed
from softswitch import Program, Switch, load_program
from tests.drawing import examples
from tests.needs import needs

pytestmark = pytest.mark.wide

HEADER = Path(ranks.__file__).with_name("ranks.h")
INGRESS = "EchelonIngress."
MAC = int.from_bytes(MACS[2], "big")
HOST, PEER = 0x0A000001, 0x0A000002
WRAPPER = """
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t; typedef long long int64_t;
#include "ranks.h"
void rank_one(const void *rule, void *state, void *stream, struct rank_packet *packet) {
    rank(rule, state, stream, packet);
}
"""
DECLARED = """
struct rank_packet { uint64_t now_us; uint32_t left_bytes, age_us; uint16_t memory; uint8_t epoch, last, alone, resent,
    queue, waits; };
void rank_one(const void *rule, void *state, void *stream, struct rank_packet *packet);
"""


@cache
def in_c() -> Any:
    names = ("STRAGGLER_FROM", "MEMORY_SHIFT", "LEFT_SHIFT_BIAS")
    text = "".join(f"#define {name} {constants()[name]}\n" for name in names) + WRAPPER
    return load(CSource("ranks", text, {"ranks.h": HEADER.read_text()}), DECLARED)


@cache
def compiled() -> Program:
    return load_program(program().binary.read_bytes())


@dataclass(frozen=True)
class Step:
    """A packet: which flow, how long after the one before, how its epoch differs, and what its
    sender knows.
    """

    flow: int
    later_us: int
    epoch: int
    left_bytes: int
    last: bool
    alone: bool
    resent: bool
    age_us: int
    memory: int


seconds = st.fractions(0, 3, max_denominator=1000)
relatives = st.builds(
    Relative,
    st.fractions(Fraction(1, 100), 30, max_denominator=1000),
    st.fractions(0, 2, max_denominator=100),
    st.fractions(0, 1, max_denominator=100),
    st.just(Fraction(1, 16)),
    st.just((Fraction(1, 10),)),
)
rankings = st.one_of(
    st.builds(Fixed, st.integers(0, 6)),
    st.builds(
        lambda name, offset, due, left, relative, thresholds: Deadline(
            name, offset, () if relative else tuple(sorted(thresholds)), 1, 7, relative, due, left
        ),
        st.sampled_from(["A", "B"]),
        seconds,
        st.none() | seconds,
        st.none() | st.integers(-10, 20),
        st.none() | relatives,
        st.lists(seconds, min_size=6, max_size=6),
    ),
)
steps = st.builds(
    Step,
    st.integers(0, 3),
    st.integers(0, 100) | st.integers(0, 2_000_000),
    st.sampled_from([0, 0, 0, 0, 1, 1, -1, 20]),
    st.integers(1, 2**31) | st.integers(1, 2000),
    st.booleans(),
    st.booleans(),
    st.integers(0, 5).map(lambda number: not number),
    st.just(0) | st.integers(1, 3_000_000),
    st.integers(0, 3000),
)


@cache
def places() -> tuple[Fabric, Capabilities]:
    return build_fabric(one_tor(2)), TARGETS["dscp"].capabilities(TARGETS["dscp"].options())


def rules_of(made: list[Any]) -> tuple[HostRule, ...]:
    """Return the rules for flows with these rankings.

    All of one EchelonFlow have the same `relative`.
    """
    shared = {one.echelonflow: one for one in made if isinstance(one, Deadline)}
    made = [
        (
            replace(
                one,
                relative=shared[one.echelonflow].relative,
                thresholds_s=shared[one.echelonflow].thresholds_s,
            )
            if isinstance(one, Deadline)
            else one
        )
        for one in made
    ]
    fabric, able = places()
    flows = [
        FlowPlan("job", f"f{number}", one, ("h1", "tor", "h2")) for number, one in enumerate(made)
    ]
    identities = {flow.flow: ShimIdentity(1, number) for number, flow in enumerate(flows)}
    return lower_at_hosts("job", flows, identities, fabric, able)


class InC:
    """The rules in C."""

    def __init__(self, rules: tuple[HostRule, ...]) -> None:
        self._ffi, self._library, _ = in_c()
        self._rules = [packed(rule) for rule in rules]
        self._states = {rule.echelonflow: self._ffi.new("uint64_t[2]") for rule in rules}
        self._streams = [self._ffi.new("uint32_t[1]") for _ in rules]
        self._names = [rule.echelonflow for rule in rules]

    def rank(self, flow: int, now_us: int, given: RankPacket) -> Ranked:
        packet = self._ffi.new("struct rank_packet *")
        packet.now_us = now_us
        for name in ("epoch", "left_bytes", "last", "alone", "resent", "age_us", "memory"):
            setattr(packet, name, getattr(given, name))
        state = self._states[self._names[flow]]
        self._library.rank_one(self._rules[flow], state, self._streams[flow], packet)
        return Ranked(packet.queue, bool(packet.waits), packet.age_us, packet.memory)


class InSwitch:
    """The P4 program, each flow alone at a port of its own."""

    def __init__(self, rules: tuple[HostRule, ...]) -> None:
        self._switch = Switch(compiled())
        self._switch.on_digest = lambda *_: None
        self._rules = rules
        tables = self._switch.tables
        names = {name: number for number, name in enumerate({rule.echelonflow for rule in rules})}
        for number, rule in enumerate(rules):
            at = INGRESS + "classifier."
            tables[at + "shim_flow"].insert((1, number), 0, at + "set_flow", [number])
            where = [number + 1, MAC]
            if rule.echelonflow is None:
                tables[INGRESS + "flow.flow"].insert((number,), 0, "fixed", [*where, rule.queue])
                continue
            due = [rule.offset_us, rule.due_us, rule.left_shift]
            arguments = [*where, names[rule.echelonflow], number, *due]
            tables[INGRESS + "flow.flow"].insert((number,), 0, "deadline", arguments)
            for step in rule.levels:
                key, at = (number, (step.lowest, step.highest)), INGRESS + "level."
                tables[at + "level"].insert(key, 1, at + "set_queue", [step.queue, step.lowest])
            if rule.factor:
                at, idle = INGRESS + "by_deadline.", 1
                period = [rule.factor, rule.factor_shift, rule.rank_at_zero, rule.alone_us, idle]
                period += [1, 7]
                tables[at + "period"].insert((number,), 0, at + "set_period", period)

    def rank(self, flow: int, now_us: int, packet: RankPacket) -> Ranked:
        """Return queue, age and memory; the queue of a rank is that for `top`."""
        rule = self._rules[flow]
        payload = shim(
            *(1, flow, packet.epoch, packet.left_bytes),
            flags=4 * packet.last,
            age_us=packet.age_us,
            memory=packet.memory,
        )
        (queued,) = self._switch.ingress(100, ipv4(HOST, PEER, 17, payload), now_us * 1000)
        (gone,) = self._switch.egress(queued, now_us * 1000, now_us * 1000, 0, 0)
        assert gone.packet is not None
        told = gone.packet[42:]
        age_us, memory, queue = (
            int.from_bytes(told[12:16], "big"),
            int.from_bytes(told[16:18], "big"),
            queued.queue,
        )
        if rule.factor and queued.port:
            place = queued.port << 3 | queued.queue
            rank = self._switch.registers["queue_rank"].read(place) >> 16
            behind = (rule.top - rank + 2**47) % 2**48 - 2**47
            keys = [step.lowest for step in rule.levels]
            queue = rule.levels[bisect_right(keys, min(max(behind, 0), 2**32 - 1)) - 1].queue
        return Ranked(queue, False, age_us, memory)


def packets(made: list[Step], *, alone: bool) -> Any:
    """Yield flow, time and packet of steps; with `alone`, any packet may change its queue."""
    now_us, epoch = 10_000_000, 5
    for step in made:
        now_us += step.later_us
        here = (epoch + step.epoch) % 256
        epoch = here if step.epoch > 0 else epoch
        flags = (step.last, alone or step.alone, not alone and step.resent)
        yield step.flow, now_us, RankPacket(here, step.left_bytes, *flags, step.age_us, step.memory)


@needs("a C compiler")
@settings(max_examples=examples(400), deadline=None)
@given(st.lists(rankings, min_size=4, max_size=4), st.lists(steps, min_size=1, max_size=40))
def test_python_and_c_agree(made: list[Any], sent: list[Step]) -> None:
    rules = rules_of(made)
    states = {rule.echelonflow: FlowRank(rule).state for rule in rules}
    python, c = [FlowRank(rule, states[rule.echelonflow]) for rule in rules], InC(rules)
    for flow, now_us, packet in packets(sent, alone=False):
        assert python[flow].rank(now_us, replace(packet)) == c.rank(flow, now_us, packet)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(rankings, min_size=4, max_size=4), st.lists(steps, min_size=1, max_size=40))
def test_both_agree_with_the_switch(made: list[Any], sent: list[Step]) -> None:
    """Packets of an iteration that is over tell the switch's ports nothing, and are best effort."""
    rules = rules_of(made)
    states = {rule.echelonflow: FlowRank(rule).state for rule in rules}
    python, switch = [FlowRank(rule, states[rule.echelonflow]) for rule in rules], InSwitch(rules)
    for flow, now_us, packet in packets(sent, alone=True):
        state = states[rules[flow].echelonflow]
        over = (
            state.epoch is not None
            and (packet.epoch - state.epoch) % 256 >= constants()["STRAGGLER_FROM"]
        )
        ours, theirs = python[flow].rank(now_us, replace(packet)), switch.rank(flow, now_us, packet)
        if rules[flow].levels and over:
            assert ours.queue == 0
            continue
        assert ours.queue == theirs.queue
        if rules[flow].factor:
            assert (ours.age_us, ours.memory) == (theirs.age_us, theirs.memory)
