"""The queues of one port as an HTB tree behind the switch: settings -> tree -> `tc` commands, and `tc`'s answers back.

Linux's hierarchical token bucket stands where the port's rate is: one class with that rate, under it one class for each
queue, told apart by the upper three bits of DSCP, which the P4 program writes.

=================  ==================================================================================================
level              `prio` 7 - level: the order in which classes lend what the port has left
weight             `quantum`, in frames of the lightest queue of the level: classes of one `prio` share by deficit
                   round robin, and HTB sends whole frames, so a quantum below a frame would not be kept. At most
                   eight frames: with longer turns senders with a window would wait for each other's, and no weight
                   would be kept; queues with less than an eighth of the heaviest one's weight have an eighth
minimum rate       `rate`: sent whatever waits in higher levels
maximum rate       `ceil`; none: the port's rate
depth              the `limit` of a `pfifo`, in packets
=================  ==================================================================================================

What does not fit HTB, and what comes of it:

* `rate` 0 does not exist: a queue without a minimum has a ten-thousandth of the port, which no level can hold up. What
  it has sent of that it owes: where a starved queue is given a minimum rate, that counts only after the debt is over,
  a frame at the old rate (12 s at 10 Mbit/s, at most a minute). A queue that had a minimum before owes next to nothing.
* `tc` takes a burst as the time that it lasts at the class's rate, at most 274 s, and prints rates with four digits or
  more: rates are rounded down to what it prints, an error below 0.1 %.
* Nothing checks that minimum rates fit the port: HTB would exceed the port's rate. `tree_of` refuses that.
* What no filter knows (not IPv4, or IPv4 with options, whose DSCP the P4 program leaves as it came) is queue 0's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from echelon.lowering.intent import QueueSetting

QUEUES = 8
LEVELS = 8
MAX_WEIGHT = 1023
MOST_FRAMES = 8
"""Of the heaviest queue's quantum."""
HANDLE = "ec:"
"""Of the root queueing discipline: what has another one is not ours."""

_ROOT_CLASS = 0x1
_FIRST_LEAF = 0x10
_HEADER_BYTES = 14
_LEAST_SHARE = 10_000
"""A queue without a minimum rate has this part of the port's..."""
_LONGEST_DEBT_S = 60
"""... but no less than a frame in this time, the longest debt that the kernel remembers."""
_BURST_S = 1e-3
"""Longest time for which the kernel may oversleep without losing rate."""

# Class selector in the upper three bits of DSCP, in an IPv4 header without options: the switch has written it.
_FILTER_MASK = 0x0FE00000


def _filter_value(queue: int) -> int:
    return 0x05000000 | queue << 21


_FILTERS: Mapping[int, int] = {queue: _filter_value(queue) for queue in range(1, QUEUES)}


@dataclass(frozen=True, slots=True)
class Port:
    """An egress port, as far as its tree goes."""

    rate_bps: int
    mtu_bytes: int = 1500
    depth_packets: int = 11
    """Of each queue."""

    @property
    def frame_bytes(self) -> int:
        """Largest frame, as HTB counts it: with the Ethernet header, without preamble and checksum."""
        return self.mtu_bytes + _HEADER_BYTES


@dataclass(frozen=True, slots=True)
class Leaf:
    """The class of one queue. Rates in bits per second."""

    rate_bps: int
    ceil_bps: int
    prio: int
    quantum_bytes: int
    limit_packets: int


@dataclass(frozen=True, slots=True)
class Tree:
    rate_bps: int
    leaves: tuple[Leaf, ...]
    """By queue."""


@dataclass(frozen=True, slots=True)
class Root:
    """What an interface has for a root queueing discipline."""

    kind: str
    handle: str
    tree: Tree | None
    """None: it is not ours, or ours and damaged."""

    @property
    def is_default(self) -> bool:
        """Made by the kernel for want of another."""
        return self.handle == "0:"

    @property
    def is_ours(self) -> bool:
        return self.handle == HANDLE and self.kind == "htb"


# --- settings -> tree ----------------------------------------------------------------------------------------------


_PRINTED_UNITS = ((10**12, 10**9), (10**9, 10**6), (10**6, 10**3))
"""(rates from, printed in steps of)"""


def rate_printed(rate_bps: int) -> int:
    """The highest rate up to `rate_bps` that `tc` carries (whole bytes per second) and prints exactly."""
    unit = next((unit for least, unit in _PRINTED_UNITS if rate_bps >= least), 8)
    return rate_bps // unit * unit


def _least_rate(port: Port) -> int:
    frames = -(-8 * port.frame_bytes // _LONGEST_DEBT_S)
    return rate_printed(max(frames, port.rate_bps // _LEAST_SHARE) + 7)


def tree_of(settings: Sequence[QueueSetting], port: Port) -> Tree:
    """The tree that carries `settings` (all queues of a port, in any order). Raises ValueError, whose text says why."""
    by_queue = {setting.queue: setting for setting in settings}
    _check(by_queue, settings, port)
    quanta = _quanta(settings, port.frame_bytes)
    least, most = _least_rate(port), rate_printed(port.rate_bps)
    leaves = []
    for queue in range(QUEUES):
        setting = by_queue[queue]
        maximum = port.rate_bps if setting.max_rate_bps is None else min(setting.max_rate_bps, port.rate_bps)
        leaves.append(
            Leaf(
                rate_bps=max(least, rate_printed(setting.min_rate_bps)),
                ceil_bps=max(least, rate_printed(maximum)),
                prio=LEVELS - 1 - setting.level,
                quantum_bytes=quanta[queue],
                limit_packets=port.depth_packets,
            )
        )
    return Tree(most, tuple(leaves))


def _quanta(settings: Sequence[QueueSetting], frame_bytes: int) -> dict[int, int]:
    """Bytes, by queue: in proportion to the weights of a level, from one frame to `MOST_FRAMES`."""
    out: dict[int, int] = {}
    for level in {setting.level for setting in settings}:
        weights = {setting.queue: setting.weight for setting in settings if setting.level == level}
        lightest, heaviest = min(weights.values()), max(weights.values())
        if heaviest > MOST_FRAMES * lightest:
            # Weights that a tree can be read back as.
            lightest = MAX_WEIGHT // MOST_FRAMES
            scale = MOST_FRAMES * lightest / heaviest
            weights = {queue: max(lightest, round(weight * scale)) for queue, weight in weights.items()}
        out |= {queue: round(frame_bytes * weight / lightest) for queue, weight in weights.items()}
    return out


def _check(by_queue: Mapping[int, QueueSetting], settings: Sequence[QueueSetting], port: Port) -> None:
    if sorted(by_queue) != list(range(QUEUES)) or len(settings) != QUEUES:
        given = ", ".join(str(setting.queue) for setting in settings) or "none"
        raise ValueError(f"settings of queues 0 to {QUEUES - 1} are wanted, one each; given: {given}")
    if port.rate_bps < QUEUES * _least_rate(port):
        raise ValueError(f"a port of {port.rate_bps} bit/s is too slow: {QUEUES * _least_rate(port)} bit/s at least")
    for queue, setting in by_queue.items():
        if not 0 <= setting.level < LEVELS:
            raise ValueError(f"queue {queue}: level {setting.level} is not in 0..{LEVELS - 1}")
        if not 1 <= setting.weight <= MAX_WEIGHT:
            raise ValueError(f"queue {queue}: weight {setting.weight} is not in 1..{MAX_WEIGHT}")
        if setting.max_rate_bps is not None and setting.max_rate_bps < max(setting.min_rate_bps, 1):
            raise ValueError(
                f"queue {queue}: maximum rate {setting.max_rate_bps} bit/s is below the minimum, "
                f"{setting.min_rate_bps} bit/s"
            )
    total = sum(setting.min_rate_bps for setting in settings)
    if total > port.rate_bps:
        raise ValueError(f"minimum rates add up to {total} bit/s, more than the port's {port.rate_bps}")


def settings_of(tree: Tree, number: int, port: Port) -> tuple[QueueSetting, ...] | None:
    """Settings of port `number` that `tree` carries; None: there are none, so somebody else has changed the tree.

    Where several settings make the same tree, these have the smallest weights and no needless minimum or maximum.
    """
    least, most = _least_rate(port), rate_printed(port.rate_bps)
    weights = _weights([(leaf.prio, leaf.quantum_bytes) for leaf in tree.leaves], port.frame_bytes)
    settings = tuple(
        QueueSetting(
            number,
            queue,
            level=LEVELS - 1 - leaf.prio,
            weight=weights[queue],
            min_rate_bps=0 if leaf.rate_bps == least else leaf.rate_bps,
            max_rate_bps=None if leaf.ceil_bps == most else leaf.ceil_bps,
        )
        for queue, leaf in enumerate(tree.leaves)
    )
    try:
        return settings if tree_of(settings, port) == tree else None
    except ValueError:
        return None


def _weights(quanta: Sequence[tuple[int, int]], frame_bytes: int) -> list[int]:
    """Smallest weights, by queue, of the (prio, quantum) pairs: the lightest of a level has a quantum of one frame."""
    out = [1] * len(quanta)
    for prio in {prio for prio, _ in quanta}:
        members = [queue for queue, (other, _) in enumerate(quanta) if other == prio]
        for unit in range(1, MAX_WEIGHT + 1):
            weights = {queue: round(unit * quanta[queue][1] / frame_bytes) for queue in members}
            if all(round(frame_bytes * weights[queue] / unit) == quanta[queue][1] for queue in members):
                out = [weights.get(queue, weight) for queue, weight in enumerate(out)]
                break
    return out


# --- tree -> commands ----------------------------------------------------------------------------------------------


def build(interface: str, tree: Tree, port: Port, *, over: Root) -> list[str]:
    """`tc -batch` lines that put the tree in the place of `over`.

    For the milliseconds until the classes are there packets pass unshaped; what waited in the old tree is lost.
    """
    lines = [] if over.is_default else [f"qdisc del dev {interface} root"]
    default = f"default {_FIRST_LEAF:x} direct_qlen {port.depth_packets}"
    lines.append(f"qdisc add dev {interface} root handle {HANDLE} htb {default}")
    lines.append(f"class add {_root_class(interface, tree, port)}")
    for queue, leaf in enumerate(tree.leaves):
        lines.append(f"class add {_leaf_class(interface, queue, leaf, port)}")
        lines.append(f"qdisc add {_leaf_queue(interface, queue, leaf)}")
    for queue, value in _FILTERS.items():
        lines.append(
            f"filter add dev {interface} parent {HANDLE} protocol ip pref 1 u32 "
            f"match u32 {value:#010x} {_FILTER_MASK:#010x} at 0 flowid {HANDLE}{_FIRST_LEAF + queue:x}"
        )
    return lines


def change(interface: str, held: Tree, wanted: Tree, port: Port) -> list[str]:
    """`tc -batch` lines from one tree of ours to another: classes change where they are, with what waits in them."""
    lines = []
    if held.rate_bps != wanted.rate_bps:
        lines.append(f"class change {_root_class(interface, wanted, port)}")
    for queue, (before, after) in enumerate(zip(held.leaves, wanted.leaves, strict=True)):
        if before.limit_packets != after.limit_packets:
            lines.append(f"qdisc change {_leaf_queue(interface, queue, after)}")
        if _classless(before) != _classless(after):
            lines.append(f"class change {_leaf_class(interface, queue, after, port)}")
    return lines


def _classless(leaf: Leaf) -> tuple[int, ...]:
    return leaf.rate_bps, leaf.ceil_bps, leaf.prio, leaf.quantum_bytes


def _root_class(interface: str, tree: Tree, port: Port) -> str:
    burst = _burst(tree.rate_bps, 2 * port.frame_bytes)
    rate = f"rate {tree.rate_bps}bit ceil {tree.rate_bps}bit burst {burst} cburst {burst}"
    return f"dev {interface} parent {HANDLE} classid {HANDLE}{_ROOT_CLASS:x} htb {rate}"


def _leaf_class(interface: str, queue: int, leaf: Leaf, port: Port) -> str:
    burst, cburst = _burst(leaf.rate_bps, port.frame_bytes), _burst(leaf.ceil_bps, port.frame_bytes)
    return (
        f"dev {interface} parent {HANDLE}{_ROOT_CLASS:x} classid {HANDLE}{_FIRST_LEAF + queue:x} htb "
        f"rate {leaf.rate_bps}bit ceil {leaf.ceil_bps}bit burst {burst} cburst {cburst} "
        f"prio {leaf.prio} quantum {leaf.quantum_bytes}"
    )


def _burst(rate_bps: int, least_bytes: int) -> int:
    return max(least_bytes, round(rate_bps / 8 * _BURST_S))


def _leaf_queue(interface: str, queue: int, leaf: Leaf) -> str:
    leaf_class = f"{HANDLE}{_FIRST_LEAF + queue:x}"
    return f"dev {interface} parent {leaf_class} handle {_leaf_handle(queue)} pfifo limit {leaf.limit_packets}"


def _leaf_handle(queue: int) -> str:
    return f"{HANDLE.rstrip(':')}{_FIRST_LEAF + queue:x}:"


# --- answers -> tree -----------------------------------------------------------------------------------------------


def show(interface: str) -> list[str]:
    """`tc -d -batch` lines whose answers `parse` reads."""
    return [f"{what} show dev {interface}" for what in ("qdisc", "class", "filter")]


_QDISC = re.compile(r"qdisc (?P<kind>\S+) (?P<handle>[0-9a-f]+:) (?:(?P<root>root)|parent (?P<parent>\S+))(?P<rest>.*)")
_CLASS = re.compile(
    rf"class htb {HANDLE}(?P<minor>[0-9a-f]+) (?:(?P<root>root)|parent {HANDLE}{_ROOT_CLASS:x} leaf (?P<leaf>\S+)) "
    r"(?:prio (?P<prio>\d+) )?(?:quantum (?P<quantum>\d+) )?rate (?P<rate>\w+) ceil (?P<ceil>\w+) "
)
_FLOW = re.compile(rf"flowid {HANDLE}([0-9a-f]+)")
_MATCH = re.compile(r"\s*match ([0-9a-f]+)/([0-9a-f]+) at (\d+)")
_DEFAULT = f"default 0x{_FIRST_LEAF:x} "
_UNITS = {"bit": 1, "Kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12}
_RATE = re.compile(r"(\d+)([KMGT]?bit)")


class _DamagedError(Exception):
    """The tree is not as `build` makes it."""


def parse(answers: str) -> Root:
    """What `tc` says of one interface. Raises ValueError where it says nothing of a root queueing discipline."""
    lines = answers.splitlines()
    qdiscs = [found for line in lines if (found := _QDISC.match(line))]
    root = next((found for found in qdiscs if found["root"]), None)
    if root is None:
        raise ValueError(f"tc shows no root queueing discipline: {answers[:200]!r}")
    bare = Root(root["kind"], root["handle"], None)
    if not bare.is_ours:
        return bare
    try:
        if _DEFAULT not in root["rest"]:
            raise _DamagedError
        return replace(bare, tree=_tree(lines, qdiscs))
    except _DamagedError:
        return bare


def _tree(lines: Sequence[str], qdiscs: Sequence[re.Match[str]]) -> Tree:
    limits = {
        found["handle"]: int(limit[1])
        for found in qdiscs
        if found["kind"] == "pfifo" and (limit := re.search(r"limit (\d+)p", found["rest"]))
    }
    rate_bps = 0
    leaves: dict[int, Leaf] = {}
    for line in lines:
        if not line.startswith("class "):
            continue
        found = _CLASS.match(line)
        if found is None:
            raise _DamagedError
        rate, ceil = _rate(found["rate"]), _rate(found["ceil"])
        if found["root"]:
            if rate != ceil or int(found["minor"], 16) != _ROOT_CLASS:
                raise _DamagedError
            rate_bps = rate
            continue
        queue = int(found["minor"], 16) - _FIRST_LEAF
        if found["leaf"] != _leaf_handle(queue) or found["leaf"] not in limits or not found["quantum"]:
            raise _DamagedError
        leaves[queue] = Leaf(rate, ceil, int(found["prio"]), int(found["quantum"]), limits[found["leaf"]])
    if not rate_bps or sorted(leaves) != list(range(QUEUES)) or Counter(_filters(lines)) != _WANTED_FILTERS:
        raise _DamagedError
    return Tree(rate_bps, tuple(leaves[queue] for queue in range(QUEUES)))


_WANTED_FILTERS = Counter((queue, value, _FILTER_MASK, 0) for queue, value in _FILTERS.items())


def _filters(lines: Iterable[str]) -> Iterator[tuple[int, int, int, int]]:
    """(queue, value, mask, offset) of each match."""
    queue = -1
    for line in lines:
        if line.startswith("filter "):
            flow = _FLOW.search(line)
            queue = int(flow[1], 16) - _FIRST_LEAF if flow else -1
        elif match := _MATCH.match(line):
            yield queue, int(match[1], 16), int(match[2], 16), int(match[3])


def _rate(text: str) -> int:
    found = _RATE.fullmatch(text)
    if found is None:
        raise _DamagedError
    return int(found[1]) * _UNITS[found[2]]
