"""What is unsafe in a configuration although the service runs with it: one line for each, with what
to do.
"""

from __future__ import annotations

import ipaddress
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from echelon.model.documents import DocumentError
from echelon.model.errors import Code, CodedError

if TYPE_CHECKING:
    from echelon.controller.service.config import ServiceConfig


class ExposureError(CodedError):
    """The API would be open to other machines. One line, with what to do."""

    code: Code = "refused"


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a listener at `host`. No name other than localhost
    counts as loopback."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host.lower() == "localhost"
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
    else:
        mapped = None
    return (mapped or address).is_loopback


def check_exposure(host: str | None, *, tokens: bool, tls: bool) -> str | None:
    """Return a warning if tokens could be overheard; None: all is well. `host` None is a Unix
    socket.

    Raise `ExposureError` if anybody on the network could give orders.
    """
    if host is None or is_loopback(host):
        return None
    if not tokens:
        raise ExposureError(
            f"the API would listen on {host} for everybody who can reach it (give api.tokens, or"
            " listen on 127.0.0.1)"
        )
    if not tls:
        return f"the API listens on {host} without TLS: tokens can be overheard (give api.tls)"
    return None


_NAMED = 3
"""Number of switches that a warning names."""


def hazards(config: ServiceConfig) -> list[str]:
    """Return the warnings. Raise `DocumentError` if anybody on the network could give orders."""
    found = [
        f"{key}: {problem}"
        for key, path in private_files(config)
        if (problem := readable_by_others(path))
    ]
    try:
        exposed = check_exposure(
            config.api.listen.host,
            tokens=config.api.tokens is not None,
            tls=config.api.tls is not None,
        )
    except ExposureError as error:
        raise DocumentError(str(config.file), "api.listen", str(error)) from None
    if exposed is not None:
        found.append(exposed)
    plain = [
        name
        for name, switch in config.switches.items()
        if switch.tls is None and _is_remote(switch.address)
    ]
    if plain:
        if len(plain) > _NAMED:
            more = f" and {len(plain) - _NAMED} more"
        else:
            more = ""
        found.append(
            f"the network carries the sessions with {', '.join(plain[:_NAMED])}{more} without TLS:"
            " others on it can read them and write to these switches (give tls)"
        )
    return found


def private_files(config: ServiceConfig) -> Iterator[tuple[str, Path]]:
    """Yield the files with private keys and passwords, each once, with the key of the configuration
    that names it.

    The tokens file is none of them: it holds digests of random tokens, which reveal nothing.
    """
    seen: set[Path] = set()
    options = parse_qs(urlsplit(config.store.get_secret_value()).query)
    named: list[tuple[str, Path | None]] = [
        ("store", Path(options[name][0])) for name in ("key", "password_file") if name in options
    ]
    named.append(("api.tls.key", getattr(config.api.tls, "key", None)))
    named += [
        (f"switches.{name}.tls.key", getattr(one.tls, "key", None))
        for name, one in config.switches.items()
    ]
    for key, path in named:
        if path is not None and path not in seen:
            seen.add(path)
            yield key, path


def readable_by_others(path: Path) -> str | None:
    """Return what is wrong if every user of this machine may read `path`; None: all is well, or
    there is no file.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return None
    if mode & stat.S_IROTH:
        return f"{path} can be read by every user of this machine (chmod o-rwx {path})"
    return None


def _is_remote(address: str) -> bool:
    host, _, _ = address.rpartition(":")
    return not is_loopback(host.strip("[]"))
