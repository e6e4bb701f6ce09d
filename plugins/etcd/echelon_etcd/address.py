"""The address of etcd and its credentials, from a URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pydantic import SecretStr

from echelon.controller.service.store.base import StoreError

DEFAULT_PORT = 2379
DEFAULT_PREFIX = "echelon"
_OPTIONS = ("ca", "certificate", "key", "password_file")
_FORM = "write etcd://HOST:2379/PREFIX"


@dataclass(frozen=True, slots=True)
class Tls:
    """Contents of PEM files."""

    ca: bytes | None
    """The authority that signed etcd's certificates; None: one of the well-known ones."""
    certificate: bytes | None = field(repr=False, default=None)
    key: bytes | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class Address:
    endpoints: tuple[str, ...]
    """HOST:PORT each; members of one cluster."""
    prefix: str
    """Prefix of all keys of this store, without surrounding slashes."""
    tls: Tls | None = None
    user: str | None = field(repr=False, default=None)
    password: SecretStr | None = None

    def __str__(self) -> str:
        """Return the URL without user, password and files."""
        return f"etcd://{','.join(self.endpoints)}/{self.prefix}"


def parse(url: str) -> Address:
    """Parse `url` and read the files that it names.

    Raise `StoreError`, which shows neither user nor password.
    """
    # Some versions of urlsplit refuse an authority that lists several IPv6 addresses, so it is
    # split off first.
    scheme, separator, rest = url.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    credentials, _, hosts = authority.rpartition("@")
    try:
        parts = urlsplit(f"{scheme}{separator}{rest[len(authority) :]}")
        endpoints = tuple(_endpoint(host) for host in hosts.split(","))
    except ValueError as error:
        raise StoreError(f"store etcd://...: {error} ({_FORM})") from None
    if parts.scheme != "etcd" or parts.fragment:
        raise StoreError(f"store etcd://{hosts}: is not a URL of etcd ({_FORM})")
    place = f"store etcd://{hosts}"
    prefix = unquote(parts.path).strip("/") or DEFAULT_PREFIX
    options = _options(parts, place)
    user, password = _login(credentials, options, place)
    return Address(endpoints, prefix, _tls(options, place), user, password)


def _endpoint(host: str) -> str:
    # Parsed only for its checks: brackets of IPv6 addresses, ports.
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise ValueError("a host is missing")
    if ":" in parts.hostname:
        name = f"[{parts.hostname}]"
    else:
        name = parts.hostname
    return f"{name}:{parts.port or DEFAULT_PORT}"


def _options(parts: SplitResult, place: str) -> Mapping[str, str]:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name, value in options.items():
        if name not in _OPTIONS:
            raise StoreError(f"{place}: unknown option {name!r} (known: {', '.join(_OPTIONS)})")
        if not value:
            raise StoreError(f"{place}: option {name} does not name a file")
    return options


def _login(
    credentials: str,
    options: Mapping[str, str],
    place: str,
) -> tuple[str | None, SecretStr | None]:
    user, colon, password = credentials.partition(":")
    file = options.get("password_file")
    if file is not None:
        if colon:
            raise StoreError(f"{place}: has a password and a password_file (give one)")
        password = _read(file, f"{place}: password_file").decode(errors="replace").strip()
    else:
        password = unquote(password)
    if bool(user) != bool(password):
        if password:
            missing = "user (USER@ before the host)"
        else:
            missing = "password (a password_file=FILE)"
        raise StoreError(f"{place}: the {missing} is missing")
    if user:
        return (unquote(user), SecretStr(password))
    return (None, None)


def _tls(options: Mapping[str, str], place: str) -> Tls | None:
    files = {
        name: _read(options[name], f"{place}: {name}")
        for name in ("ca", "certificate", "key")
        if name in options
    }
    if ("certificate" in files) != ("key" in files):
        missing = "key" if "certificate" in files else "certificate"
        raise StoreError(
            f"{place}: {missing} is missing (a client's certificate and its key go together)"
        )
    for name, content in files.items():
        if b"-----BEGIN " not in content:
            raise StoreError(f"{place}: {name}: {options[name]} is not a PEM file")
    if files:
        return Tls(files.get("ca"), files.get("certificate"), files.get("key"))
    return None


def _read(file: str, place: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{place}: {file} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
