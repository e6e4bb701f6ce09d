"""Topologies of ns-3's simulators of RDMA: HPCC, ASTRA-sim's ns-3 back end, SimAI.

```
7 3 6                        nodes, switches, links
4 5 6                        the nodes that are switches
4 0 400Gbps 0.005ms 0        two nodes, rate, delay, probability that a packet is lost
```

SimAI's first line is ``nodes gpus_per_server nvswitches switches links gpu_type``. Its second has
NVSwitches first; the nodes that are no switches are GPUs, server by server, as SimAI's
gen_Topo_Template.py writes them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from echelon.model.documents import DocumentError
from echelon.model.foreign import ForeignKind
from echelon_importers.importer import Source
from echelon_importers.topologies.network import Network, Wire, job_options
from echelon_importers.topologies.ns3_file import NodeWire, Ns3File, read_file
from echelon_importers.topologies.topology import Topology, TopologyOptions
from echelon_importers.workload import ReadCounts

_HEADER = rb"\s*\d+[ \t]+\d+[ \t]+\d+(?:[ \t]+\d+[ \t]+\d+(?:[ \t]+\S+)?)?[ \t]*\r?\n"
_RATE = rb"[\d.]+[kKMGT]?i?(?:bps|b/s|Bps|B/s)"
_LINK = rb"(?m)^[ \t]*\d+[ \t]+\d+[ \t]+" + _RATE + rb"[ \t]+[\d.]+[a-z]*[ \t]"


def _recognises(head: bytes) -> bool:
    has_header = re.match(_HEADER, head)
    return has_header is not None and re.search(_LINK, head) is not None


KIND = ForeignKind(
    "an ns-3 topology",
    "echelon import ns3 FILE -o fabric.yaml",
    _recognises,
    ("ns3",),
)


class Ns3Options(TopologyOptions):
    """Options of an ns-3 topology."""

    gpus: Literal["joined", "hosts"] = "joined"
    """What becomes of the GPUs of a server that has NVSwitches.

    `joined`: the server is a host with the links of all its GPUs, and NVSwitches are left out.
    `hosts`: each GPU is a host, and each NVSwitch a switch.
    """


class Ns3Topology(Topology[Ns3Options]):
    """A topology of HPCC, of ASTRA-sim's ns-3 back end, or of SimAI.

    The n-th node that is no switch is host hn; node 320, a switch, is s320. GPUs of a server with
    NVSwitches become one host, as jobs of several ranks per host want it.
    """

    Options = Ns3Options

    def read(self, source: Source) -> Network:
        """Return the network in a file. Raises `DocumentError`."""
        tally = ReadCounts()
        file = read_file(source, tally)
        nodes = "GPUs" if file.nvswitches else "hosts"
        tally.read[nodes] = len(file.hosts)
        tally.read["NVSwitches"] = len(file.nvswitches)
        tally.read["switches"] = len(file.switches)
        tally.read["links"] = len(file.wires)
        has_servers = file.nvswitches and file.header.gpus_per_server > 1
        if has_servers and self.options.gpus == "joined":
            return _network_of_servers(source, file, tally)

        hosts = {node: f"h{number}" for number, node in enumerate(file.hosts, start=1)}
        first = file.hosts[0]
        last = hosts[file.hosts[-1]]
        tally.notes.append(
            f"node {first} is host h1, and so on to {last}; switches keep their numbers"
        )
        if file.nvswitches:
            tally.notes.append(f"NVSwitches are kept, as switches from s{file.nvswitches[0]}")
        switches = [*file.nvswitches, *file.switches]
        return _network(hosts, switches, file.wires, tally)


def _network(
    hosts: Mapping[int, str],
    switches: Sequence[int],
    node_wires: Sequence[NodeWire],
    tally: ReadCounts,
) -> Network:
    """Return the network of hosts, whose names are given by node, and switches."""
    switch_names = {node: f"s{node}" for node in switches}
    names = {**hosts, **switch_names}
    wires = []
    for wire in node_wires:
        a = names[wire.a]
        b = names[wire.b]
        wires.append(Wire(a, b, wire.rate_bps, wire.delay_s))
    host_names = dict.fromkeys(hosts.values())
    return Network(tuple(host_names), tuple(switch_names.values()), tuple(wires), tally)


def _network_of_servers(
    source: Source,
    file: Ns3File,
    tally: ReadCounts,
) -> Network:
    """Return the network of servers, without the NVSwitches inside them.

    Raises `DocumentError` if servers are not what the first line says.
    """
    per_server = file.header.gpus_per_server
    gpus = len(file.hosts)
    servers, rest = divmod(gpus, per_server)
    if rest:
        reason = f"has {gpus} GPUs, not a multiple of {per_server} (correct the first line)"
        raise source.refusal(reason, code="wrong-length")
    server_of = {gpu: index // per_server for index, gpu in enumerate(file.hosts)}
    inside, outside = _divided(file)
    local_bps = _local_rates(source, inside, server_of)

    tally.ignored["NVSwitches inside servers"] = len(file.nvswitches)
    tally.ignored["links to NVSwitches"] = len(inside)
    tally.derived[f"hosts of {per_server} GPUs"] = servers
    first = file.hosts[0]
    last = file.hosts[per_server - 1]
    tally.notes.append(
        f"GPUs {first} to {last} are host h1, and so on (--set gpus=hosts keeps GPUs and"
        " NVSwitches)"
    )
    slowest_bps = min(local_bps.values(), default=0)
    tally.notes.append(job_options(per_server, slowest_bps))
    names = {gpu: f"h{server + 1}" for gpu, server in server_of.items()}
    return _network(names, file.switches, outside, tally)


def _divided(file: Ns3File) -> tuple[list[NodeWire], list[NodeWire]]:
    """Return the links to NVSwitches, with the NVSwitch second, and the others."""
    nvswitches = set(file.nvswitches)
    inside: list[NodeWire] = []
    outside: list[NodeWire] = []
    for wire in file.wires:
        if wire.b in nvswitches:
            inside.append(wire)
        elif wire.a in nvswitches:
            inside.append(replace(wire, a=wire.b, b=wire.a))
        else:
            outside.append(wire)
    return inside, outside


def _local_rates(
    source: Source,
    inside: Sequence[NodeWire],
    server_of: Mapping[int, int],
) -> Mapping[int, int]:
    """Return the bits per second of each GPU to its NVSwitches.

    Raises `DocumentError` if an NVSwitch has links to what is not in one server.
    """
    local_bps = Counter[int]()
    servers: dict[int, int | None] = {}
    for wire in inside:
        server = server_of.get(wire.a)
        if server is None or servers.setdefault(wire.b, server) != server:
            raise _not_inside(source, wire)
        local_bps[wire.a] += wire.rate_bps
    return local_bps


def _not_inside(source: Source, wire: NodeWire) -> DocumentError:
    reason = f"links NVSwitch {wire.b} to what is not in the server of its other GPUs"
    return source.fault(wire.line, reason, "--set gpus=hosts keeps GPUs and NVSwitches as they are")
