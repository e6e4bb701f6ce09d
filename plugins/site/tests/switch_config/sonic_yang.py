"""`config_db.json` as an instance of SONiC's YANG models, and yanglint's verdict on it.

A table is a container of its module, and an entry a member of the list TABLE_LIST, whose keys are
the parts of the entry's key (sonic-buildimage, src/sonic-yang-models/doc). The models are SONiC's;
ECHELON_SONIC_YANG names a folder with them, templates (yang-templates) rendered.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Config = Mapping[str, Any]

_MAPS = {
    "DSCP_TO_TC_MAP": ("sonic-dscp-tc-map", "dscp", "tc"),
    "TC_TO_QUEUE_MAP": ("sonic-tc-queue-map", "tc", "qindex"),
    "TC_TO_PRIORITY_GROUP_MAP": ("sonic-tc-priority-group-map", "tc", "pg"),
    "MAP_PFC_PRIORITY_TO_QUEUE": ("sonic-pfc-priority-queue-map", "pfc_priority", "qindex"),
    "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP": (
        "sonic-pfc-priority-priority-group-map",
        "pfc_priority",
        "pg",
    ),
}
"""The module of each table of maps, and the leaves of an entry of a map."""
_LISTS = {
    "SCHEDULER": ("sonic-scheduler", ("name",)),
    "WRED_PROFILE": ("sonic-wred-profile", ("name",)),
    "PORT": ("sonic-port", ("name",)),
    "PORT_QOS_MAP": ("sonic-port-qos-map", ("ifname",)),
    "QUEUE": ("sonic-queue", ("ifname", "qindex")),
}
"""The module of each other table, and the keys of its list."""
_METADATA = "sonic-device_metadata"
TABLES = {"DEVICE_METADATA", *_MAPS, *_LISTS}
"""The tables that are translated."""
_NUMBERS = {"tc", "weight", "speed", "mtu", "index"}
"""The leaves that are numbers in JSON: integers of at most 32 bits (RFC 7951)."""
_BOOLEANS = {f"wred_{colour}_enable" for colour in ("green", "yellow", "red")}


def _leaf(name: str, value: str) -> object:
    if name in _NUMBERS:
        return int(value)
    if name in _BOOLEANS:
        return json.loads(value)
    return value


def _entries(table: str, config: Config) -> tuple[str, list[dict[str, Any]]]:
    """Return the module of a table, and the members of its list."""
    members: list[dict[str, Any]] = []
    if table in _MAPS:
        module, key, value = _MAPS[table]
        for name, fields in config[table].items():
            inner = [{key: _leaf(key, k), value: _leaf(value, v)} for k, v in fields.items()]
            members.append({"name": name, table: inner})
        return module, members
    module, keys = _LISTS[table]
    for name, fields in config[table].items():
        leaves = {field: _leaf(field, value) for field, value in fields.items()}
        members.append(dict(zip(keys, name.split("|"), strict=True)) | leaves)
    return module, members


def instance(config: Config) -> dict[str, Any]:
    """Return a configuration as data of the models. All of its tables must be known here."""
    data: dict[str, Any] = {}
    for table in config:
        if table == "DEVICE_METADATA":
            module, content = _METADATA, config[table]
        else:
            module, members = _entries(table, config)
            content = {f"{table}_LIST": members}
        data[f"{module}:{module}"] = {table: content}
    return data


def verdict(config: Config, scratch: Path) -> tuple[int, str]:
    """Return yanglint's exit status for a configuration, and its complaints."""
    models = os.environ["ECHELON_SONIC_YANG"]
    modules = [_METADATA, *(module for module, *_ in (_MAPS | _LISTS).values())]
    data = scratch / "instance.json"
    data.write_text(json.dumps(instance(config)))
    schemas = [f"{models}/{module}.yang" for module in modules]
    command = ["yanglint", "-p", models, "-t", "config", *schemas, str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr
