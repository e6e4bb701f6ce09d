"""The checked options of a switch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Interface", "NamedFile", "SwitchOptions", "TlsFiles"]


@dataclass(frozen=True, slots=True)
class Interface:
    """The attachment of a port: a network interface, or `unix:PATH`."""

    port: int
    name: str


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file and the name of what it describes."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files of the gRPC server."""

    authority: Path | None
    certificate: Path
    key: Path
    with_client_auth: bool


@dataclass(frozen=True, slots=True)
class SwitchOptions:
    """The options of one switch."""

    program: Path | None
    p4info: Path | None
    interfaces: tuple[Interface, ...]
    device_id: int
    address: str
    tls: TlsFiles | None
    cpu_port: int | None
    drop_port: int
    queues: int
    queue_depth_bytes: int | None
    rates_bps: Mapping[int, int | None]
    """The line rate of each limited port, in bits per second. All other ports are infinitely fast."""
    bf_runtime: str | None
    """The address of BF Runtime; None: it is not served."""
    bf_rt_info: NamedFile | None
    """The description of the program that BF Runtime serves, under the program's name."""
    seed: int
    pcap: Path | None
    log_console: bool
    log_file: Path | None
    log_level: str
    log_flush: bool
    dump_bytes: int
    notes: tuple[str, ...]
    """Remarks for the user about options that have no effect."""
