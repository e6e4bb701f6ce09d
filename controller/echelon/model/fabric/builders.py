"""Fabrics by their published names, from a few numbers.

Rates are in bits per second, delays in seconds. Every function raises `ValueError`, with a message
of one line, if its numbers do not describe a fabric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, pairwise, product
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


def one_tor(
    servers: int = 4,
    rate_bps: int = LINK_BPS,
    delay_s: Fraction = DELAY_S,
) -> FabricSpec:
    """Return hosts h1, h2... at one top-of-rack switch."""
    _check(2, servers=servers)
    hosts = _names("h", servers)
    links = _all_links(hosts, ["tor"], rate_bps)
    return _fabric(f"one_tor_{servers}", hosts, ["tor"], links, delay_s)


def thesis_a(rate_bps: int = 250_000_000, delay_s: Fraction = DELAY_S) -> FabricSpec:
    """Return configuration A of Salamy: four servers at one switch (thesis, MIT 2022, Fig. 3-1a).

    Its servers S0 to S3 are h1 to h4. h1 sends cross traffic besides its part of the ring, and the
    bottleneck is the outbound queue of its NIC. A server contains no P4 switch, so that queue is
    modelled as the switch `nic0` between h1 and the top-of-rack switch. h1's own link to it is four
    times as fast (the NICs of the thesis could do 100 Gbit/s and were limited to 25), so that
    nothing waits in front of it.
    """
    servers = _names("h", 4)
    links = [("h1", "nic0", 4 * rate_bps)]
    links += _all_links(["nic0", *servers[1:]], ["tor"], rate_bps)
    return _fabric("thesis_a", servers, ["nic0", "tor"], links, delay_s)


def thesis_b(rate_bps: int = 250_000_000, delay_s: Fraction = DELAY_S) -> FabricSpec:
    """Return configuration B of the same thesis (Fig. 3-1b): the ring is h1, h2 and h4.

    Cross traffic goes from h3 to h1. The bottleneck is the port of the top-of-rack switch to h1.
    """
    servers = _names("h", 4)
    links = _all_links(servers, ["tor"], rate_bps)
    return _fabric("thesis_b", servers, ["tor"], links, delay_s)


def dumbbell(
    pairs: int,
    rate_bps: int = LINK_BPS,
    nic_bps: int = NIC_BPS,
    delay_s: Fraction = DELAY_S,
) -> FabricSpec:
    """Return hosts a1, a2... at one switch and b1, b2... at another.

    The link between the switches, of `rate_bps`, is the bottleneck.
    """
    _check(1, pairs=pairs)
    left = _names("a", pairs)
    right = _names("b", pairs)
    links = [("s1", "s2", rate_bps)]
    links += _all_links(left, ["s1"], nic_bps)
    links += _all_links(right, ["s2"], nic_bps)
    return _fabric(f"dumbbell_{pairs}", [*left, *right], ["s1", "s2"], links, delay_s)


def line(
    switches: int,
    rate_bps: int = LINK_BPS,
    nic_bps: int = NIC_BPS,
    delay_s: Fraction = DELAY_S,
) -> FabricSpec:
    """Return switches s1, s2... in a line, with a host at each.

    The links between switches, of `rate_bps`, are the bottlenecks.
    """
    _check(2, switches=switches)
    hosts = _names("h", switches)
    switch_names = _names("s", switches)
    links = _host_links(hosts, switch_names, nic_bps)
    links += [(a, b, rate_bps) for a, b in pairwise(switch_names)]
    return _fabric(f"line_{switches}", hosts, switch_names, links, delay_s)


def leaf_spine(
    leaves: int,
    spines: int,
    hosts_per_leaf: int = 4,
    oversubscription: Fraction | int = 1,
    rate_bps: int = LINK_BPS,
    delay_s: Fraction = DELAY_S,
) -> FabricSpec:
    """Return two stages of switches: every leaf has a link to every spine.

    Hosts h1, h2... are listed leaf by leaf.

    Hosts have links of `rate_bps`. `oversubscription` is what the hosts of a leaf can send, divided
    by what its uplinks carry.
    """
    _check(
        1,
        leaves=leaves,
        spines=spines,
        hosts_per_leaf=hosts_per_leaf,
    )
    uplink_bps = _uplink_bps(hosts_per_leaf * rate_bps, spines, oversubscription)
    leaf_names = _names("leaf", leaves)
    spine_names = _names("spine", spines)
    _check_size(leaves * hosts_per_leaf, leaves * (spines + hosts_per_leaf))
    hosts = _names("h", leaves * hosts_per_leaf)
    links = _all_links(leaf_names, spine_names, uplink_bps)
    links += _host_links(hosts, leaf_names, rate_bps)
    name = f"leaf_spine_{leaves}_{spines}_{hosts_per_leaf}"
    return _fabric(name, hosts, [*leaf_names, *spine_names], links, delay_s)


def fat_tree(
    k: int = 4,
    rate_bps: int = LINK_BPS,
    delay_s: Fraction = DELAY_S,
) -> FabricSpec:
    """Return a fat-tree.

    Source: Al-Fares, Loukissas and Vahdat, A Scalable, Commodity Data Center Network Architecture,
    SIGCOMM '08, section 3.

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
            edge = f"edge{pod}-{switch}"
            for identity in range(2, 2 + half):
                host = f"h{len(hosts) + 1}"
                hosts[host] = f"10.{pod}.{switch}.{identity}"
                down.append((host, edge, rate_bps))
        for row, column in product(rows, rows):
            edge = f"edge{pod}-{row}"
            down.append((edge, f"agg{pod}-{column}", rate_bps))
            aggregation = f"agg{pod}-{row}"
            up.append((aggregation, f"core{row}-{column}", rate_bps))
    switches = [f"edge{pod}-{switch}" for pod, switch in product(pods, rows)]
    switches += [f"agg{pod}-{switch}" for pod, switch in product(pods, rows)]
    switches += [f"core{row}-{column}" for row, column in product(rows, rows)]
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
    """Return a folded Clos network of three stages.

    It has pods of leaves and spines, and a plane of cores for each spine of a pod (A. Andreyev,
    Introducing data center fabric, Facebook, 2014).

    Spine n of every pod has a link to every core of plane n, of which there are as many as spines
    in a pod. `oversubscription` is that of the leaves; the uplinks of a spine carry what its leaves
    can send to it.
    """
    _check(
        1,
        pods=pods,
        leaves=leaves,
        spines=spines,
        hosts_per_leaf=hosts_per_leaf,
    )
    uplink_bps = _uplink_bps(hosts_per_leaf * rate_bps, spines, oversubscription)
    core_bps = _uplink_bps(leaves * uplink_bps, spines, 1)
    hosts = _names("h", pods * leaves * hosts_per_leaf)
    _check_size(len(hosts), len(hosts) + pods * spines * (leaves + spines))
    leaf_names: list[str] = []
    spine_names: list[str] = []
    cores: list[str] = []
    leaf_links: list[Link] = []
    core_links: list[Link] = []
    for plane in range(1, spines + 1):
        cores += _names(f"core{plane}-", spines)
    for pod in range(1, pods + 1):
        pod_leaves = _names(f"leaf{pod}-", leaves)
        leaf_names += pod_leaves
        for plane, spine in enumerate(_names(f"spine{pod}-", spines), start=1):
            spine_names.append(spine)
            leaf_links += _all_links(pod_leaves, [spine], uplink_bps)
            core_links += _all_links([spine], _names(f"core{plane}-", spines), core_bps)
    links = [*_host_links(hosts, leaf_names, rate_bps), *leaf_links, *core_links]
    name = f"clos_{pods}_{leaves}_{spines}_{hosts_per_leaf}"
    return _fabric(name, hosts, [*leaf_names, *spine_names, *cores], links, delay_s)


def dragonfly(
    groups: int = 5,
    switches: int = 4,
    hosts_per_switch: int = 2,
    rate_bps: int = LINK_BPS,
    delay_s: Fraction = DELAY_S,
) -> FabricSpec:
    """Return a dragonfly.

    Source: J. Kim et al., Technology-Driven, Highly-Scalable Dragonfly Topology, ISCA '08, section
    3.

    The switches of a group are linked to each other, and one link leads from each group to each
    other one. A group's switches have these in turn. All links have the same rate. Switch 2 of
    group 1 is `s1-2`.
    """
    _check(2, groups=groups)
    _check(
        1,
        switches=switches,
        hosts_per_switch=hosts_per_switch,
    )
    pairs = list(combinations(range(groups), 2))
    count = groups * switches * hosts_per_switch
    links_inside = switches * (switches - 1) // 2
    _check_size(count, count + len(pairs) + groups * links_inside)
    names = [_names(f"s{group}-", switches) for group in range(1, groups + 1)]
    hosts = _names("h", count)
    switch_names = [name for group in names for name in group]
    links = _host_links(hosts, switch_names, rate_bps)
    for group in names:
        links += [(a, b, rate_bps) for a, b in combinations(group, 2)]
    # Link number n of a group leads to the group n places after it, and arrives there as the link
    # that leads back.
    for a, b in pairs:
        forward = (b - a - 1) % switches
        backward = (groups - b + a - 1) % switches
        links.append((names[a][forward], names[b][backward], rate_bps))
    name = f"dragonfly_{groups}_{switches}_{hosts_per_switch}"
    return _fabric(name, hosts, switch_names, links, delay_s)


def torus(
    sides: Sequence[int] = (4, 4),
    hosts_per_switch: int = 1,
    rate_bps: int = LINK_BPS,
    delay_s: Fraction = DELAY_S,
) -> FabricSpec:
    """Return a torus of so many switches along each side.

    Each has a link to both neighbours of each dimension.

    All links have the same rate. A side of two has one link between its ends, not two. The switch
    at 1, 2 is `s1-2`.
    """
    for side in sides:
        _check(1, side=side)
    count = prod(sides) * hosts_per_switch
    _check_size(count, count + prod(sides) * len(sides))
    places = list(product(*map(range, sides)))
    hosts = _names("h", count)
    switches = [_switch_name(place) for place in places]
    links = _host_links(hosts, switches, rate_bps)
    for place in places:
        for axis, side in enumerate(sides):
            following = list(place)
            following[axis] = (place[axis] + 1) % side
            if side > 2 or following[axis] > place[axis]:
                links.append((_switch_name(place), _switch_name(following), rate_bps))
    name = f"torus_{'_'.join(map(str, sides))}_{hosts_per_switch}"
    return _fabric(name, hosts, switches, links, delay_s)


def _switch_name(place: Sequence[int]) -> str:
    return f"s{'-'.join(map(str, place))}"


def rail_optimised(
    servers: int,
    rails: int,
    spines: int = 1,
    oversubscription: Fraction | int = 1,
    rate_bps: int = LINK_BPS,
    delay_s: Fraction = DELAY_S,
) -> FabricSpec:
    """Return a rail-optimised fabric: the NICs of one rank in all servers share a switch.

    There is one NIC for each accelerator, so collectives between accelerators of one rank stay
    below their rail (Wang et al., Rail-only, HOTI '24, section 2, describes the usual design).
    Spines link the rails.

    Each NIC is a host of its own here: `n2r1` is the NIC of server 2 at rail 1; `multi_rail` has
    servers as hosts. What the accelerators of one server send to each other directly (NVLink) is
    not part of the fabric.
    """
    _check(
        1,
        servers=servers,
        rails=rails,
        spines=spines,
    )
    uplink_bps = _uplink_bps(servers * rate_bps, spines, oversubscription)
    _check_size(servers * rails, rails * (servers + spines))
    rail_names = _names("rail", rails)
    spine_names = _names("spine", spines)
    links = _all_links(rail_names, spine_names, uplink_bps)
    nics = []
    for server in range(1, servers + 1):
        for number, rail in enumerate(rail_names, start=1):
            nic = f"n{server}r{number}"
            nics.append(nic)
            links.append((nic, rail, rate_bps))
    name = f"rail_optimised_{servers}_{rails}_{spines}"
    return _fabric(name, nics, [*rail_names, *spine_names], links, delay_s)


def multi_rail(
    servers: int,
    rails: int,
    spines: int = 1,
    oversubscription: Fraction | int = 1,
    rate_bps: int = LINK_BPS,
    delay_s: Fraction = DELAY_S,
) -> FabricSpec:
    """Return the same fabric with servers as hosts h1, h2..., each linked to every rail."""
    nics = rail_optimised(servers, rails, spines, oversubscription, rate_bps, delay_s)
    hosts = _names("h", servers)
    host_of = {nic: hosts[index // rails] for index, nic in enumerate(nics.hosts)}
    links = []
    for link in nics.links:
        a, b = link.between
        links.append((host_of.get(a, a), b, link.rate))
    name = f"multi_rail_{servers}_{rails}_{spines}"
    return _fabric(name, hosts, [*nics.switches], links, delay_s)


def _names(prefix: str, count: int) -> list[str]:
    """Return names that count from 1."""
    return [f"{prefix}{number}" for number in range(1, count + 1)]


def _all_links(
    lower: Sequence[str],
    upper: Sequence[str],
    rate_bps: int,
) -> list[Link]:
    """Return a link from each of the lower nodes to each of the upper ones."""
    return [(down, up, rate_bps) for down, up in product(lower, upper)]


def _host_links(
    hosts: Sequence[str],
    switches: Sequence[str],
    rate_bps: int,
) -> list[Link]:
    """Return the links of hosts that are listed switch by switch, equally many at each."""
    per_switch = len(hosts) // len(switches)
    return [(host, switches[index // per_switch], rate_bps) for index, host in enumerate(hosts)]


def _uplink_bps(
    offered_bps: int,
    uplinks: int,
    oversubscription: Fraction | int,
) -> int:
    if oversubscription <= 0:
        raise ValueError(f"oversubscription is {oversubscription} (give more than 0; 1 means none)")
    rate_bps = int(Fraction(offered_bps) / uplinks / Fraction(oversubscription))
    if rate_bps < 1:
        raise ValueError(
            f"oversubscription is {oversubscription}: uplinks would carry less than 1 bit/s"
            " (give less)"
        )
    return rate_bps


def _check(least: int, **numbers: int) -> None:
    """Raise `ValueError` about the first of the numbers that is too small."""
    for name, number in numbers.items():
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
    host_settings: object = list(hosts)
    if isinstance(hosts, Mapping):
        host_settings = {host: {"ipv4": ipv4} for host, ipv4 in hosts.items()}
    delay = duration_text(delay_s)
    link_settings = []
    for a, b, rate_bps in links:
        settings = {"between": [a, b], "rate": rate_text(rate_bps), "delay": delay}
        link_settings.append(settings)
    document = {
        "fabric": name,
        "hosts": host_settings,
        "switches": list(switches),
        "links": link_settings,
    }
    try:
        return parse_document(FabricSpec, document, name)
    except DocumentError as error:
        raise ValueError(str(error)) from None
