"""Configurations of SONiC for tests: one as a switch has it, and what any of them does to packets.

The reader follows the references of `config_db.json` as orchagent does, and shares no code with
the writer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Config = dict[str, Any]

LANES = 4


def delivered_config(ports: int = 32) -> Config:
    """Return a switch with PFC for queues 3 and 4, as its vendor delivers it."""
    names = [f"Ethernet{LANES * number}" for number in range(ports)]
    config: Config = {
        "DEVICE_METADATA": {"localhost": {"hostname": "leaf", "hwsku": "Force10-S6000"}},
        "PORT": {},
        "PORT_QOS_MAP": {"global": {"dscp_to_tc_map": "AZURE"}},
        "QUEUE": {"CPU|0-5": {"scheduler": "scheduler.0"}},
        "DSCP_TO_TC_MAP": {"AZURE": {str(dscp): "1" for dscp in range(64)} | {"3": "3", "4": "4"}},
        "TC_TO_QUEUE_MAP": {"AZURE": {str(number): str(number) for number in range(8)}},
        "TC_TO_PRIORITY_GROUP_MAP": {"AZURE": {"0": "0", "3": "3", "4": "4"}},
        "MAP_PFC_PRIORITY_TO_QUEUE": {"AZURE": {str(number): str(number) for number in range(8)}},
        "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP": {"AZURE": {"3": "3", "4": "4"}},
        "SCHEDULER": {"scheduler.0": {"type": "DWRR", "weight": "14"}},
        "WRED_PROFILE": {"AZURE_LOSSLESS": {"ecn": "ecn_all", "green_min_threshold": "1048576"}},
    }
    for number, name in enumerate(names):
        first = 1 + LANES * number
        config["PORT"][name] = {
            "lanes": ",".join(map(str, range(first, first + LANES))),
            "speed": "100000",
            "index": str(number + 1),
            "mtu": "9100",
            "admin_status": "up",
        }
        config["PORT_QOS_MAP"][name] = {
            "dscp_to_tc_map": "AZURE",
            "tc_to_queue_map": "AZURE",
            "tc_to_pg_map": "AZURE",
            "pfc_to_queue_map": "AZURE",
            "pfc_to_pg_map": "AZURE",
            "pfc_enable": "3,4",
        }
        config["QUEUE"][f"{name}|0-2"] = {"scheduler": "scheduler.0"}
        config["QUEUE"][f"{name}|3-4"] = {
            "scheduler": "scheduler.0",
            "wred_profile": "AZURE_LOSSLESS",
        }
    return config


def delivered_text(ports: int = 32) -> str:
    return json.dumps(delivered_config(ports))


@dataclass(frozen=True)
class Served:
    """How a queue is served: a strict one before all of lower numbers, or by its weight."""

    strict: bool
    weight: int


@dataclass(frozen=True)
class Interface:
    """What an interface of a configuration does with packets."""

    config: Config
    name: str

    @cached_property
    def maps(self) -> dict[str, str]:
        fields: dict[str, str] = self.config["PORT_QOS_MAP"][self.name]
        return fields

    def queue(self, dscp: int) -> int:
        """Return the queue of a code point, from map to map."""
        classes = self.config["DSCP_TO_TC_MAP"][self.maps["dscp_to_tc_map"]]
        queues = self.config["TC_TO_QUEUE_MAP"][self.maps["tc_to_queue_map"]]
        return int(queues[classes[str(dscp)]])

    def priority_group(self, dscp: int) -> int:
        classes = self.config["DSCP_TO_TC_MAP"][self.maps["dscp_to_tc_map"]]
        groups = self.config["TC_TO_PRIORITY_GROUP_MAP"][self.maps["tc_to_pg_map"]]
        return int(groups[classes[str(dscp)]])

    def paused_queue(self, priority: int) -> int:
        """Return the queue that a PFC frame for a priority stops."""
        queues = self.config["MAP_PFC_PRIORITY_TO_QUEUE"][self.maps["pfc_to_queue_map"]]
        return int(queues[str(priority)])

    def binding(self, queue: int) -> dict[str, str]:
        """Return the entry of a queue. A queue has one, whether its key is its own or a range."""
        entries = []
        for key, fields in self.config["QUEUE"].items():
            name, _, numbers = key.partition("|")
            first, _, last = numbers.partition("-")
            if name == self.name and int(first) <= queue <= int(last or first):
                entries.append(fields)
        (entry,) = entries
        return dict(entry)

    def served(self, queue: int) -> Served:
        scheduler = self.config["SCHEDULER"][self.binding(queue)["scheduler"]]
        return Served(scheduler["type"] == "STRICT", int(scheduler.get("weight", 1)))
