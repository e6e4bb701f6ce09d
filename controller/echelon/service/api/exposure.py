"""The check of who can reach the API, and whether that is intended."""

from __future__ import annotations

import ipaddress

from echelon.errors import Code, CodedError


class ExposureError(CodedError):
    """The API would be open to other machines. One line, with what to do."""

    code: Code = "refused"


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a listener at `host`. No name other than localhost counts as
    loopback."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host.lower() == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def check_exposure(host: str | None, *, tokens: bool, tls: bool) -> str | None:
    """Return a warning if tokens could be overheard; None: all is well. `host` None is a Unix socket.

    Raise `ExposureError` if anybody on the network could give orders.
    """
    if host is None or is_loopback(host):
        return None
    if not tokens:
        raise ExposureError(
            f"the API would listen on {host} for everybody who can reach it (give api.tokens, or listen on 127.0.0.1)"
        )
    if not tls:
        return f"the API listens on {host} without TLS: tokens can be overheard (give api.tls)"
    return None
