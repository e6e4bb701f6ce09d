"""`echelon fabric`: fabric files of well-known shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.tables import OutFile, write_text
from echelon.cli.usage import fail

if TYPE_CHECKING:
    from fractions import Fraction

    from echelon.fabric.load import FabricSpec

app = typer.Typer(help="Write fabric files: leaf-spine, fat-tree and others.", no_args_is_help=True)

Oversubscription = Annotated[
    str,
    typer.Option(
        help="Rate at which the hosts of a switch can send, divided by the rate of its uplinks.", metavar="RATIO"
    ),
]
Rate = Annotated[str, typer.Option(help="Rate of the links of hosts.", metavar="RATE")]
Bottleneck = Annotated[str, typer.Option(help="Rate of the links between switches.", metavar="RATE")]
NicRate = Annotated[str, typer.Option(help="Rate of the links of hosts.", metavar="RATE")]
EveryRate = Annotated[str, typer.Option(help="Of every link.", metavar="RATE")]
Delay = Annotated[str, typer.Option(help="Propagation delay of every link.", metavar="TIME")]
Servers = Annotated[int, typer.Option(help="How many servers.")]
Pairs = Annotated[int, typer.Option(help="Number of pairs of hosts.")]
Switches = Annotated[int, typer.Option(help="How many switches.")]
Leaves = Annotated[int, typer.Option(help="How many leaves.")]
Spines = Annotated[int, typer.Option(help="How many spines.")]
HostsPerLeaf = Annotated[int, typer.Option(help="Number of hosts at each leaf.")]
Rails = Annotated[int, typer.Option(help="Number of rails, each with one NIC of every server.")]

_RATE = "10 Mbit/s"
_NIC = "1 Gbit/s"
_THESIS = "250 Mbit/s"
_DELAY = "1 us"


@app.command("one-tor")
def one_tor(servers: Servers = 4, rate: EveryRate = _RATE, delay: Delay = _DELAY, out: OutFile = None) -> None:
    """Write a fabric of servers at one top-of-rack switch.

    Example: echelon fabric one-tor --servers 8 -o fabric.yaml
    """
    from echelon.fabric import builders

    build = partial(builders.one_tor, servers)
    _write(f"{servers} servers at one top-of-rack switch.", build, out, delay, rate_bps=rate)


@app.command("thesis-a")
def thesis_a(rate: EveryRate = _THESIS, delay: Delay = _DELAY, out: OutFile = None) -> None:
    """Write four servers whose bottleneck is the NIC of s0, as a switch nic0 (Salamy 2022, configuration A).

    Example: echelon fabric thesis-a -o fabric.yaml
    """
    from echelon.fabric import builders

    about = (
        "Salamy's configuration A (SM thesis, MIT 2022, Fig. 3-1a): a ring of s0 to s3 and cross traffic from s0. The "
        "bottleneck, the outbound queue of the NIC of s0, is the switch nic0; before it, s0 has a link four times as "
        "fast."
    )
    _write(about, builders.thesis_a, out, delay, rate_bps=rate)


@app.command("thesis-b")
def thesis_b(rate: EveryRate = _THESIS, delay: Delay = _DELAY, out: OutFile = None) -> None:
    """Write four servers whose bottleneck is their switch's port to s0 (Salamy 2022, configuration B).

    Example: echelon fabric thesis-b -o fabric.yaml
    """
    from echelon.fabric import builders

    about = (
        "Salamy's configuration B (SM thesis, MIT 2022, Fig. 3-1b): a ring of s0, s1 and s3, cross traffic from s2 to "
        "s0; the bottleneck is the switch's port to s0."
    )
    _write(about, builders.thesis_b, out, delay, rate_bps=rate)


@app.command()
def dumbbell(
    pairs: Pairs = 2, rate: Bottleneck = _RATE, nic_rate: NicRate = _NIC, delay: Delay = _DELAY, out: OutFile = None
) -> None:
    """Write pairs of hosts on either side of one link.

    Example: echelon fabric dumbbell --pairs 4 -o fabric.yaml
    """
    from echelon.fabric import builders

    about = f"{pairs} pairs of hosts, a1-b1, a2-b2..., on either side of one link, the bottleneck."
    _write(about, partial(builders.dumbbell, pairs), out, delay, rate_bps=rate, nic_bps=nic_rate)


@app.command()
def line(
    switches: Switches = 3,
    rate: Bottleneck = _RATE,
    nic_rate: NicRate = _NIC,
    delay: Delay = _DELAY,
    out: OutFile = None,
) -> None:
    """Write switches in a line, with a host at each.

    Example: echelon fabric line --switches 3 -o fabric.yaml
    """
    from echelon.fabric import builders

    about = f"A host at each of {switches} switches in a line; the links between switches are the bottlenecks."
    _write(about, partial(builders.line, switches), out, delay, rate_bps=rate, nic_bps=nic_rate)


@app.command("leaf-spine")
def leaf_spine(
    leaves: Leaves = 4,
    spines: Spines = 2,
    hosts_per_leaf: HostsPerLeaf = 4,
    oversubscription: Oversubscription = "1",
    rate: Rate = _RATE,
    delay: Delay = _DELAY,
    out: OutFile = None,
) -> None:
    """Write a leaf-spine fabric, in which every leaf is linked to every spine.

    Example: echelon fabric leaf-spine --leaves 4 --spines 2 -o fabric.yaml
    """
    from echelon.fabric import builders

    about = (
        f"{leaves} leaves with {hosts_per_leaf} hosts each and {spines} spines; "
        f"the uplinks are oversubscribed {oversubscription} to 1."
    )
    build = partial(builders.leaf_spine, leaves, spines, hosts_per_leaf, _ratio(oversubscription))
    _write(about, build, out, delay, rate_bps=rate)


@app.command("fat-tree")
def fat_tree(
    k: Annotated[int, typer.Option("--k", help="Number of ports of a switch, which is even.")] = 4,
    rate: EveryRate = _RATE,
    delay: Delay = _DELAY,
    out: OutFile = None,
) -> None:
    """Write a fat tree: three stages of equal switches, without oversubscription (Al-Fares et al., SIGCOMM 2008).

    Example: echelon fabric fat-tree -o fabric.yaml
    """
    from echelon.fabric import builders

    about = f"The fat-tree of switches with {k} ports, with the addresses of Al-Fares et al. (SIGCOMM 2008)."
    _write(about, partial(builders.fat_tree, k), out, delay, rate_bps=rate)


@app.command("rail-optimised")
def rail_optimised(
    servers: Servers = 4,
    rails: Rails = 4,
    spines: Spines = 2,
    oversubscription: Oversubscription = "1",
    rate: Rate = _RATE,
    delay: Delay = _DELAY,
    out: OutFile = None,
) -> None:
    """Write a rail-optimised fabric, in which each NIC of a server is a host at the switch (rail) of its rank.

    Example: echelon fabric rail-optimised --servers 4 --rails 4 -o fabric.yaml
    """
    from echelon.fabric import builders

    about = (
        f"{servers} servers with {rails} NICs each, at {rails} rails, and {spines} spines; n2r1 is the NIC of server 2 "
        f"at rail 1, a host of its own. The uplinks are oversubscribed {oversubscription} to 1."
    )
    build = partial(builders.rail_optimised, servers, rails, spines, _ratio(oversubscription))
    _write(about, build, out, delay, rate_bps=rate)


def _write(about: str, build: Callable[..., FabricSpec], out: Path | None, delay: str, **rates: str) -> None:
    from echelon.fabric.write import fabric_text
    from echelon.quantities import QuantityError, duration_s, rate_bps

    key = "delay"
    try:
        keywords: dict[str, object] = {"delay_s": duration_s(delay)}
        for key, text in rates.items():
            keywords[key] = rate_bps(text)
    except QuantityError as error:
        fail(f"--{_OPTIONS.get(key, key)}: {error}")
    try:
        text = fabric_text(build(**keywords), about)
    except ValueError as error:
        fail(str(error))
    write_text(text, out)


_OPTIONS = {"rate_bps": "rate", "nic_bps": "nic-rate"}


def _ratio(text: str) -> Fraction:
    from echelon.quantities import QuantityError, number

    try:
        return number(text)
    except QuantityError as error:
        fail(f"--oversubscription: {error}")
