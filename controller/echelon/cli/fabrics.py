"""`echelon fabric`: fabric files of well-known shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from echelon.cli.tables import OutFile, write_text
from echelon.cli.usage import fail


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape: the function of its name in `echelon.fabric.builders` builds it."""

    about: str
    """The comment in the file, with options in braces."""
    options: Mapping[str, object]
    """The options that the shape has besides --delay, with their defaults."""


_RATE = {"rate": "10 Mbit/s"}
_THESIS = {"rate": "250 Mbit/s"}
_RATES = {**_RATE, "nic_rate": "1 Gbit/s"}

SHAPES = {
    "one-tor": Shape("{servers} servers at one top-of-rack switch.", {"servers": 4, **_RATE}),
    "thesis-a": Shape(
        "Salamy's configuration A (SM thesis, MIT 2022, Fig. 3-1a): a ring of s0 to s3 and cross traffic from s0. The "
        "bottleneck, the outbound queue of the NIC of s0, is the switch nic0; before it, s0 has a link four times as "
        "fast.",
        _THESIS,
    ),
    "thesis-b": Shape(
        "Salamy's configuration B (SM thesis, MIT 2022, Fig. 3-1b): a ring of s0, s1 and s3, cross traffic from s2 to "
        "s0; the bottleneck is the switch's port to s0.",
        _THESIS,
    ),
    "dumbbell": Shape(
        "{pairs} pairs of hosts, a1-b1, a2-b2..., on either side of one link, the bottleneck.", {"pairs": 2, **_RATES}
    ),
    "line": Shape(
        "A host at each of {switches} switches in a line; the links between switches are the bottlenecks.",
        {"switches": 3, **_RATES},
    ),
    "leaf-spine": Shape(
        "{leaves} leaves with {hosts_per_leaf} hosts each and {spines} spines; the uplinks are oversubscribed "
        "{oversubscription} to 1.",
        {"leaves": 4, "spines": 2, "hosts_per_leaf": 4, "oversubscription": "1", **_RATE},
    ),
    "fat-tree": Shape(
        "The fat-tree of switches with {k} ports, with the addresses of Al-Fares et al. (SIGCOMM 2008).",
        {"k": 4, **_RATE},
    ),
    "rail-optimised": Shape(
        "{servers} servers with {rails} NICs each, at {rails} rails, and {spines} spines; n2r1 is the NIC of server 2 "
        "at rail 1, a host of its own. The uplinks are oversubscribed {oversubscription} to 1.",
        {"servers": 4, "rails": 4, "spines": 2, "oversubscription": "1", **_RATE},
    ),
}


def fabric(
    context: typer.Context,
    shape: Annotated[str, typer.Argument(help=f"The shape: {', '.join(SHAPES)}.", metavar="SHAPE")],
    servers: Annotated[int | None, typer.Option(help="How many servers. Default: 4.")] = None,
    pairs: Annotated[int | None, typer.Option(help="Number of pairs of hosts. Default: 2.")] = None,
    switches: Annotated[int | None, typer.Option(help="How many switches. Default: 3.")] = None,
    leaves: Annotated[int | None, typer.Option(help="How many leaves. Default: 4.")] = None,
    spines: Annotated[int | None, typer.Option(help="How many spines. Default: 2.")] = None,
    hosts_per_leaf: Annotated[int | None, typer.Option(help="Number of hosts at each leaf. Default: 4.")] = None,
    k: Annotated[
        int | None, typer.Option("--k", help="Number of ports of a switch of a fat tree, which is even. Default: 4.")
    ] = None,
    rails: Annotated[
        int | None, typer.Option(help="Number of rails, each with one NIC of every server. Default: 4.")
    ] = None,
    oversubscription: Annotated[
        str | None,
        typer.Option(
            help="Rate at which the hosts of a switch can send, divided by the rate of its uplinks. Default: 1.",
            metavar="RATIO",
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            help="Rate of the links of hosts; of a dumbbell or line, between switches; of a fat tree, of every link. "
            "Default: 10 Mbit/s, of the thesis 250 Mbit/s.",
            metavar="RATE",
        ),
    ] = None,
    nic_rate: Annotated[
        str | None,
        typer.Option(help="Rate of the links of hosts of a dumbbell or line. Default: 1 Gbit/s.", metavar="RATE"),
    ] = None,
    delay: Annotated[str, typer.Option(help="Propagation delay of every link.", metavar="TIME")] = "1 us",
    out: OutFile = None,
) -> None:
    """Write a fabric file of a well-known shape: leaf-spine, fat-tree and others.

    A shape has the options for what it consists of; an option of another shape is a mistake. thesis-a and thesis-b are
    the configurations of Salamy (2022); a rail-optimised fabric has each NIC of a server at the switch of its rank.

    Example: echelon fabric leaf-spine --leaves 4 --spines 2 -o fabric.yaml
    """
    own = {name: value for name, value in context.params.items() if name not in ("shape", "delay", "out")}
    write_text(_text(shape, {name: value for name, value in own.items() if value is not None}, delay), out)


def _text(name: str, given: Mapping[str, object], delay: str) -> str:
    from echelon.documents import suggestion
    from echelon.fabric import builders
    from echelon.fabric.write import fabric_text
    from echelon.quantities import QuantityError, duration_s, number, rate_bps

    if name not in SHAPES:
        fail(f"echelon fabric: unknown shape '{name}' ({suggestion(name, SHAPES)})")
    shape = SHAPES[name]
    for option in given:
        if option not in shape.options:
            known = ", ".join(map(_written, (*shape.options, "delay")))
            fail(f"{_written(option)}: fabric {name} has no such option (it has {known})")
    options = {**shape.options, **given}
    about = shape.about.format_map(options)
    arguments: dict[str, object] = {}
    for option, value in {**options, "delay": delay}.items():
        argument, parse = {
            "rate": ("rate_bps", rate_bps),
            "nic_rate": ("nic_bps", rate_bps),
            "delay": ("delay_s", duration_s),
            "oversubscription": (option, number),
        }.get(option, (option, lambda value: value))
        try:
            arguments[argument] = parse(value)
        except QuantityError as error:
            fail(f"{_written(option)}: {error}")
    try:
        return fabric_text(getattr(builders, name.replace("-", "_"))(**arguments), about)
    except ValueError as error:
        fail(str(error))


def _written(option: str) -> str:
    return f"--{option.replace('_', '-')}"
