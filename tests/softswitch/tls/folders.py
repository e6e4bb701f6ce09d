"""Folders of certificates as `softswitch certificates` makes them, good and expired."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc

from softswitch.certificates.folders import keep
from softswitch.certificates.issuing import Wanted, issue, read_credential

LOOPBACK = ("127.0.0.1",)


def make(out: Path, *clients: str, **switches: tuple[str, ...]) -> Path:
    """Make folders for switches (by default s1 on loopback) and clients."""
    keep(out, switches or {"s1": LOOPBACK}, clients, 398)
    return out


def expire(folder: Path) -> None:
    """Put an expired certificate, by the same authority, in place of the one in a folder."""
    authority = folder.parent / "authority"
    pairs = []
    for place in (authority, folder):
        pairs.append(
            read_credential(
                (place / "certificate.pem").read_bytes(), (place / "key.pem").read_bytes()
            )
        )
    ca, good = pairs
    long_ago = datetime.now(UTC) - timedelta(days=20)
    old = issue(ca, Wanted(folder.name, good.hosts, good.is_server), long_ago, 10)
    (folder / "key.pem").write_bytes(old.key_pem)
    (folder / "certificate.pem").write_bytes(old.certificate_pem)


def channel_credentials(folder: Path) -> grpc.ChannelCredentials:
    """Return the credentials of a client that has this folder."""
    return grpc.ssl_channel_credentials(
        (folder / "authority.pem").read_bytes(),
        (folder / "key.pem").read_bytes(),
        (folder / "certificate.pem").read_bytes(),
    )
