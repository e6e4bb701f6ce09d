"""The programs and traffic of the benchmark: a plain router, and Echelon's own program under a plan
of its policy.

Both send everything that comes in at one port out of one other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import IPv4Address
from itertools import cycle, islice, pairwise
from operator import itemgetter
from pathlib import Path

from bench.laboratory import (
    HEADER_BYTES,
    SHIM_AT,
    UNSTAMPED,
    DataSegment,
    FlowAddress,
    Scenario,
    ShimFrames,
    headers,
    internet_checksum,
    load_scenario,
)
from echelon.model.jobs.graph import FlowKey
from echelon.model.p4program import P4Program, program
from echelon.planning.policies import make_policy
from echelon.switches.lowering.identity import ShimIdentity, number_shims
from echelon.switches.lowering.intent import ActionCall, Intent, Part, Prefix, TableEntry
from echelon.switches.lowering.lower import lower
from echelon.switches.targets.softswitch.capabilities import softswitch

from .generator import Cycle

CYCLE_FRAMES = 4096
"""Frames sent before they repeat: an iteration of the jobs."""
_SCENARIO = Path(__file__).parents[2] / "topologies" / "scenarios" / "mix_mixed6.yaml"
_PROGRAMS = Path(__file__).parents[1] / "programs"
_IPV4 = slice(14, 34)
_TOS_AT = 15
_TTL_AT = 22
_DESTINATION = slice(30, 34)


Faults = Callable[[bytes, bytes], list[str]]
"""The function that takes a frame as it came and as it left, and returns what is wrong with the
latter.
"""


@dataclass(frozen=True, slots=True)
class Workload:
    """A program, its entries, and traffic for it from `ingress_port` to `egress_port`."""

    name: str
    program: P4Program
    intent: Intent
    ingress_port: int
    egress_port: int
    make_cycle: Callable[[int], Cycle]
    """frames of so many bytes"""
    faults: Faults


# -- the plain router ------------------------------------------------------------------------------

INGRESS_PORT = 0
EGRESS_PORT = 1
_NEXT_HOPS = 16
_ROUTES = 64
_ROUTER_FLOWS = 256
_DISCARD = 9  # RFC 863
_SOURCE_MAC = "02:00:00:00:01:00"
_HOST_MAC = "02:00:00:00:00:01"
_ROUTER_MAC = "02:00:00:00:00:fe"


def _next_hop_mac(number: int) -> int:
    return 0x02_00_00_00_02_00 + number


def router_program() -> P4Program:
    """Return the benchmark's router, as p4c compiled it."""
    return P4Program("router", _PROGRAMS / "router.p4info.txtpb", _PROGRAMS / "router.json")


def _call(name: str, **arguments: int) -> tuple[ActionCall, ...]:
    return (ActionCall(name, tuple(arguments.items())),)


def _router_entries() -> Iterator[TableEntry]:
    """Yield a table of routes of four lengths, and 16 next hops behind one port."""
    set_source = _call("set_source", src_mac=_mac_int(_SOURCE_MAC))
    yield TableEntry("source_mac", (("port", EGRESS_PORT),), set_source)
    for number in range(_NEXT_HOPS):
        call = _call(
            "send",
            port=EGRESS_PORT,
            dst_mac=_next_hop_mac(number),
        )
        yield TableEntry("next_hop", (("next_hop", number),), call)
    for index in range(_ROUTES):
        network = 10 << 24 | index << 16
        yield _route(Prefix(network, 16), index)
        yield _route(Prefix(network | 1 << 8, 24), index + 1)
        yield _route(Prefix(network | 2 << 8 | 1, 32), index + 2)
    yield _route(Prefix(0, 0), 0)


def _route(prefix: Prefix, hop: int) -> TableEntry:
    call = _call("set_next_hop", next_hop=hop % _NEXT_HOPS)
    return TableEntry("ipv4_lpm", (("dst", prefix),), call)


def _router_destination(flow: int) -> tuple[str, int]:
    """Return the address of a flow, and its next hop: by each kind of route in turn."""
    index = flow % _ROUTES
    kind = flow // _ROUTES % 4
    if kind == 3:
        return f"192.0.2.{index}", 0
    return f"10.{index}.{kind}.1", (index + kind) % _NEXT_HOPS


def class_frame(
    flow: int,
    frame_bytes: int,
    class_selector: int,
) -> bytes:
    """Return a frame of one of the router's flows, in a queue of its own choice."""
    destination, _ = _router_destination(flow)
    address = FlowAddress(_HOST_MAC, _ROUTER_MAC, "198.51.100.1", destination, 4000 + flow)
    head = bytearray(headers(address, frame_bytes, _DISCARD))
    head[_TOS_AT] = class_selector << 5
    # A checksum is that of the header with zeros in its place.
    head[24:26] = bytes(2)
    checksum = internet_checksum(bytes(head[_IPV4]))
    head[24:26] = checksum.to_bytes(2, "big")
    return bytes(head) + bytes(frame_bytes - len(head))


def _router_cycle(frame_bytes: int) -> Cycle:
    frames = [class_frame(flow, frame_bytes, 0) for flow in range(_ROUTER_FLOWS)]
    return Cycle(tuple(islice(cycle(frames), CYCLE_FRAMES)))


def _router_faults() -> Faults:
    source = _mac_int(_SOURCE_MAC).to_bytes(6, "big")
    macs = {}
    for flow in range(_ROUTER_FLOWS):
        destination, hop = _router_destination(flow)
        next_hop = _next_hop_mac(hop).to_bytes(6, "big")
        macs[IPv4Address(destination).packed] = next_hop + source

    def faults(came: bytes, left: bytes) -> list[str]:
        broken = _ipv4_faults(came, left)
        if broken:
            return broken
        if left[:12] != macs[came[_DESTINATION]]:
            broken.append("MAC addresses")
        if left[_TOS_AT] != came[_TOS_AT]:
            broken.append("DSCP")
        if left[34:] != came[34:]:
            broken.append("payload")
        return broken

    return faults


def router() -> Workload:
    """Return a workload from longest prefix to next hop to port, 256 flows over 193 routes."""
    intent = Intent("router", (Part("router", tuple(_router_entries())),))
    return Workload(
        "router",
        router_program(),
        intent,
        INGRESS_PORT,
        EGRESS_PORT,
        _router_cycle,
        _router_faults(),
    )


# -- Echelon's own program -------------------------------------------------------------------------


def echelon() -> Workload:
    """Return a workload of six jobs, ranked by deadline, across the bottleneck of a dumbbell.

    Its entries are the plan of the policy `echelon`, lowered.
    """
    scenario = load_scenario(_SCENARIO)
    plan = make_policy("echelon").plan(scenario.jobs, scenario.fabric)
    identities = number_shims(scenario.jobs)
    intent = lower(plan, scenario.fabric, identities, softswitch())["s1"]
    # Queues are as the switch starts: 8 strict levels, which every target has.
    intent = replace(intent, queues=())
    crossing = []
    for planned in plan.flows:
        if ("s1", "s2") in pairwise(planned.path):
            crossing.append((planned.job, planned.flow))
    port_to = scenario.fabric.port_to
    return Workload(
        "echelon",
        program(),
        intent,
        port_to["s1", "a1"],
        port_to["s1", "s2"],
        partial(_iteration, scenario, identities, crossing),
        _echelon_faults(scenario),
    )


def _iteration(
    scenario: Scenario,
    identities: dict[FlowKey, ShimIdentity],
    crossing: list[FlowKey],
    frame_bytes: int,
) -> Cycle:
    """Return one iteration of every job: a job's flows one after another, jobs side by side, shares
    by their sizes in bytes.
    """
    hosts = scenario.fabric.hosts
    flows = {}
    for job in scenario.jobs:
        for flow in job.flows:
            flows[job.name, flow.name] = flow
    total_bytes = sum(flows[key].size_bytes for key in crossing)
    moments: list[tuple[float, bytes]] = []
    for job in scenario.jobs:
        mine = [key for key in crossing if key[0] == job.name]
        counts = []
        for key in mine:
            share = CYCLE_FRAMES * flows[key].size_bytes // total_bytes
            counts.append(max(1, share))
        job_frames = sum(counts)
        sent = 0
        for key, count in zip(mine, counts, strict=True):
            flow = flows[key]
            identity = identities[key]
            source = hosts[flow.src]
            destination = hosts[flow.dst]
            address = FlowAddress(
                source.mac,
                _ROUTER_MAC,
                source.ipv4,
                destination.ipv4,
                4000,
                identity.job,
                identity.flow,
            )
            frames = ShimFrames(address, 0, max(frame_bytes, HEADER_BYTES + 1))
            for left in range(count, 0, -1):
                segment = DataSegment(left * frame_bytes, frame_bytes, last=left == 1)
                moment = sent / job_frames
                moments.append((moment, frames.data(segment)))
                sent += 1
    moments.sort(key=itemgetter(0))
    in_order = [frame for _, frame in moments]
    # A whole number of bursts; what is missing are packets of the iteration's last flows again.
    whole_cycle = islice(cycle(in_order), CYCLE_FRAMES)
    return Cycle(tuple(whole_cycle), epoch_at=SHIM_AT + 1)


def _echelon_faults(scenario: Scenario) -> Faults:
    macs = {}
    for host in scenario.fabric.hosts.values():
        address = IPv4Address(host.ipv4)
        macs[address.packed] = _mac_int(host.mac).to_bytes(6, "big")

    def faults(came: bytes, left: bytes) -> list[str]:
        broken = _ipv4_faults(came, left)
        if broken:
            return broken
        # The switch may ask for a drained window in the shim's flags, and write the age and the
        # memory of the job into the stamp; everything else behind IPv4 stays.
        may_change = {SHIM_AT, *range(HEADER_BYTES - len(UNSTAMPED), HEADER_BYTES)}
        changed = []
        for index in range(34, len(came)):
            if came[index] != left[index] and index not in may_change:
                changed.append(index)
        if left[:6] != macs[came[_DESTINATION]]:
            broken.append("destination MAC")
        if changed:
            broken.append(f"bytes {changed}")
        return broken

    return faults


# -- both ------------------------------------------------------------------------------------------


def _mac_int(text: str) -> int:
    return int(text.replace(":", ""), 16)


def _ipv4_faults(came: bytes, left: bytes) -> list[str]:
    """Return the ways in which a frame breaks the rules for every router: RFC 1812, section
    5.2.1.
    """
    if len(came) != len(left):
        return [f"{len(left)} bytes"]
    faults = []
    if left[_TTL_AT] != came[_TTL_AT] - 1:
        faults.append("time to live")
    if internet_checksum(left[_IPV4]):
        faults.append("checksum")
    if left[12:14] != came[12:14]:
        faults.append("ether type")
    if left[26:34] != came[26:34]:
        faults.append("addresses")
    return faults
