"""Make certificates for switches and their controller, with an authority of their own.

Each switch and each client gets a folder below DIR, which is all that its machine needs. Run it
again to add switches, and each month: what is still good is kept, and what ends soon is renewed.
A switch and a controller take renewed files without being started again.

Example: softswitch certificates --out certificates s1=10.0.0.1 s2=switch2.example
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from softswitch.certificates import AUTHORITY_DAYS, AUTHORITY_FOLDER, DAYS
from softswitch.rpc.tls import AUTHORITY, CERTIFICATE, KEY

if TYPE_CHECKING:
    from softswitch.certificates.folders import Outcome

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A name is that of a folder, and the common name of a certificate, which has 64 characters."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "switches",
        nargs="*",
        type=_switch,
        metavar="NAME=HOST[,HOST...]",
        help="a switch, and the addresses or names at which controllers reach it",
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="the folder for all of it; it has the authority's key, so keep it where no switch is",
    )
    parser.add_argument(
        "--client",
        action="append",
        default=[],
        type=_name,
        metavar="NAME",
        help=(
            "a client that may call the switches (repeatable; default: controller, the first time)"
        ),
    )
    parser.add_argument(
        "--days",
        type=_days,
        default=DAYS,
        metavar="N",
        help=f"how long certificates are valid (default {DAYS})",
    )


def run(options: argparse.Namespace) -> int:
    """Make or renew the certificates, and say where they go."""
    try:
        from softswitch.certificates.folders import keep
    except ImportError as error:
        raise ValueError(
            f"softswitch certificates: {error.name} is not installed (pip install cryptography)"
        ) from None

    out: Path = options.out
    servers = dict(options.switches)
    clients = options.client
    if len(servers) != len(options.switches) or servers.keys() & set(clients):
        raise ValueError("softswitch certificates: a name is given twice; give each once")
    authority, outcomes = keep(out, servers, clients, options.days)

    print(f"{authority.name}: {authority.action}, until {authority.end:%Y-%m-%d}")
    for outcome in outcomes:
        hosts = f", for {', '.join(outcome.hosts)}" if outcome.is_server else ""
        print(f"{outcome.name}: {outcome.action}, until {outcome.end:%Y-%m-%d}{hosts}")
    print(_advice(outcomes))
    return 0


def _advice(outcomes: Iterable[Outcome]) -> str:
    """Return where the folders go, and the words that name them."""
    lines = ["", "The controller's configuration (echelon.yaml):"]
    folders = []
    for outcome in outcomes:
        folder = outcome.folder
        if outcome.is_server:
            folders.append(folder)
            continue
        files = {"ca": AUTHORITY, "certificate": CERTIFICATE, "key": KEY}
        keys = ", ".join(f"{key}: {folder / file}" for key, file in files.items())
        lines.append(f"  tls: {{{keys}}}    # as {outcome.name}")
    lines += ["", "Each switch, on whose machine only its own folder is:"]
    lines += [f"  softswitch --tls {folder} ..." for folder in folders]
    return "\n".join(lines)


def _switch(text: str) -> tuple[str, tuple[str, ...]]:
    name, separator, rest = text.partition("=")
    hosts = tuple(_host(word) for word in rest.split(",")) if separator else (name,)
    if not all(hosts):
        raise argparse.ArgumentTypeError(f"{text!r}: give NAME=HOST, such as s1=10.0.0.1")
    return _name(name), hosts


def _host(text: str) -> str:
    """Return the host of HOST or HOST:PORT."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    host, colon, port = text.rpartition(":")
    if colon and port.isdecimal() and ":" not in host:
        return host
    return text


def _name(text: str) -> str:
    if not _NAME.fullmatch(text) or text == AUTHORITY_FOLDER:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a name of a folder: letters, digits, dot, hyphen and underscore, 64"
            f" at most, and not {AUTHORITY_FOLDER!r}"
        )
    return text


def _days(text: str) -> int:
    # Nothing is valid for longer than the authority.
    if not text.isdecimal() or not 1 <= int(text) <= AUTHORITY_DAYS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of days from 1 to {AUTHORITY_DAYS}"
        )
    return int(text)
