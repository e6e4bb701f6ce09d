"""A network as a file of another tool describes it, and the steps from there to a fabric.

A fabric has less than such files may have: its hosts forward nothing and are linked to switches,
two nodes have one link, every link has a rate, and everything is connected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from echelon.model.documents import DocumentError, suggestion
from echelon.model.fabric.load import rate_words
from echelon_importers.importer import Source
from echelon_importers.workload import ReadCounts

MOST_BPS = 10**13
"""The highest rate that `echelon.model.quantities.rate_bps` takes."""


@dataclass(frozen=True, slots=True)
class Wire:
    """A full-duplex link; two nodes may have several."""

    a: str
    b: str
    rate_bps: int | None = None
    """Bits per second in each direction. None: the file does not say."""
    delay_s: Fraction | None = None
    """The propagation delay in seconds. None: the file does not say."""


@dataclass(frozen=True, slots=True)
class Network:
    """Hosts and switches by the names of the file, and what was read, derived and ignored."""

    hosts: tuple[str, ...]
    switches: tuple[str, ...]
    wires: tuple[Wire, ...]
    tally: ReadCounts = field(default_factory=ReadCounts)

    def with_wires(self, wires: Collection[Wire]) -> Network:
        """Return the same nodes with other links."""
        return replace(self, wires=tuple(wires))


def job_options(ranks_per_host: int, local_bps: int) -> str:
    """Return the note on how jobs are imported for hosts of several GPUs."""
    note = f"import jobs for it with --ranks-per-host {ranks_per_host}"
    if 0 < local_bps <= MOST_BPS:
        note += f" --local-bandwidth '{rate_words(local_bps)}'"
    return note


def completed(
    network: Network,
    source: Source,
    rate_bps: int | None,
    delay_s: Fraction | None,
) -> Network:
    """Return the network with rate and delay for links that have none.

    Raises `DocumentError` if a rate is missing, or if what is given is not missing.
    """
    rateless = sum(wire.rate_bps is None for wire in network.wires)
    delayless = sum(wire.delay_s is None for wire in network.wires)
    # A delay has a default in fabric files, a rate has none: no guess of ours could be right.
    if rateless and rate_bps is None:
        links = f"{rateless} of {len(network.wires)} links"
        reason = f"has no rates for {links} (give --rate '100 Gbit/s')"
        raise source.refusal(reason, code="missing-key")
    if rate_bps is not None and not rateless:
        raise _needless(source, "rate")
    if delay_s is not None and not delayless:
        raise _needless(source, "delay")

    derived = network.tally.derived
    derived["rates by --rate"] += rateless
    if delay_s is None:
        delay_s = Fraction(0)
        derived["delays of 0 s (else give --delay)"] += delayless
    else:
        derived["delays by --delay"] += delayless
    wires = []
    for wire in network.wires:
        rate = wire.rate_bps
        if rate is None:
            rate = rate_bps
        delay = wire.delay_s
        if delay is None:
            delay = delay_s
        wires.append(Wire(wire.a, wire.b, rate, delay))
    return network.with_wires(wires)


def _needless(source: Source, quantity: str) -> DocumentError:
    reason = f"{source.name} has the {quantity}s of all links (leave it out)"
    return DocumentError(f"--{quantity}", "", reason, code="conflicting-key")


def forwarding(network: Network, routers: Collection[str] = ()) -> Network:
    """Return the network with a switch for itself alone at each host that forwards.

    Those are `routers` and the hosts that are linked to hosts. The switch takes over the host's
    links, and the host's link to it has their rates in all, so that it never limits them.
    """
    hosts = set(network.hosts)
    forwarders = set(routers)
    for wire in network.wires:
        if wire.a in hosts and wire.b in hosts:
            forwarders.update((wire.a, wire.b))
    if not forwarders:
        return network

    # Packets that only pass a host then stay in its switch, and do not take its link.
    switch_of = {}
    for host in network.hosts:
        if host in forwarders:
            switch_of[host] = f"{host}-sw"
    rates_bps = Counter[str]()
    moved = []
    for wire in network.wires:
        rates_bps[wire.a] += wire.rate_bps or 0
        rates_bps[wire.b] += wire.rate_bps or 0
        a = switch_of.get(wire.a, wire.a)
        b = switch_of.get(wire.b, wire.b)
        moved.append(replace(wire, a=a, b=b))
    inner = []
    for host, switch in switch_of.items():
        inner.append(Wire(host, switch, rates_bps[host], Fraction(0)))

    derived = network.tally.derived
    derived["switches of hosts that forward (a fabric's hosts do not)"] += len(inner)
    switches = (*network.switches, *switch_of.values())
    return replace(network, switches=switches).with_wires([*inner, *moved])


def joined(network: Network) -> Network:
    """Return the network with one link between two nodes: the rate of all, the longest delay."""
    bundles: dict[frozenset[str], list[Wire]] = {}
    for wire in network.wires:
        ends = frozenset((wire.a, wire.b))
        bundles.setdefault(ends, []).append(wire)
    wires = []
    uneven = 0
    for bundle in bundles.values():
        # A fabric has one link between two nodes; what it can carry stays the same.
        rate_bps = sum(wire.rate_bps or 0 for wire in bundle)
        delays_s = {wire.delay_s or Fraction(0) for wire in bundle}
        uneven += len(delays_s) > 1
        wires.append(replace(bundle[0], rate_bps=rate_bps, delay_s=max(delays_s)))
    tally = network.tally
    tally.derived["links joined with a parallel one"] += len(network.wires) - len(wires)
    if uneven:
        tally.notes.append(f"{uneven} bundles of links differ in delay: the longest counts")
    return network.with_wires(wires)


def connected(
    network: Network,
    source: Source,
    part: str | None,
) -> Network:
    """Return what is connected with the node `part`; None: everything has to be.

    Raises `DocumentError`.
    """
    nodes = (*network.hosts, *network.switches)
    first = nodes[0]
    if part is not None:
        first = part
        if part not in nodes:
            reason = f"'{part}' is not a node of {source.name} ({suggestion(part, nodes)})"
            raise DocumentError("--set part", "", reason, code="unknown-node")
    reached = _reached(network, first)
    apart = [node for node in nodes if node not in reached]
    if not apart:
        return network
    if part is None:
        remedy = f"import one part: --set part={first}"
        reason = f"has no way from '{first}' to '{apart[0]}' ({remedy})"
        raise source.refusal(reason, code="unconnected")
    network.tally.ignored[f"nodes without a way to {part}"] += len(apart)
    wires = [wire for wire in network.wires if wire.a in reached]
    hosts = _kept(network.hosts, reached)
    switches = _kept(network.switches, reached)
    return Network(hosts, switches, tuple(wires), network.tally)


def _kept(nodes: Sequence[str], reached: Collection[str]) -> tuple[str, ...]:
    return tuple(node for node in nodes if node in reached)


def _reached(network: Network, first: str) -> set[str]:
    neighbours: dict[str, list[str]] = {}
    for wire in network.wires:
        neighbours.setdefault(wire.a, []).append(wire.b)
        neighbours.setdefault(wire.b, []).append(wire.a)
    reached = {first}
    frontier = [first]
    while frontier:
        node = frontier.pop()
        fresh = set(neighbours.get(node, ())) - reached
        reached |= fresh
        frontier += fresh
    return reached
