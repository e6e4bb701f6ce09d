"""The fixed tables that softswitch has of a Tofino 1: ports, traffic manager and multicast.

`fixed.toml` lists the tables with their fields. Here they get the form of a `bf-rt.json`, which is
what clients read.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from echelon_tofino_model.bfruntime.schema import Schema, parse

__all__ = ["GROUP", "NODE", "PORT", "fixed_schema"]

PORT = "$PORT"
"""The table of ports."""
NODE = "$pre.node"
"""The table of multicast nodes: the ports of each, and the instance of their copies."""
GROUP = "$pre.mgid"
"""The table of multicast groups, which are lists of nodes."""


@cache
def fixed_schema() -> Schema:
    """Return the description of the fixed tables."""
    source = files(__package__).joinpath("fixed.toml").read_text(encoding="utf-8")
    tables = [_table(listed) for listed in tomllib.loads(source)["tables"]]
    document = {"schema_version": "1.0.0", "tables": tables, "learn_filters": []}
    return parse(json.dumps(document).encode(), "fixed tables")


def _table(listed: Mapping[str, Any]) -> dict[str, Any]:
    key = []
    for number, (name, type_name) in enumerate(listed["key"].items(), start=1):
        key.append(_key_field(number, name, type_name))
    table = {
        "name": listed["name"],
        "id": listed["id"],
        "table_type": listed["type"],
        "size": listed["size"],
        "annotations": [],
        "depends_on": [],
        "key": key,
        "data": [_field(field) for field in listed["data"]],
        "supported_operations": [],
        "attributes": listed.get("attributes", []),
    }
    if "actions" in listed:
        actions = enumerate(listed["actions"], 1)
        table["action_specs"] = [_action(number, action) for number, action in actions]
    return table


def _key_field(
    number: int,
    name: str,
    type_name: str,
) -> dict[str, Any]:
    return {
        "id": number,
        "name": name,
        "repeated": False,
        "annotations": [],
        "mandatory": True,
        "match_type": "Exact",
        "type": {"type": type_name},
    }


def _action(number: int, listed: Mapping[str, Any]) -> dict[str, Any]:
    data = [_field(field) for field in listed["data"]]
    return {"id": number, "name": listed["name"], "annotations": [], "data": data}


def _field(listed: Mapping[str, Any]) -> dict[str, Any]:
    described = {"type": listed["type"]}
    if "choices" in listed:
        described["choices"] = listed["choices"]
    if "default" in listed:
        described["default_value"] = listed["default"]
    singleton = {
        "id": listed["id"],
        "name": listed["name"],
        "repeated": listed.get("repeated", False),
        "annotations": [],
        "type": described,
    }
    return {
        "mandatory": listed.get("mandatory", False),
        "read_only": listed.get("read_only", False),
        "singleton": singleton,
    }
