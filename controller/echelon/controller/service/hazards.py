"""The hazards of a configuration: what is unsafe although the service runs with it.

There is one line for each hazard, with what to do.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from echelon.controller.addresses import is_loopback
from echelon.controller.names import short_list
from echelon.model.documents import DocumentError
from echelon.model.errors import Code, CodedError

if TYPE_CHECKING:
    from echelon.controller.service.config import ServiceConfig, SwitchConfig


class ExposureError(CodedError):
    """The API would be open to other machines. One line, with what to do."""

    code: Code = "refused"


def check_exposure(
    host: str | None,
    *,
    tokens: bool,
    tls: bool,
) -> str | None:
    """Return a warning if tokens could be overheard; None: all is well.

    `host` None is a Unix socket. Raise `ExposureError` if anybody on the network could give orders.
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
    warnings = []
    for key, path in private_files(config):
        problem = readable_by_others(path)
        if problem is not None:
            warnings.append(f"{key}: {problem}")

    api = config.api
    has_tokens = api.tokens is not None
    has_tls = api.tls is not None
    try:
        exposure = check_exposure(
            api.listen.host,
            tokens=has_tokens,
            tls=has_tls,
        )
    except ExposureError as error:
        raise DocumentError(str(config.file), "api.listen", str(error)) from None
    if exposure is not None:
        warnings.append(exposure)

    plain = [name for name, switch in config.switches.items() if _is_overheard(switch)]
    if plain:
        names = short_list(plain, _NAMED)
        warnings.append(
            f"the network carries the sessions with {names} without TLS: others on it can read them"
            " and write to these switches (give tls; softswitch certificates makes its files)"
        )
    return warnings


def private_files(config: ServiceConfig) -> Iterator[tuple[str, Path]]:
    """Yield the files with private keys and passwords, each with the key that names it.

    A file that several keys name comes once. The tokens file is none of them: it holds digests of
    random tokens, which reveal nothing.
    """
    store = urlsplit(config.store.get_secret_value())
    options = parse_qs(store.query)
    names = [options[key][0] for key in ("key", "password_file") if key in options]
    files: list[tuple[str, Path | None]] = [("store", Path(name)) for name in names]
    if config.api.tls is not None:
        files.append(("api.tls.key", config.api.tls.key))
    for name, switch in config.switches.items():
        if switch.tls is not None:
            files.append((f"switches.{name}.tls.key", switch.tls.key))

    seen: set[Path] = set()
    for key, path in files:
        if path is not None and path not in seen:
            seen.add(path)
            yield key, path


def readable_by_others(path: Path) -> str | None:
    """Return a warning if every user of this machine may read `path`.

    None: all is well, or there is no file.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return None
    if mode & stat.S_IROTH:
        return f"{path} can be read by every user of this machine (chmod o-rwx {path})"
    return None


def _is_overheard(switch: SwitchConfig) -> bool:
    """Return whether sessions with the switch leave this machine without TLS."""
    host, _, _ = switch.address.rpartition(":")
    return bool(host) and switch.tls is None and not is_loopback(host.strip("[]"))
