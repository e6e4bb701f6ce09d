"""Slurm's `topology.conf` and `topology.yaml`: trees, blocks, rings and tori.

```
SwitchName=s0 Nodes=tux[0-3]
SwitchName=s1 Nodes=tux[4-7]
SwitchName=s2 Switches=s[0-1]
```

What `scontrol show topology` prints is read, too.

Sources: the man pages topology.conf(5) and topology.yaml(5) of Slurm 26.11, and its topology guide.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from pydantic import Field, PlainValidator

from echelon.model.documents import DocumentError, problem, suggestion
from echelon.model.foreign import ForeignKind
from echelon.model.quantities import QuantityError, excerpt, number
from echelon_importers.importer import Source
from echelon_importers.topologies.hostlist import HostlistError, expanded
from echelon_importers.topologies.network import Network
from echelon_importers.topologies.slurm_layouts import (
    Layout,
    Level,
    Torus,
    block_levels,
    torus_network,
    tree_network,
)
from echelon_importers.topologies.slurm_yaml import read_yaml
from echelon_importers.topologies.topology import Topology, TopologyOptions
from echelon_importers.workload import ReadCounts

_CONF = rb"(?im)^\s*(?:SwitchName|BlockName|RingName)\s*="
_YAML = rb"(?m)^\s*-\s+topology\s*:"
_YAML_KIND = rb"(?m)^\s+(?:tree|block|ring|torus3d|flat)\s*:"


def _recognises(head: bytes) -> bool:
    is_yaml = re.search(_YAML, head) and re.search(_YAML_KIND, head)
    return bool(is_yaml or re.search(_CONF, head))


KIND = ForeignKind(
    "a topology of Slurm",
    "echelon import slurm FILE --rate RATE -o fabric.yaml",
    _recognises,
    ("slurm",),
)

_KEYS = {
    "switchname": "SwitchName",
    "switches": "Switches",
    "nodes": "Nodes",
    "linkspeed": "LinkSpeed",
    "blockname": "BlockName",
    "blocksizes": "BlockSizes",
    "ringname": "RingName",
}
_PRINTED = {"level", "blockindex", "blocksize"}
"""What `scontrol show topology` adds: it follows from the other keys."""


def _ratio(value: object) -> Fraction:
    try:
        ratio = number(str(value))
    except QuantityError as error:
        raise problem(str(error), code="not-a-number") from None
    if ratio <= 0:
        raise problem(f"{excerpt(value)} is not more than 0 (write 1, or 2.5)", code="too-small")
    return ratio


Ratio = Annotated[Fraction, PlainValidator(_ratio)]
"""A number above 0, also as text, as `--set` gives it."""


class SlurmOptions(TopologyOptions):
    """Options of a topology of Slurm."""

    oversubscription: Ratio = Fraction(1)
    """What the nodes below a switch can send, divided by what its links upwards carry."""
    topology: Annotated[str | None, Field(max_length=64)] = None
    """The name of the topology in a `topology.yaml`. Default: the cluster's."""


class SlurmTopology(Topology[SlurmOptions]):
    """A topology of Slurm; needs --rate, since Slurm knows no rates."""

    Options = SlurmOptions

    def read(self, source: Source) -> Network:
        """Return the network in a file. Raises `DocumentError`."""
        tally = ReadCounts()
        # By content: people keep both under other names.
        if re.search(_YAML, source.unpacked()):
            layout = read_yaml(source, self.options.topology, tally)
        else:
            layout = _read_conf(source, tally)
        if layout.torus is not None:
            return torus_network(layout.torus, tally)
        levels = layout.tree
        if layout.blocks:
            levels = block_levels(source, layout.blocks, layout.block_sizes, tally)
        if not levels:
            raise source.refusal("has no switches (write SwitchName=...)", code="empty-document")
        options = self.options
        return tree_network(source, levels, options.rate, options.oversubscription, tally)


@dataclass(frozen=True, slots=True)
class _Record:
    """A line of a `topology.conf`: its number and its keys, in lower case."""

    line: int
    keys: Mapping[str, str]


def _read_conf(source: Source, tally: ReadCounts) -> Layout:
    tree: dict[str, Level] = {}
    blocks: dict[str, list[str]] = {}
    rings: dict[str, list[str]] = {}
    sizes: list[int] = []
    for record in _records(source):
        keys = record.keys
        nodes = _names(source, record, "nodes")
        if "switchname" in keys:
            level = Level(tuple(_names(source, record, "switches")), tuple(nodes))
            if level == Level():
                reason = f"{keys['switchname']} has nothing below"
                raise source.fault(record.line, reason, "give Switches or Nodes")
            for name in _names(source, record, "switchname"):
                _once(source, record, name, tree)
                tree[name] = level
            tally.ignored["values of LinkSpeed, whose unit is arbitrary"] += "linkspeed" in keys
        elif "blockname" in keys:
            _once(source, record, keys["blockname"], blocks)
            blocks[keys["blockname"]] = nodes
        elif "ringname" in keys:
            _once(source, record, keys["ringname"], rings)
            rings[keys["ringname"]] = nodes
        for word in keys.get("blocksizes", "").split(","):
            if word:
                sizes.append(source.integer(record.line, word, "a block size"))
    kinds = [kind for kind in (tree, blocks, rings) if kind]
    if len(kinds) != 1:
        reason = f"has {len(kinds)} kinds of topology (give one: switches, blocks or a ring)"
        raise source.refusal(reason, code="conflicting-key")
    if len(rings) > 1:
        reason = f"has {len(rings)} rings without a link between them (leave one)"
        raise source.refusal(reason, code="unconnected")
    torus = None
    for nodes in rings.values():
        torus = Torus([len(nodes)], nodes)
    return Layout(tree, blocks, sizes or [1], torus)


def _records(source: Source) -> Iterator[_Record]:
    lines = source.text().splitlines()
    pending = ""
    for index, line in enumerate(lines, start=1):
        text = pending + line.partition("#")[0].rstrip()
        if text.endswith("\\"):
            pending = f"{text[:-1]} "
            continue
        pending = ""
        if text.strip():
            yield _Record(index, _keys(source, index, text))


def _keys(
    source: Source,
    line: int,
    text: str,
) -> dict[str, str]:
    try:
        words = shlex.split(text)
    except ValueError:
        raise source.fault(line, "has a quotation mark without its other", "close it") from None
    keys: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key.lower() in _PRINTED:
            continue
        if not equals or key.lower() not in _KEYS:
            hint = suggestion(key.lower(), _KEYS)
            raise source.fault(line, f"'{word}' is not a key of topology.conf", hint)
        keys[key.lower()] = value
    is_printed = any(word.lower().startswith("level=") for word in words)
    if is_printed and keys.get("switches"):
        # It names the nodes below a switch's switches, too.
        keys.pop("nodes", None)
    return keys


def _names(
    source: Source,
    record: _Record,
    key: str,
) -> list[str]:
    text = record.keys.get(key)
    if not text:
        return []
    try:
        return expanded(text)
    except HostlistError as error:
        place = f"line {record.line}: {_KEYS[key]}"
        raise DocumentError(source.name, place, str(error), code="bad-syntax") from None


def _once(
    source: Source,
    record: _Record,
    name: str,
    names: Mapping[str, object],
) -> None:
    if name in names:
        raise source.fault(record.line, f"'{name}' is there already", "name each once")
