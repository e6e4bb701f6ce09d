"""Fabrics by their published names, from a few numbers.

Rates are in bits per second, delays in seconds. Every function raises `ValueError`, with a message
of one line, if its numbers do not describe a fabric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import prod

from echelon.model.documents import DocumentError, parse_document
from echelon.model.fabric.load import MAX_HOSTS, FabricSpec
from echelon.model.quantities import duration_text, rate_text

LINK_BPS = 10_000_000
"""A rate that several software switches on one machine carry in real time without effort."""
NIC_BPS = 1_000_000_000
"""The rate of links that are not a bottleneck."""
DELAY_S = Fraction(1, 10**6)

_MAX_LINKS = 200_000

Link = tuple[str, str, int]
"""Two nodes and the rate of the link between them, bits per second."""


def one_tor(servers: int = 4, rate_bps: int = LINK_BPS, delay_s: Fraction = DELAY_S) -> FabricSpec:
    """Return servers s0, s1... at one top-of-rack switch."""
    _check(servers=(servers, 2))
    hosts = [f"s{n}" for n in range(servers)]
    return _fabric(
        f"one_tor_{servers}", hosts, ["tor"], [(host, "tor", rate_bps) for host in hosts], delay_s
    )


def thesis_a(rate_bps: int = 250_000_000, delay_s: Fraction = DELAY_S) -> FabricSpec:
    """Return configuration A of Salamy (SM thesis, MIT 2022, Fig. 3-1a): four servers at one
    switch.

    S0 sends cross traffic besides its part of the ring, and the bottleneck is the outbound queue of
    its NIC. A server contains no P4 switch, so that queue is modelled as the switch `nic0` between
    S0 and the top-of-rack switch. S0's own link to it is four times as fast (the NICs of the thesis
    could do 100 Gbit/s and were limited to 25), so that nothing waits in front of it.
    """
    servers = [f"s{n}" for n in range(4)]
    links = [
        ("s0", "nic0", 4 * rate_bps),
        ("nic0", "tor", rate_bps),
        *((server, "tor", rate_bps) for server in servers[1:]),
    ]
    return _fabric("thesis_a", servers, ["nic0", "tor"], links, delay_s)


def thesis_b(rate_bps: int = 250_000_000, delay_s: Fraction = DELAY_S) -> FabricSpec:
    """Return configuration B of the same thesis (Fig. 3-1b): the ring is S0, S1 and S3.

    Cross traffic goes from S2 to S0. The bottleneck is the port of the top-of-rack switch to S0.
    """
    servers = [f"s{n}" for n in range(4)]
    return _fabric(
        "thesis_b", servers, ["tor"], [(server, "tor", rate_bps) for server in servers], delay_s
    )


def dumbbell(
    pairs: int, rate_bps: int = LINK_BPS, nic_bps: int = NIC_BPS, delay_s: Fraction = DELAY_S
) -> FabricSpec:
    """Return hosts a1, a2... at one switch and b1, b2... at another.

    The link between the switches, of `rate_bps`, is the bottleneck.
    """
    _check(pairs=(pairs, 1))
    sides = {
        "s1": [f"a{n}" for n in range(1, pairs + 1)],
        "s2": [f"b{n}" for n in range(1, pairs + 1)],
    }
    links = [
        ("s1", "s2", rate_bps),
        *((host, switch, nic_bps) for switch, hosts in sides.items() for host in hosts),
    ]
    return _fabric(f"dumbbell_{pairs}", [*sides["s1"], *sides["s2"]], list(sides), links, delay_s)


def line(
    switches: int, rate_bps: int = LINK_BPS, nic_bps: int = NIC_BPS, delay_s: Fraction = DELAY_S
) -> FabricSpec:
    """Return switches s1, s2... in a line, with a host at each.

    The links between switches, of `rate_bps`, are the bottlenecks.
    """
    _check(switches=(switches, 2))
    numbers = range(1, switches + 1)
    links = [(f"h{n}", f"s{n}", nic_bps) for n in numbers]
    links += [(f"s{n}", f"s{n + 1}", rate_bps) for n in numbers[:-1]]
    return _fabric(
        f"line_{switches}", [f"h{n}" for n in numbers], [f"s{n}" for n in numbers], links, delay_s
    )


def leaf_spine(
    leaves: int,
    spines: int,
    hosts_per_leaf: int = 4,
    oversubscription: Fraction | int = 1,
    rate_bps: int = LINK_BPS,
    delay_s: Fraction = DELAY_S,
) -> FabricSpec:
    """Return two stages of switches: every leaf has a link to every spine. Hosts h1, h2... are
    listed leaf by leaf.

    Hosts have links of `rate_bps`. `oversubscription` is what the hosts of a leaf can send, divided
    by what its uplinks carry.
    """
    _check(leaves=(leaves, 1), spines=(spines, 1), hosts_per_leaf=(hosts_per_leaf, 1))
    uplink_bps = _uplink_bps(hosts_per_leaf * rate_bps, spines, oversubscription)
    leaf_names = [f"leaf{n}" for n in range(1, leaves + 1)]
    spine_names = [f"spine{n}" for n in range(1, spines + 1)]
    _check_size(leaves * hosts_per_leaf, leaves * (spines + hosts_per_leaf))
    hosts = [f"h{n}" for n in range(1, leaves * hosts_per_leaf + 1)]
    links = [(leaf, spine, uplink_bps) for leaf in leaf_names for spine in spine_names]
    links += [
        (host, leaf_names[index // hosts_per_leaf], rate_bps) for index, host in enumerate(hosts)
    ]
    name = f"leaf_spine_{leaves}_{spines}_{hosts_per_leaf}"
    return _fabric(name, hosts, [*leaf_names, *spine_names], links, delay_s)


def fat_tree(k: int = 4, rate_bps: int = LINK_BPS, delay_s: Fraction = DELAY_S) -> FabricSpec:
    """Return a fat-tree (Al-Fares, Loukissas and Vahdat, A Scalable, Commodity Data Center Network
    Architecture, SIGCOMM '08, section 3).

    It has k pods of k/2 edge and k/2 aggregation switches with k ports, (k/2)^2 core switches, and
    k^3/4 hosts. All links have the same rate, so that no stage is a bottleneck. Hosts have the
    paper's addresses: 10.POD.SWITCH.ID, with IDs from 2. Switches are named edgePOD-SWITCH,
    aggPOD-SWITCH and coreROW-COLUMN. The first ports of an edge switch lead to its hosts, those of
    an aggregation switch to its pod.
    """
    if k < 2 or k % 2:
        raise ValueError(
            f"k is {k}: the switches of a fat-tree have an even number of ports (give 2, 4, 6...)"
        )
    half = k // 2
    _check_size(k * half * half, 3 * k * half * half)
    pods = range(k)
    rows = range(half)
    hosts: dict[str, str] = {}
    down: list[Link] = []
    up: list[Link] = []
    for pod in pods:
        for switch in rows:
            for identity in range(2, 2 + half):
                host = f"h{len(hosts) + 1}"
                hosts[host] = f"10.{pod}.{switch}.{identity}"
                down.append((host, f"edge{pod}-{switch}", rate_bps))
        down += [
            (f"edge{pod}-{edge}", f"agg{pod}-{agg}", rate_bps) for edge in rows for agg in rows
        ]
        up += [
            (f"agg{pod}-{row}", f"core{row}-{column}", rate_bps) for row in rows for column in rows
        ]
    switches = [
        *(f"{stage}{pod}-{switch}" for stage in ("edge", "agg") for pod in pods for switch in rows),
        *(f"core{row}-{column}" for row in rows for column in rows),
    ]
    return _fabric(f"fat_tree_{k}", hosts, switches, [*down, *up], delay_s)


def clos(
    pods: int = 2,
    leaves: int = 2,
    spines: int = 2,
    hosts_per_leaf: int = 4,
    oversubscription: Fraction | int = 1,
    rate_bps: int = LINK_BPS,
    delay_s: Fraction = DELAY_S,
) -> FabricSpec:
    """Return a folded Clos network of three stages: pods of leaves and spines, and a plane of cores
    for each spine of a pod (A. Andreyev, Introducing data center fabric, Facebook, 2014).

    Spine n of every pod has a link to every core of plane n, of which there are as many as spines
    in a pod. `oversubscription` is that of the leaves; the uplinks of a spine carry what its leaves
    can send to it.
    """
    _check(
        pods=(pods, 1), leaves=(leaves, 1), spines=(spines, 1), hosts_per_leaf=(hosts_per_leaf, 1)
    )
    uplink_bps = _uplink_bps(hosts_per_leaf * rate_bps, spines, oversubscription)
    core_bps = _uplink_bps(leaves * uplink_bps, spines, 1)
    hosts = [f"h{n}" for n in range(1, pods * leaves * hosts_per_leaf + 1)]
    _check_size(len(hosts), len(hosts) + pods * spines * (leaves + spines))
    leaf_names = [f"leaf{pod}-{n}" for pod in range(1, pods + 1) for n in range(1, leaves + 1)]
    cores = [f"core{plane}-{n}" for plane in range(1, spines + 1) for n in range(1, spines + 1)]
    numbers = [(pod, n) for pod in range(1, pods + 1) for n in range(1, spines + 1)]
    links = [
        (host, leaf_names[place // hosts_per_leaf], rate_bps) for place, host in enumerate(hosts)
    ]
    links += [
        (f"leaf{pod}-{leaf}", f"spine{pod}-{n}", uplink_bps)
        for pod, n in numbers
        for leaf in range(1, leaves + 1)
    ]
    links += [
        (f"spine{pod}-{n}", f"core{n}-{core}", core_bps)
        for pod, n in numbers
        for core in range(1, spines + 1)
    ]
    switches = [*leaf_names, *(f"spine{pod}-{n}" for pod, n in numbers), *cores]
    return _fabric(
        f"clos_{pods}_{leaves}_{spines}_{hosts_per_leaf}", hosts, switches, links, delay_s
    )


def dragonfly(
    groups: int = 5,
    switches: int = 4,
    hosts_per_switch: int = 2,
    rate_bps: int = LINK_BPS,
    delay_s: Fraction = DELAY_S,
) -> FabricSpec:
    """Return a dragonfly (J. Kim et al., Technology-Driven, Highly-Scalable Dragonfly Topology,
    ISCA '08, section 3).

    The switches of a group are linked to each other, and one link leads from each group to each
    other one. A group's switches have these in turn. All links have the same rate. Switch 2 of
    group 1 is `s1-2`.
    """
    _check(groups=(groups, 2), switches=(switches, 1), hosts_per_switch=(hosts_per_switch, 1))
    pairs = [(a, b) for a in range(groups) for b in range(a + 1, groups)]
    count = groups * switches * hosts_per_switch
    _check_size(count, count + len(pairs) + groups * switches * (switches - 1) // 2)
    names = [[f"s{group}-{n}" for n in range(1, switches + 1)] for group in range(1, groups + 1)]
    flat = [name for group in names for name in group]
    links = [(f"h{n + 1}", flat[n // hosts_per_switch], rate_bps) for n in range(count)]
    links += [
        (a, b, rate_bps) for group in names for at, a in enumerate(group) for b in group[at + 1 :]
    ]
    # Link number n of a group leads to the group n places after it, and arrives there as the link
    # that leads back.
    links += [
        (names[a][(b - a - 1) % switches], names[b][(groups - b + a - 1) % switches], rate_bps)
        for a, b in pairs
    ]
    hosts = [f"h{n + 1}" for n in range(count)]
    return _fabric(f"dragonfly_{groups}_{switches}_{hosts_per_switch}", hosts, flat, links, delay_s)


def torus(
    sides: Sequence[int] = (4, 4),
    hosts_per_switch: int = 1,
    rate_bps: int = LINK_BPS,
    delay_s: Fraction = DELAY_S,
) -> FabricSpec:
    """Return a torus of so many switches along each side: each has a link to both neighbours of
    each dimension.

    All links have the same rate. A side of two has one link between its ends, not two. The switch
    at 1, 2 is `s1-2`.
    """
    for side in sides:
        _check(side=(side, 1))
    count = prod(sides) * hosts_per_switch
    _check_size(count, count + prod(sides) * len(sides))
    places = list(product(*map(range, sides)))
    links = [
        (f"h{n * hosts_per_switch + k + 1}", _at(place), rate_bps)
        for n, place in enumerate(places)
        for k in range(hosts_per_switch)
    ]
    for place in places:
        for axis, side in enumerate(sides):
            following = (*place[:axis], (place[axis] + 1) % side, *place[axis + 1 :])
            if side > 2 or following > place:
                links.append((_at(place), _at(following), rate_bps))
    name = f"torus_{'_'.join(map(str, sides))}_{hosts_per_switch}"
    return _fabric(
        name, [f"h{n + 1}" for n in range(count)], [_at(place) for place in places], links, delay_s
    )


def _at(place: Sequence[int]) -> str:
    return f"s{'-'.join(map(str, place))}"


def rail_optimised(
    servers: int,
    rails: int,
    spines: int = 1,
    oversubscription: Fraction | int = 1,
    rate_bps: int = LINK_BPS,
    delay_s: Fraction = DELAY_S,
) -> FabricSpec:
    """Return a rail-optimised fabric: the NICs of one rank in all servers share one switch, their
    rail.

    There is one NIC for each accelerator, so collectives between accelerators of one rank stay
    below their rail (Wang et al., Rail-only, HOTI '24, section 2, describes the usual design).
    Spines link the rails.

    Each NIC is a host of its own here: `n2r1` is the NIC of server 2 at rail 1; `multi_rail` has
    servers as hosts. What the accelerators of one server send to each other directly (NVLink) is
    not part of the fabric.
    """
    _check(servers=(servers, 1), rails=(rails, 1), spines=(spines, 1))
    uplink_bps = _uplink_bps(servers * rate_bps, spines, oversubscription)
    _check_size(servers * rails, rails * (servers + spines))
    rail_names = [f"rail{n}" for n in range(1, rails + 1)]
    spine_names = [f"spine{n}" for n in range(1, spines + 1)]
    nics = [
        (f"n{server}r{rail}", f"rail{rail}")
        for server in range(1, servers + 1)
        for rail in range(1, rails + 1)
    ]
    links = [(rail, spine, uplink_bps) for rail in rail_names for spine in spine_names]
    links += [(nic, rail, rate_bps) for nic, rail in nics]
    name = f"rail_optimised_{servers}_{rails}_{spines}"
    return _fabric(name, [nic for nic, _ in nics], [*rail_names, *spine_names], links, delay_s)


def multi_rail(
    servers: int,
    rails: int,
    spines: int = 1,
    oversubscription: Fraction | int = 1,
    rate_bps: int = LINK_BPS,
    delay_s: Fraction = DELAY_S,
) -> FabricSpec:
    """Return the same fabric with servers as hosts h1, h2..., each of which has a link to every
    rail.
    """
    nics = rail_optimised(servers, rails, spines, oversubscription, rate_bps, delay_s)
    ends = (link.between for link in nics.links)
    servers_of = {nic: f"h{index // rails + 1}" for index, nic in enumerate(nics.hosts)}
    links = [
        (servers_of.get(a, a), b, link.rate) for link, (a, b) in zip(nics.links, ends, strict=True)
    ]
    hosts = [*dict.fromkeys(servers_of.values())]
    return _fabric(
        f"multi_rail_{servers}_{rails}_{spines}", hosts, [*nics.switches], links, delay_s
    )


def _uplink_bps(offered_bps: int, uplinks: int, oversubscription: Fraction | int) -> int:
    if oversubscription <= 0:
        raise ValueError(f"oversubscription is {oversubscription} (give more than 0; 1 means none)")
    rate_bps = int(Fraction(offered_bps) / uplinks / Fraction(oversubscription))
    if rate_bps < 1:
        raise ValueError(
            f"oversubscription is {oversubscription}: uplinks would carry less than 1 bit/s (give"
            " less)"
        )
    return rate_bps


def _check(**numbers: tuple[int, int]) -> None:
    for name, (number, least) in numbers.items():
        if number < least:
            raise ValueError(
                f"{name.replace('_', ' ')}: {number} is too few (give {least} or more)"
            )


def _check_size(hosts: int, links: int) -> None:
    """Raise `ValueError` if the fabric would be too large, before it is built."""
    if hosts > MAX_HOSTS:
        raise ValueError(f"{hosts} hosts are too many (a fabric has at most {MAX_HOSTS})")
    if links > _MAX_LINKS:
        raise ValueError(f"{links} links are too many (give fewer switches)")


def _fabric(
    name: str,
    hosts: Sequence[str] | Mapping[str, str],
    switches: Sequence[str],
    links: Iterable[Link],
    delay_s: Fraction,
) -> FabricSpec:
    """Return the specification; `hosts` may map names to IPv4 addresses."""
    document = {
        "fabric": name,
        "hosts": (
            {host: {"ipv4": ipv4} for host, ipv4 in hosts.items()}
            if isinstance(hosts, Mapping)
            else list(hosts)
        ),
        "switches": list(switches),
        "links": [
            {"between": [a, b], "rate": rate_text(rate_bps), "delay": duration_text(delay_s)}
            for a, b, rate_bps in links
        ],
    }
    try:
        return parse_document(FabricSpec, document, name)
    except DocumentError as error:
        raise ValueError(str(error)) from None
