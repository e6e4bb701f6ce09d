"""What the data plane for Tofino leaves out, taken from the fabric of the ladder.

The switches run the program for v1model, so that one limit at a time can be added: by what they are
said to be capable of, by the numbers that they get of a ranking, by changes in the compiled
program, and by ports (`steps.c`). Hosts and plans stay as they are.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from bench.ladder.rungs import Limit
from echelon.model.jobs.graph import FlowKey
from echelon.model.p4program import P4Program, constants
from echelon.planning.plan import Plan
from echelon.planning.rankings.attained import Attained
from echelon.planning.rankings.base import Execution, HostOrder, Ranking, ToNumber
from echelon.planning.rankings.deadline import Deadline, Relative
from echelon.planning.rankings.in_switches import TICKS, RankingAction, SwitchNumbers, shifted
from echelon.planning.rankings.window import Window
from echelon.switches.lowering.capabilities import Capabilities, OuterQueues
from echelon.switches.lowering.identity import Identity, SegmentIdentity
from echelon.switches.targets.softswitch import Softswitch, SoftswitchOptions

_SIZES = constants("tna")
_KEY_BITS = _SIZES["LEVEL_KEY_BITS"]
_OUTER = OuterQueues(
    depth_packets=700,
    frame_bytes=1514,
    rate_error_percent=2,
    delay_us=1000,
)
"""The queues as the target `tofino` has them, but each with a hold time of its own."""


# -- rankings --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Coarse:
    """A ranking of which switches get another one than hosts. It is not for the fluid engine."""

    exact: Ranking
    coarse: Ranking

    @property
    def queues(self) -> range:
        return self.exact.queues

    def action(self, switch: SwitchNumbers) -> RankingAction:
        return self.coarse.action(switch)

    def at_host(self) -> HostOrder:
        return self.exact.at_host()

    @staticmethod
    def execution(number: ToNumber) -> Execution[Any]:
        raise NotImplementedError


def in_switches(ranking: Ranking) -> Ranking:
    """Return the ranking that switches get."""
    if isinstance(ranking, Coarse):
        return ranking.coarse
    return ranking


def limited_plan(plan: Plan, limits: Collection[Limit]) -> Plan:
    """Return a plan as switches with these limits get it."""
    rankings = {}
    for key, ranking in plan.ranking.items():
        coarse = _coarse(ranking, limits)
        if coarse != ranking:
            rankings[key] = Coarse(ranking, coarse)
    return plan.with_rankings(rankings)


def _coarse(ranking: Ranking, limits: Collection[Limit]) -> Ranking:
    match ranking:
        case Deadline(relative=Relative() as relative) if "units" in limits:
            relative = _in_power_of_two(relative)
            return replace(ranking, relative=relative)
        case Deadline(relative=None) if "keys" in limits:
            thresholds_s = _whole_thresholds_s(ranking.thresholds_s)
            return replace(ranking, thresholds_s=thresholds_s)
        case Attained() if "keys" in limits:
            thresholds_bytes = tuple(map(_whole_bytes, ranking.thresholds_bytes))
            return replace(ranking, thresholds_bytes=thresholds_bytes)
        case Window() if "keys" in limits:
            return _whole_window(ranking)
        case _:
            return ranking


def _in_power_of_two(relative: Relative) -> Relative:
    """Return a ranking whose unit of ranks is a power of two of ticks.

    What is compared with ranks keeps its time, and no longer its part of the unit.
    """
    parts = _SIZES["RANK_UNIT"]
    ticks = TICKS.exactly(relative.unit_s) / parts
    exponent = round(math.log2(ticks))
    unit_ticks = parts * Fraction(2) ** exponent
    unit_s = unit_ticks * TICKS.nanoseconds / 1_000_000_000
    factor = relative.unit_s / unit_s
    steps = tuple(step * factor for step in relative.steps)
    return replace(
        relative,
        unit_s=unit_s,
        head_start=relative.head_start * factor,
        apart=relative.apart * factor,
        steps=steps,
    )


def _whole_thresholds_s(thresholds_s: Sequence[Fraction]) -> tuple[Fraction, ...]:
    counts = map(TICKS.count, thresholds_s)
    largest = max(counts, default=0)
    right = _shift(largest, _KEY_BITS - 1)
    return tuple(_whole_s(seconds, right) for seconds in thresholds_s)


def _whole_window(window: Window) -> Window:
    right = _shift(TICKS.count(window.period_s), _KEY_BITS)

    def whole_s(time_s: Fraction) -> Fraction:
        # Keys count what is left of the period.
        left_s = _whole_s(window.period_s - time_s, right)
        return max(window.period_s - left_s, Fraction(0))

    begin_s = whole_s(window.begin_s)
    end_s = whole_s(window.end_s)
    return replace(window, begin_s=begin_s, end_s=end_s)


def _shift(largest: int, bits: int) -> int:
    """Return the bits by which times in ticks are shifted to fit a key."""
    surplus = largest.bit_length() - bits
    return max(0, surplus)


def _whole_s(seconds: Fraction, right: int) -> Fraction:
    """Return the time at which a key of shifted ticks changes."""
    count = TICKS.count(seconds)
    ticks = shifted(count, right) << right
    return Fraction(ticks * TICKS.nanoseconds, 1_000_000_000)


def _whole_bytes(threshold_bytes: int) -> int:
    bits = _SIZES["ATTAINED_SHIFT"]
    units = shifted(threshold_bytes, bits)
    return units << bits


# -- switches --------------------------------------------------------------------------------------


class LimitedSwitch(Softswitch):
    """The embedded switch with these limits."""

    def __init__(self, limits: Collection[Limit]) -> None:
        self._limits = limits

    def capabilities(self, options: SoftswitchOptions) -> Capabilities:
        able = super().capabilities(options)
        if "streams" in self._limits:
            able = replace(able, max_pairs=0)
        if "hold" in self._limits:
            able = replace(able, max_pairs=0, outer_queues=_OUTER)
        if "left" in self._limits:
            able = replace(able, left_by_position=False)
        return able

    def program(self, options: SoftswitchOptions | None = None) -> P4Program:
        compiled = super().program(options)
        changing = frozenset(filter(_changes, self._limits))
        if not changing:
            return compiled
        changed = _changed(compiled.binary, changing)
        return replace(compiled, binary=changed)


Node = dict[str, Any]
"""An object of BMv2's JSON."""
Change = Callable[[Node], Node]
"""Returns what becomes of an object."""
_ARRIVED = '"ingress_global_timestamp"'
_LEAVES = '"egress_global_timestamp"'
_LATENESS = re.compile(r"\blate\b")


def _late_on_arrival(node: Node) -> Node:
    """Let a flow's lateness be that with which its last packet arrives."""
    source = node.get("source_info", {})
    fragment = source.get("source_fragment", "")
    if not _LATENESS.search(fragment):
        return node
    text = json.dumps(node)
    changed: Node = json.loads(text.replace(_LEAVES, _ARRIVED))
    return changed


def _assigning(
    name: str,
    value: str,
    actions: str = "",
) -> Change:
    """Return a change by which actions whose names end so set a field to a constant."""
    field = ["scalars", f"metadata_t.{name}"]
    target = {"type": "field", "value": field}

    def change(node: Node) -> Node:
        primitives = node.get("primitives", ())
        if not primitives or not node["name"].endswith(actions):
            return node
        for primitive in primitives:
            parameters = primitive["parameters"]
            if primitive["op"] == "assign" and parameters[0] == target:
                parameters[1] = {"type": "hexstr", "value": value}
        return node

    return change


def _changes(limit: Limit) -> Sequence[Change]:
    """Return what a limit changes in the compiled program."""
    match limit:
        case "late":
            return [_late_on_arrival]
        case "expiry":
            return [_assigning("rank_holds_us", "0xffffffff")]
        case "last":
            return [_assigning("last", "0x00", "set_segment")]
        case "sequence":
            # Queue pairs keep the numbers of their packets.
            alone = _assigning("in_sequence", "0x00", "set_connection")
            shared = _assigning("in_sequence", "0x00", "set_one_of")
            return [alone, shared]
        case "gaps":
            return [_assigning("whole_bytes", "0x00000000")]
        case _:
            return []


@cache
def _changed(binary: Path, limits: frozenset[Limit]) -> Path:
    """Return the file of a program with these limits."""
    changes: list[Change] = []
    for limit in limits:
        changes += _changes(limit)

    def changed(node: Node) -> Node:
        for change in changes:
            node = change(node)
        return node

    text = binary.read_text(encoding="utf-8")
    program = json.loads(text, object_hook=changed)
    name = "-".join(sorted(limits))
    folder = Path(_scratch().name)
    file = folder / f"{name}.json"
    file.write_text(json.dumps(program), encoding="utf-8")
    return file


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="ladder-")


# -- whom limits concern ---------------------------------------------------------------------------


def concerned(
    plan: Plan,
    identities: Mapping[FlowKey, Identity],
    limits: Collection[Limit],
) -> bool:
    """Return whether any flow of a plan can be treated otherwise with these limits.

    Where switches recognise ranked flows by their bytes, ports do not give others a queue by steps:
    the program for v1model would go wrong about who has left.
    """
    concerning: set[Limit] = set()
    for key, ranking in plan.ranking.items():
        identity = identities[key]
        is_by_bytes = isinstance(identity, SegmentIdentity)
        if _is_relative(ranking) and is_by_bytes and "steps" in limits:
            return False
        concerning |= _of_ranking(ranking, is_by_bytes=is_by_bytes)
        if isinstance(identity, SegmentIdentity):
            concerning |= _of_recognition(identity)
    return not concerning.isdisjoint(limits)


def _is_relative(ranking: Ranking) -> bool:
    return isinstance(ranking, Deadline) and ranking.relative is not None


def _of_ranking(ranking: Ranking, *, is_by_bytes: bool) -> set[Limit]:
    """Return the limits that concern a flow of this ranking."""
    if _is_relative(ranking):
        if is_by_bytes:
            return {"units", "late", "left", "last"}
        # The ports of the ladder know flows by their shim.
        return {"units", "late", "streams", "steps", "top", "alone"}
    if isinstance(ranking, Attained):
        return {"hold", "keys"}
    if isinstance(ranking, Deadline | Window):
        if is_by_bytes:
            return {"hold", "keys"}
        # Nobody else than senders with the shim understands DRAIN.
        return {"hold", "keys", "expiry"}
    return set()


def _of_recognition(identity: SegmentIdentity) -> set[Limit]:
    limits: set[Limit] = set()
    if identity.protocol == "tcp":
        limits.add("sequence")
    if identity.by_bytes:
        limits.add("gaps")
    return limits
