"""The inputs of the tests of topologies, and what a fabric of theirs is like."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon_importers.importer import Source
from echelon_importers.topologies.conversion import ImportedFabric, import_fabric

DATA = Path(__file__).parent / "topologies"
GBPS = 10**9


def imported(kind: str, file: str | bytes, **settings: object) -> ImportedFabric:
    """Return the import of a file of `topologies`, or of bytes."""
    data = file if isinstance(file, bytes) else (DATA / file).read_bytes()
    name = "file" if isinstance(file, bytes) else str(DATA / file)
    return import_fabric(kind, Source(name, data), "f", settings)


def fabric(kind: str, file: str | bytes, **settings: object) -> Fabric:
    return build_fabric(imported(kind, file, **settings).spec)


def shape(fabric: Fabric) -> tuple[int, int, int]:
    """Return the numbers of hosts, switches and links."""
    return len(fabric.hosts), len(fabric.switches), len(fabric.cables)


def rate(fabric: Fabric, a: str, b: str) -> Fraction:
    """Return the rate of a link in Gbit/s, which is the same in both directions."""
    assert fabric.rate_bps[a, b] == fabric.rate_bps[b, a]
    return Fraction(fabric.rate_bps[a, b], GBPS)


def simai(servers: int, gpus: int, cores: int) -> bytes:
    """Return a topology in SimAI's words: rails, a switch for each, below every core switch."""
    count = servers * gpus
    nvswitches = range(count, count + servers)
    rails = range(nvswitches.stop, nvswitches.stop + gpus)
    tops = range(rails.stop, rails.stop + cores)
    links = []
    for gpu in range(count):
        links.append(f"{gpu} {nvswitches[gpu // gpus]} 2880Gbps 0.000025ms 0")
        links.append(f"{gpu} {rails[gpu % gpus]} 400Gbps 0.0005ms 0")
    links += [f"{rail} {top} 800Gbps 0.0005ms 0" for rail in rails for top in tops]
    head = f"{tops.stop} {gpus} {servers} {gpus + cores} {len(links)} H100"
    switches = " ".join(map(str, range(count, tops.stop)))
    return "\n".join([head, switches, *links, ""]).encode()
