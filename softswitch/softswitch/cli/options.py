"""The checked options of a switch."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from softswitch.cli.services import Service
from softswitch.rpc.tls import TlsFiles

__all__ = ["Interface", "SwitchOptions"]


@dataclass(frozen=True, slots=True)
class Interface:
    """The attachment of a port: a network interface, or `unix:PATH`."""

    port: int
    name: str


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
    """The line rate of each limited port, in bits per second.

    All other ports are infinitely fast.
    """
    asked: tuple[Service, ...]
    """The servers beside P4Runtime, from plug-ins."""
    parsed: argparse.Namespace
    """All options as they were given: those of the servers are among them."""
    seed: int
    engine: str
    """auto, native or python."""
    memory_bytes: int
    """The memory of a program's arrays and packets."""
    roles: tuple[str, ...]
    """The roles of controllers that may write beside the default role's primary."""
    pcap: Path | None
    log_console: bool
    log_file: Path | None
    log_level: str
    log_flush: bool
    dump_bytes: int
    notes: tuple[str, ...]
    """Remarks for the user about options that have no effect."""
