"""The TLS options of a switch, and the warnings about a switch without TLS."""

from __future__ import annotations

import argparse
import ipaddress
from collections.abc import Iterator, Mapping
from pathlib import Path

from softswitch.rpc.tls import TlsFiles

__all__ = ["add_allowed", "add_server", "chosen", "exposures"]

_FILES = {
    "cacert": "certificate authority that signs the clients' certificates",
    "cert": "the server's certificate (PEM)",
    "key": "the server's key (PEM)",
}


def add_server(add: argparse._ActionsContainer) -> None:
    """Add the options that simple_switch_grpc has, too."""
    add.add_argument(
        "--grpc-server-ssl",
        action="store_true",
        help="serve TLS; needs --grpc-server-cert and --grpc-server-key",
    )
    for name, about in _FILES.items():
        add.add_argument(
            f"--grpc-server-{name}",
            type=Path,
            metavar="FILE",
            help=about,
        )
    add.add_argument(
        "--grpc-server-with-client-auth",
        action="store_true",
        help="refuse clients without a valid certificate",
    )


def add_allowed(add: argparse._ActionsContainer) -> None:
    """Add the options that simple_switch_grpc does not have."""
    add.add_argument(
        "--tls",
        type=Path,
        metavar="DIR",
        help=(
            "serve TLS, and demand certificates of clients, with the files of a folder that"
            " softswitch certificates has made"
        ),
    )
    add.add_argument(
        "--allow-client",
        action="append",
        default=[],
        metavar="NAME",
        help=(
            "take calls only of clients whose certificate has this name (repeatable; @FILE has a"
            " name a line)"
        ),
    )


def chosen(options: argparse.Namespace, notes: list[str]) -> TlsFiles | None:
    """Return the files that the options name; None means plain text.

    Raise ValueError for options that contradict each other. `notes` gets a line for each that has
    no effect.
    """
    files = {name: getattr(options, f"grpc_server_{name}") for name in _FILES}
    named = [f"--grpc-server-{name}" for name, path in files.items() if path is not None]
    allowed = tuple(options.allow_client)
    if options.tls is not None:
        if options.grpc_server_ssl or named:
            other = named[0] if named else "--grpc-server-ssl"
            raise ValueError(f"softswitch: --tls and {other} exclude each other; give one of them")
        return TlsFiles.from_folder(options.tls, allowed)
    if allowed and not (options.grpc_server_ssl and options.grpc_server_with_client_auth):
        # It would seem that only these clients may call.
        raise ValueError(
            "softswitch: --allow-client needs certificates of clients: give --tls DIR, or"
            " --grpc-server-ssl and --grpc-server-with-client-auth"
        )
    if not options.grpc_server_ssl:
        if options.grpc_server_with_client_auth:
            named.append("--grpc-server-with-client-auth")
        notes += [f"{name} is ignored because --grpc-server-ssl is not given" for name in named]
        return None
    for name in ("cert", "key"):
        if files[name] is None:
            raise ValueError(f"softswitch: --grpc-server-ssl needs --grpc-server-{name}")
    if options.grpc_server_with_client_auth and files["cacert"] is None:
        raise ValueError("softswitch: --grpc-server-with-client-auth needs --grpc-server-cacert")
    return TlsFiles(
        files["cacert"],
        files["cert"],
        files["key"],
        options.grpc_server_with_client_auth,
        allowed,
    )


def exposures(addresses: Mapping[str, str], tls: TlsFiles | None) -> Iterator[str]:
    """Yield a warning for each server that takes orders from strangers on other machines.

    Args:
        addresses: the address of each server by its name. The first one's TLS is `tls`; the others,
            which plug-ins add, have none.
        tls: None means plain text.
    """
    for index, (name, address) in enumerate(addresses.items()):
        if is_loopback(address):
            continue
        if index > 0:
            yield (
                f"warning: {name} at {address} takes orders from everybody who reaches it: give it"
                " an address of loopback"
            )
        elif tls is None:
            yield (
                f"warning: {name} at {address} take orders from everybody who reaches them: give"
                " --tls DIR (softswitch certificates makes it), or"
                " --grpc-server-addr 127.0.0.1:9559"
            )
        elif not tls.with_client_auth:
            yield (
                f"warning: {name} at {address} take orders from everybody who reaches them, since"
                " clients need no certificate: give --grpc-server-with-client-auth"
            )


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches `HOST:PORT` or `unix:PATH`.

    No name other than localhost counts as loopback.
    """
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        number = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host.lower() == "localhost"
    if isinstance(number, ipaddress.IPv6Address) and number.ipv4_mapped is not None:
        return number.ipv4_mapped.is_loopback
    return number.is_loopback
