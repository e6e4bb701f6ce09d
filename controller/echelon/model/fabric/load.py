"""The fabric file.

```yaml
fabric: dumbbell          # name
paths: kept               # how connections get their paths (`echelon.model.fabric.choices`); this is the default
roce_marks: [26, 26, 26, 26, 26, 26, 26, 26]   # the DSCP of RoCE packets from queues 0 to 7 of a switch (default: as
                          # their sender set it, so that the next switch finds the lossless queue that it belongs to)
hosts: [h1, h2]           # or a mapping, to fix addresses: {h1: {ipv4: 10.0.0.1, mac: "02:00:00:00:00:01"}, h2: {}}
switches: [s1, s2]        # or a mapping, to fix P4Runtime device ids: {s1: {device_id: 1}, s2: {}}
links:                    # full duplex
  - {between: [h1, s1], rate: 1 Gbit/s, delay: 1 us}      # delay: propagation delay, default 0 s
  - {between: [s1, s2], rate: 10 Mbit/s, ports: {s1: 3}}  # ports: fixed port numbers of switches
```

Everything else is numbered in the order of the file: hosts 10.0.0.1, 10.0.0.2... with MAC addresses
that end in the same two bytes, switches 1, 2..., ports of a switch 1, 2... A host has a link to a
switch, or links to several, as a server has with one NIC for each rail; all have its addresses. Two
links between the same nodes are one link of the rate of both.
"""

from __future__ import annotations

import ipaddress
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from echelon.model.documents import (
    Duration,
    Name,
    Rate,
    Section,
    duplicate,
    parse_document,
    problem,
    read_document,
    refuse,
    suggestion,
)
from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.fabric.routing import chooser
from echelon.model.foreign import foreign_files_named
from echelon.model.quantities import excerpt

MAX_HOSTS = 250 * 256
"""Number of addresses in 10.0.0.0/16 if none ends in 0 or in 251 to 255."""
MAX_PORT = 509
"""Ports of v1model have 9 bits; by convention, 510 is the controller's port and 511 means drop."""

_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")


def _ipv4(value: object) -> str:
    try:
        address = ipaddress.IPv4Address(value if isinstance(value, str) else repr(value))
    except ValueError:
        raise problem(
            f"{excerpt(value)} is not an IPv4 address (write it as 10.0.0.1)", code="not-an-address"
        ) from None
    if address.is_multicast or address.is_unspecified or address.is_reserved or address.is_loopback:
        raise problem(
            f"{address} cannot be a host's address (use a unicast address, such as 10.0.0.1)",
            code="not-an-address",
        )
    return str(address)


def _mac(value: object) -> str:
    # Without quotes, YAML reads some MAC addresses as numbers in base 60.
    if not isinstance(value, str) or not _MAC.fullmatch(value.lower()):
        raise problem(
            f'{excerpt(value)} is not a MAC address (write it in quotes, as "02:00:00:00:00:01")',
            code="not-an-address",
        )
    if int(value[:2], 16) & 1 or not int(value.replace(":", ""), 16):
        reason = (
            f"{value} cannot be a host's address (use a unicast address, such as 02:00:00:00:00:01)"
        )
        raise problem(reason, code="not-an-address")
    return value.lower()


def _named(value: object) -> object:
    """Return a list of names as a mapping of each name to an empty section."""
    if isinstance(value, dict):
        return {name: {} if fixed is None else fixed for name, fixed in value.items()}
    if not isinstance(value, list | tuple):
        return value
    named: dict[str, object] = {}
    for index, name in enumerate(value):
        if not isinstance(name, str):
            raise problem(
                f"{excerpt(name)} is not a name (write a list of names)", index, code="not-a-name"
            )
        if name in named:
            raise duplicate(f"{excerpt(name)} is listed already (name each once)", index)
        named[name] = {}
    return named


def _choosable(name: str) -> str:
    try:
        chooser(name)
    except ValueError as error:
        raise problem(str(error), code="unknown-name") from None
    return name


class HostSpec(Section):
    """The addresses of a host; None: numbered automatically."""

    ipv4: (
        Annotated[str, PlainValidator(_ipv4), WithJsonSchema({"type": "string", "format": "ipv4"})]
        | None
    ) = None
    """Default: numbered automatically."""
    mac: Annotated[str, PlainValidator(_mac), WithJsonSchema({"type": "string"})] | None = None
    """Default: numbered automatically."""


class SwitchSpec(Section):
    """The P4Runtime device id of a switch; None: numbered automatically."""

    device_id: Annotated[int, Field(strict=True, ge=1, le=2**63)] | None = None
    """Default: numbered automatically."""


class LinkSpec(Section):
    """A full-duplex link."""

    between: Annotated[
        tuple[Name, ...],
        Field(
            min_length=2,
            max_length=2,
            description="its two ends, as [h1, s1]",
        ),
    ]
    rate: Rate = Field(description="the capacity of each direction, e.g. 10 Mbit/s")
    delay: Duration = Fraction(0)
    """The propagation delay, seconds."""
    ports: dict[Name, Annotated[int, Field(strict=True, ge=1, le=MAX_PORT)]] = Field(
        default_factory=dict
    )
    """The port number at each end that is a switch; the others are numbered automatically."""


class FabricSpec(Section):
    """A fabric as its file describes it, checked: it is connected, names are unique, and so on."""

    fabric: Name = Field(description="the fabric's name")
    hosts: Annotated[
        dict[Name, HostSpec],
        BeforeValidator(_named),
        Field(
            min_length=2,
            max_length=MAX_HOSTS,
            description="the hosts, as [h1, h2]",
        ),
    ]
    switches: Annotated[
        dict[Name, SwitchSpec],
        BeforeValidator(_named),
        Field(
            min_length=1,
            description="the switches, as [s1, s2]",
        ),
    ]
    paths: Annotated[str, AfterValidator(_choosable)] = "kept"
    """The choice of paths where a policy leaves it open: `kept`, `hash` or `valiant`."""
    roce_marks: (
        Annotated[
            tuple[Annotated[int, Field(strict=True, ge=0, le=63)], ...],
            Field(min_length=8, max_length=8),
        ]
        | None
    ) = None
    """The DSCP of RoCE packets that leave queues 0 to 7 of a switch.

    Default: what their senders wrote.
    """
    links: Annotated[
        tuple[LinkSpec, ...],
        Field(
            min_length=1,
            description="the links, as [{between: [h1, s1], rate: 1 Gbit/s}]",
        ),
    ]

    @model_validator(mode="after")
    def _check(self) -> FabricSpec:
        both = [name for name in self.hosts if name in self.switches]
        reason = "is also a host (give them different names)"
        refuse(duplicate(f"'{name}' {reason}", "switches", name) for name in both)
        refuse(self._faults_of_links())
        refuse(self._other_faults())
        return self

    def _other_faults(self) -> Iterator[PydanticCustomError]:
        """Yield what is wrong with ports and addresses where all links are good."""
        yield from self._faults_of_ports()
        yield from self._unreachable()
        hosts = _hosts(self)
        yield from _repeated("hosts", "ipv4", hosts)
        yield from _repeated("hosts", "mac", hosts)
        yield from _repeated("switches", "device_id", _switches(self))

    def _faults_of_links(self) -> Iterator[PydanticCustomError]:
        nodes = [*self.hosts, *self.switches]
        attached: set[str] = set()
        seen: dict[frozenset[str], int] = {}
        for index, link in enumerate(self.links):
            for end, node in enumerate(link.between):
                path = ("links", index, "between", end)
                if node not in self.hosts and node not in self.switches:
                    reason = f"'{node}' is neither a host nor a switch ({suggestion(node, nodes)})"
                    yield problem(reason, *path, code="unknown-node")
                attached.add(node)
            a, b = link.between
            pair = frozenset(link.between)
            ends = ("links", index, "between")
            if a == b:
                yield duplicate(f"links '{a}' to itself (name two nodes)", *ends)
            elif a in self.hosts and b in self.hosts:
                reason = f"links two hosts, '{a}' and '{b}' (link each to a switch)"
                yield problem(reason, *ends)
            elif pair in seen:
                reason = (
                    f"links '{a}' and '{b}' again, as links[{seen[pair]}]"
                    " (give one link the rate of both)"
                )
                yield duplicate(reason, *ends)
            seen[pair] = index
        for name in self.hosts:
            if name not in attached:
                reason = "has no link (link it to a switch)"
                yield problem(reason, "hosts", name, code="unconnected")

    def _faults_of_ports(self) -> Iterator[PydanticCustomError]:
        taken: dict[tuple[str, int], int] = {}
        for index, link in enumerate(self.links):
            for node, port in link.ports.items():
                path = ("links", index, "ports", node)
                if node not in link.between:
                    ends = " or ".join(link.between)
                    reason = f"'{node}' is not an end of this link (use {ends})"
                    yield problem(reason, *path, code="unknown-node")
                elif node in self.hosts:
                    reason = f"'{node}' is a host (only switches have port numbers; remove it)"
                    yield problem(reason, *path)
                elif (node, port) in taken:
                    yield duplicate(
                        f"port {port} of '{node}' is taken by links[{taken[node, port]}]"
                        " (use another)",
                        *path,
                    )
                taken[node, port] = index
        degrees = Counter(node for link in self.links for node in link.between)
        for switch in self.switches:
            degree = degrees[switch]
            if degree > MAX_PORT:
                reason = f"has {degree} links (a switch has at most {MAX_PORT} ports)"
                yield problem(reason, "switches", switch, code="too-large")

    def _unreachable(self) -> Iterator[PydanticCustomError]:
        nodes = (*self.hosts, *self.switches)
        neighbours: dict[str, list[str]] = {name: [] for name in nodes}
        for link in self.links:
            a, b = link.between
            neighbours[a].append(b)
            neighbours[b].append(a)
        first = next(iter(self.hosts))
        reached = {first}
        frontier = [first]
        while frontier:
            fresh = [node for node in neighbours[frontier.pop()] if node not in reached]
            reached.update(fresh)
            frontier += fresh
        for kind, names in (("hosts", self.hosts), ("switches", self.switches)):
            for name in names:
                if name not in reached:
                    reason = f"cannot be reached from '{first}' (add a link)"
                    yield problem(reason, kind, name, code="unconnected")
                    return


def build_fabric(spec: FabricSpec) -> Fabric:
    """Return the fabric that a checked specification describes."""
    free = {name: _free_ports(spec, name) for name in spec.switches}
    interfaces = {name: count() for name in spec.hosts}

    def end(link: LinkSpec, node: str) -> LinkEnd:
        if node in spec.hosts:
            number = next(interfaces[node])
        elif node in link.ports:
            number = link.ports[node]
        else:
            number = next(free[node])
        return LinkEnd(node, number)

    cables = []
    for link in spec.links:
        a, b = (end(link, node) for node in link.between)
        cables.append(CableLink(a, b, link.rate, link.delay))
    return Fabric(
        name=spec.fabric,
        hosts=_hosts(spec),
        switches=_switches(spec),
        cables=tuple(cables),
        paths=spec.paths,
        roce_marks=spec.roce_marks or (),
    )


def load_fabric(path: str | Path) -> Fabric:
    """Return the fabric in the YAML file `path`. Raises `DocumentError`."""
    return build_fabric(load_fabric_spec(path))


def load_fabric_spec(path: str | Path) -> FabricSpec:
    """Return the specification in the YAML file `path`. Raises `DocumentError`."""
    with foreign_files_named(path):
        return parse_document(FabricSpec, read_document(path), str(path))


def _hosts(spec: FabricSpec) -> dict[str, Host]:
    hosts = {}
    for index, (name, host) in enumerate(spec.hosts.items()):
        high = index // 250
        low = index % 250 + 1
        ipv4 = host.ipv4 or f"10.0.{high}.{low}"
        hosts[name] = Host(name, ipv4, host.mac or f"02:00:00:00:{high:02x}:{low:02x}")
    return hosts


def _switches(spec: FabricSpec) -> dict[str, Switch]:
    switches = {}
    for number, (name, switch) in enumerate(spec.switches.items(), start=1):
        switches[name] = Switch(name, switch.device_id or number)
    return switches


def _free_ports(spec: FabricSpec, switch: str) -> Iterator[int]:
    taken = {link.ports[switch] for link in spec.links if switch in link.ports}
    return (port for port in range(1, MAX_PORT + 1) if port not in taken)


def _repeated(
    kind: str,
    key: str,
    nodes: Mapping[str, Host] | Mapping[str, Switch],
) -> Iterator[PydanticCustomError]:
    """Yield a fault for each node that has the address of another."""
    owner: dict[object, str] = {}
    for name, node in nodes.items():
        value = getattr(node, key)
        if value in owner:
            yield duplicate(
                f"{value} is also the address of '{owner[value]}' (give another)", kind, name, key
            )
        owner.setdefault(value, name)


_WIDTH = 120
_RATES = {10**9: "Gbit/s", 10**6: "Mbit/s", 10**3: "kbit/s"}
_DURATIONS = {1: "s", 10**3: "ms", 10**6: "us", 10**9: "ns"}
"""The names of units by their number in a second."""
_DECIMALS = 3
"""The most decimals of a number; a smaller unit is used if it needs more."""


def fabric_text(spec: FabricSpec, about: str) -> str:
    """Return YAML from which `load_fabric_spec` reads `spec` again, below the comment `about`.

    Delays are rounded to nanoseconds.
    """
    comment = [f"# {line}" for line in textwrap.wrap(about, _WIDTH - 2)]
    lines = [*comment, f"fabric: {spec.fabric}"]
    if "paths" in spec.model_fields_set:
        lines.append(f"paths: {spec.paths}")
    if spec.roce_marks:
        lines.append(f"roce_marks: {list(spec.roce_marks)}")
    lines += _key_lines("hosts", spec.hosts)
    lines += _key_lines("switches", spec.switches)
    lines.append("links:")
    lines += [f"  - {_link(link)}" for link in spec.links]
    return "".join(f"{line}\n" for line in lines)


def _key_lines(key: str, named: Mapping[str, HostSpec] | Mapping[str, SwitchSpec]) -> Sequence[str]:
    fixed = {name: spec.model_dump(exclude_none=True) for name, spec in named.items()}
    if any(fixed.values()):
        return [f"{key}:", *(f"  {name}: {_flow(values)}" for name, values in fixed.items())]
    line = f"{key}: [{', '.join(fixed)}]"
    if len(line) <= _WIDTH:
        return [line]
    # A name with hyphens must not be broken.
    wrapper = textwrap.TextWrapper(
        _WIDTH - 2,
        break_on_hyphens=False,
        break_long_words=False,
    )
    folded = wrapper.wrap(f"{', '.join(fixed)}]")
    return [f"{key}: [", *(f"  {line}" for line in folded)]


def _link(link: LinkSpec) -> str:
    values: dict[str, object] = {"between": f"[{', '.join(link.between)}]"}
    values["rate"] = rate_words(link.rate)
    if link.delay:
        values["delay"] = _duration(link.delay)
    if link.ports:
        values["ports"] = _flow(link.ports)
    return _flow(values)


def _flow(values: Mapping[str, object]) -> str:
    # Without quotes, YAML would read some MAC addresses as numbers in base 60.
    words = []
    for key, value in values.items():
        words.append(f'{key}: "{value}"' if key == "mac" else f"{key}: {value}")
    return f"{{{', '.join(words)}}}"


def rate_words(bits_per_second: int) -> str:
    """Return a rate as a fabric file has it, in the largest unit that fits."""
    for unit_bps, name in _RATES.items():
        text = _decimal(Fraction(bits_per_second, unit_bps))
        if bits_per_second >= unit_bps and text:
            return f"{text} {name}"
    return f"{bits_per_second} bit/s"


def _duration(seconds: Fraction) -> str:
    for units_per_s, name in _DURATIONS.items():
        units = seconds * units_per_s
        text = _decimal(units)
        if units >= 1 and text:
            return f"{text} {name}"
    return f"{float(round(seconds, 9)):.9f} s"


def _decimal(value: Fraction) -> str | None:
    """Return `value` with few decimals, or None if that would round it."""
    scaled = value * 10**_DECIMALS
    if scaled.denominator != 1:
        return None
    integer, decimals = divmod(scaled.numerator, 10**_DECIMALS)
    return f"{integer}.{decimals:03d}".rstrip("0").rstrip(".")
