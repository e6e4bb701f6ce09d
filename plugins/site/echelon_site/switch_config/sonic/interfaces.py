"""Interfaces and queues of a given `config_db.json`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from echelon.model.documents import DocumentError
from echelon_site.switch_config.dialects import Config, SwitchPorts

Fields = dict[str, Any]

_QUEUE_KEY = re.compile(r"([^|,]+)\|(\d{1,2})(?:-(\d{1,2}))?")
"""An interface, and a queue or the first and last of several."""
_OUTSIDE = "Ext"
"""The role of a port with a cable, which is the default."""


def interfaces_of(config: Config, ports: SwitchPorts) -> Sequence[str]:
    """Return the interfaces with cables of a switch, by its own configuration if that is known.

    Otherwise they have the names that SONiC gives ports of `ports.lanes` lanes: a port's number is
    that of its first lane, from Ethernet0 on. Raises `DocumentError` if there are too few,
    or for a chassis.
    """
    if not ports.file:
        return [f"Ethernet{(number - 1) * ports.lanes}" for number in ports.numbers]
    metadata = config.get("DEVICE_METADATA", {}).get("localhost", {})
    if metadata.get("switch_type") == "voq":
        reason = "a chassis names its queues otherwise, and is not served (leave this switch out)"
        path = "DEVICE_METADATA.localhost.switch_type"
        raise DocumentError(ports.file, path, reason, code="not-allowed")
    interfaces = []
    for name, fields in config.get("PORT", {}).items():
        if fields.get("role", _OUTSIDE) == _OUTSIDE:
            interfaces.append(name)
    if len(interfaces) < len(ports.numbers):
        raise DocumentError(
            ports.file,
            "PORT",
            f"has {len(interfaces)} ports with cables, and switch {ports.switch} has"
            f" {len(ports.numbers)} links in the fabric (name the configuration of this switch)",
            code="does-not-fit",
        )
    return interfaces


def queues_apart(config: Config, interfaces: Collection[str], file: str) -> dict[str, Fields]:
    """Return the entries of QUEUE, with one for each queue of these interfaces.

    Raises `DocumentError` for a key of another form, such as several interfaces in old
    releases.
    """
    entries = {}
    for key, fields in config.get("QUEUE", {}).items():
        match = _QUEUE_KEY.fullmatch(key)
        if match is None:
            reason = (
                "is not INTERFACE|QUEUE (a chassis, and old releases that list interfaces in one"
                " key, are not served)"
            )
            raise DocumentError(file, f"QUEUE.{key}", reason, code="not-allowed")
        interface, first, last = match.groups()
        if interface not in interfaces:
            entries[key] = fields
            continue
        for queue in range(int(first), int(last or first) + 1):
            entries[f"{interface}|{queue}"] = dict(fields)
    return entries
