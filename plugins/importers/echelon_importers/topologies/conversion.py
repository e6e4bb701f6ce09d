"""The conversion of a topology of another tool to a fabric file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from echelon.model.documents import MAX_DOCUMENT_BYTES, NAME, parse_document
from echelon.model.fabric.load import MAX_HOSTS, FabricSpec, fabric_text, rate_words
from echelon.model.quantities import duration_text, rate_text
from echelon_importers.importer import Source
from echelon_importers.topologies.network import (
    MOST_BPS,
    Network,
    completed,
    connected,
    forwarding,
    joined,
)
from echelon_importers.topologies.topology import make_topology
from echelon_importers.workload import ReadCounts

_LONGEST_NAME = 32


@dataclass(frozen=True, slots=True)
class ImportedFabric:
    """A fabric file, the fabric in it, and what was read, derived and ignored."""

    text: str
    spec: FabricSpec
    tally: ReadCounts


def import_fabric(
    kind: str,
    source: Source,
    name: str,
    settings: Mapping[str, object],
) -> ImportedFabric:
    """Return the fabric in a file of that kind.

    `settings` are the options of the kind, as values of YAML. Raises `DocumentError`.
    """
    topology = make_topology(kind, settings)
    options = topology.options
    network = topology.read(source)
    _check_counts(network, source)
    # Only what is imported has to be complete, and only complete links can be added up.
    network = connected(network, source, options.part)
    network = completed(network, source, options.rate, options.delay)
    network = joined(forwarding(network))
    _check_rates(network, source)
    network = _renamed(network)

    # What remains is a check of the importer itself, and of limits such as the ports of a switch.
    document = _document(network, name)
    spec = parse_document(FabricSpec, document, source.name)
    tally = network.tally
    about = [f"Imported from {source.name} ({kind})."]
    about += [f"{note[:1].upper()}{note[1:]}." for note in tally.notes]
    text = fabric_text(spec, " ".join(about))
    if len(text) > MAX_DOCUMENT_BYTES:
        reason = f"makes a fabric file of more than {MAX_DOCUMENT_BYTES >> 20} MiB (import a part)"
        raise source.refusal(reason, code="too-large")
    return ImportedFabric(text, spec, tally)


def _check_counts(network: Network, source: Source) -> None:
    hosts = len(network.hosts)
    links = len(network.wires)
    if hosts < 2 or not links:
        reason = f"has {hosts} hosts and {links} links (a fabric has two hosts or more)"
        raise source.refusal(reason, code="wrong-length")
    if hosts > MAX_HOSTS:
        reason = f"has {hosts} hosts (a fabric has at most {MAX_HOSTS})"
        raise source.refusal(reason, code="too-large")


def _check_rates(network: Network, source: Source) -> None:
    for wire in network.wires:
        rate_bps = wire.rate_bps or 0
        if rate_bps > MOST_BPS:
            fault = f"links '{wire.a}' and '{wire.b}' with {rate_words(rate_bps)}"
            if wire.b == f"{wire.a}-sw":
                # The link is ours (`forwarding`), so the file does not have its name.
                fault = f"has links of {rate_words(rate_bps)} in all at '{wire.a}'"
            reason = (
                f"{fault}, but a fabric's links"
                f" have at most {rate_words(MOST_BPS)} (import a part, or give a lower --rate or a"
                " higher --set oversubscription, if the kind has them)"
            )
            raise source.refusal(reason, code="too-large")


def _document(network: Network, name: str) -> Mapping[str, object]:
    links = []
    for wire in network.wires:
        link: dict[str, object] = {"between": [wire.a, wire.b]}
        link["rate"] = rate_text(wire.rate_bps or 0)
        if wire.delay_s:
            link["delay"] = duration_text(wire.delay_s)
        links.append(link)
    return {
        "fabric": name,
        "hosts": list(network.hosts),
        "switches": list(network.switches),
        "links": links,
    }


def _renamed(network: Network) -> Network:
    """Return the network with names that a fabric file may have."""
    nodes = (*network.hosts, *network.switches)
    names = fitted(nodes)
    changed = [node for node in nodes if names[node] != node]
    if not changed:
        return network
    first = changed[0]
    tally = network.tally
    tally.derived["names fitted to those of a fabric"] += len(changed)
    tally.notes.append(f"{first} is called {names[first]}")
    wires = []
    for wire in network.wires:
        wires.append(replace(wire, a=names[wire.a], b=names[wire.b]))
    hosts = tuple(names[host] for host in network.hosts)
    switches = tuple(names[switch] for switch in network.switches)
    return Network(hosts, switches, tuple(wires), tally)


def fitted(words: Iterable[str]) -> dict[str, str]:
    """Return, by word, a name of a fabric file (32 letters, digits, '-', '_'; a letter first).

    Words that are names stay; others are changed as little as keeps them apart.
    """
    words = list(words)
    names = {word: word for word in words if NAME.fullmatch(word)}
    taken = set(names)
    for word in words:
        if word in names:
            continue
        letters = re.sub(r"[^A-Za-z0-9_-]+", "-", word)
        letters = letters.strip("-")
        if not letters[:1].isalpha():
            letters = f"n{letters}"
        names[word] = _free_name(letters, taken)
        taken.add(names[word])
    return names


def _free_name(letters: str, taken: Collection[str]) -> str:
    name = letters[:_LONGEST_NAME]
    number = 1
    while name in taken:
        number += 1
        ending = f"-{number}"
        length = _LONGEST_NAME - len(ending)
        name = letters[:length] + ending
    return name
