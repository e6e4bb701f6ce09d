"""Reading a fat tree of htsim, and checking that its numbers fit each other.

```
Nodes 8
Tiers 3
Podsize 4                     hosts of a pod

Tier 0                        0: switches of hosts, 1: of a pod, 2: the core
Downlink_speed_Gbps 200       of the links downwards
Radix_Down 2                  ports downwards
Radix_Up 2                    ports upwards
Downlink_Latency_ns 1000      of the links downwards
Oversubscribed 1              bit/s downwards for each upwards (default: 1)
Bundle 1                      parallel links downwards to the same switch (default: 1)
```

Source: csg-htsim, `load` and `set_custom_params` in fat_tree_topology.cpp. Where that computes
numbers of switches from rates, this computes them from ports and then checks rates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon.model.documents import suggestion
from echelon.model.fabric.load import MAX_HOSTS
from echelon_importers.importer import Source
from echelon_importers.workload import ReadCounts

_HEADER = ("nodes", "tiers", "podsize")
_TIER = (
    "downlink_speed_gbps",
    "radix_down",
    "radix_up",
    "downlink_latency_ns",
    "oversubscribed",
    "bundle",
    "switch_latency_ns",
    "queue_down",
    "queue_up",
)
_IGNORED = ("switch_latency_ns", "queue_down", "queue_up")
_NEEDED = ("downlink_speed_gbps", "radix_down", "downlink_latency_ns")


@dataclass(frozen=True, slots=True)
class Tier:
    """The switches of one tier, and their links downwards."""

    number: int
    speed_gbps: int
    radix_down: int
    radix_up: int
    delay_s: Fraction
    oversubscribed: int
    bundle: int


@dataclass(frozen=True, slots=True)
class FatTree:
    """The fat tree in a file."""

    tiers: Sequence[Tier]
    hosts: int
    pods: int
    tors: int
    """The lowest switches of a pod."""
    aggs: int
    """The switches of a pod above those; of two tiers, there is one pod."""
    rows: int = 0
    """The core switches that each switch of a pod is linked to; of two tiers, none."""


def read_tree(source: Source, tally: ReadCounts) -> FatTree:
    """Return the fat tree in a file. Raises `DocumentError`."""
    header, sections = _sections(source, tally)
    count = header["tiers"]
    if count not in (2, 3):
        raise source.refusal(f"has {count} tiers (htsim has 2 or 3)", code="out-of-range")
    tiers = [_tier(source, sections, number, count) for number in range(count)]
    tree = _tree(source, header, tiers)
    _check_tier(source, tiers[0], tiers[1], tree.tors)
    if count == 3:
        _check_tier(source, tiers[1], tiers[2], tree.pods)
    return tree


def _sections(
    source: Source,
    tally: ReadCounts,
) -> tuple[dict[str, int], dict[int, dict[str, int]]]:
    """Return the keys of the header, and those of each tier."""
    header: dict[str, int] = {}
    sections: dict[int, dict[str, int]] = {}
    section = header
    for line, text in source.lines():
        words = text.split()
        name = words[0]
        key = name.lower()
        if name.startswith("#"):
            continue
        if len(words) < 2:
            raise source.fault(line, f"'{name}' has no value", "write one behind it")
        value = source.integer(line, words[1], "a number", 10**9)
        if key == "tier":
            section = sections.setdefault(value, {})
            continue
        keys = _HEADER if section is header else _TIER
        if key not in keys:
            raise source.fault(line, f"'{name}' is not a key of this part", suggestion(key, keys))
        if key in section:
            raise source.fault(line, f"gives {name} again", "give it once")
        section[key] = value
        if key in _IGNORED and value:
            tally.ignored[f"{name} of a tier"] += 1
    for key in _HEADER:
        if not header.get(key):
            name = key.capitalize()
            reason = f"has no {name} (write {name} and a number before the first Tier)"
            raise source.refusal(reason, code="missing-key")
    return header, sections


def _tier(
    source: Source,
    sections: Mapping[int, Mapping[str, int]],
    number: int,
    count: int,
) -> Tier:
    keys = sections.get(number)
    if keys is None:
        reason = f"has no Tier {number} (a file of {count} tiers has tiers 0 to {count - 1})"
        raise source.refusal(reason, code="missing-key")
    needed = list(_NEEDED)
    if number < count - 1:
        needed.append("radix_up")
    for key in needed:
        if not keys.get(key):
            reason = f"Tier {number} has no {key.capitalize()} (write it)"
            raise source.refusal(reason, code="missing-key")
    bundle = keys.get("bundle", 1)
    if not bundle:
        raise source.refusal(f"Tier {number} has Bundle 0 (write 1 or more)", code="too-small")
    return Tier(
        number=number,
        speed_gbps=keys["downlink_speed_gbps"],
        radix_down=keys["radix_down"],
        radix_up=keys.get("radix_up", 0),
        delay_s=Fraction(keys["downlink_latency_ns"], 10**9),
        oversubscribed=keys.get("oversubscribed", 1),
        bundle=bundle,
    )


def _tree(
    source: Source,
    header: Mapping[str, int],
    tiers: Sequence[Tier],
) -> FatTree:
    hosts = header["nodes"]
    podsize = header["podsize"]
    lowest, middle = tiers[:2]
    if hosts > MAX_HOSTS:
        reason = f"has {hosts} hosts (a fabric has at most {MAX_HOSTS})"
        raise source.refusal(reason, code="too-large")
    pods, hosts_left = divmod(hosts, podsize)
    tors, ports_left = divmod(podsize, lowest.radix_down)
    if hosts_left or ports_left or lowest.bundle != 1:
        reason = (
            f"has {hosts} hosts in pods of {podsize} at switches of {lowest.radix_down} ports down"
            " (each has to be a multiple of the next, and Bundle of Tier 0 has to be 1)"
        )
        raise source.refusal(reason, code="wrong-length")
    aggs = lowest.radix_up // middle.bundle
    if len(tiers) == 3:
        rows = middle.radix_up // tiers[2].bundle
        return FatTree(tiers, hosts, pods, tors, aggs, rows)
    if pods > 1:
        reason = f"has {pods} pods, but the higher of 2 tiers joins one (write Podsize {hosts})"
        raise source.refusal(reason)
    return FatTree(tiers, hosts, pods, tors, aggs)


def _check_tier(
    source: Source,
    tier: Tier,
    upper: Tier,
    below: int,
) -> None:
    """Check ports and rates between a tier and the next, whose switches have links to `below`."""
    if tier.radix_up % upper.bundle or upper.radix_down != below * upper.bundle:
        reason = (
            f"Tier {upper.number} has {upper.radix_down} ports down, but {below} switches or pods"
            f" below with {upper.bundle} links each (correct Radix_Down or Bundle)"
        )
        raise source.refusal(reason, code="wrong-length")
    down_gbps = tier.radix_down * tier.speed_gbps
    up_gbps = tier.radix_up * upper.speed_gbps
    if down_gbps != up_gbps * tier.oversubscribed:
        reason = (
            f"Tier {tier.number} has {down_gbps} Gbit/s down and {up_gbps} up, but is"
            f" oversubscribed {tier.oversubscribed} to 1 (correct Oversubscribed, a radix or a"
            " speed)"
        )
        raise source.refusal(reason, code="conflicting-key")
