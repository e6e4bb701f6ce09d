"""SONiC: `config_db.json`, as `config load`, `config reload` and `config replace` take it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from echelon.model.documents import DocumentError
from echelon.planning.policies.levels import JOB_QUEUES
from echelon_site.switch_config.dialects import Config, Dialect, SwitchPorts
from echelon_site.switch_config.queues import PortQueues
from echelon_site.switch_config.sonic.interfaces import Fields, interfaces_of, queues_apart
from echelon_site.switch_config.sonic.tables import NAME, port_fields, profiles, schedulers

_READ = ("DEVICE_METADATA", "PORT", "PORT_QOS_MAP", "QUEUE")
"""The tables of which entries are read."""
_GLOBAL = "global"
"""The key of PORT_QOS_MAP that is no interface: what the whole switch does."""


class Sonic(Dialect):
    """The tables of `config_db.json` about queues; all else stays as it is given."""

    suffix = "json"

    def parse(self, text: str, file: str) -> Config:
        try:
            config = json.loads(text)
        except ValueError as error:
            reason = f"is not JSON: {error} (name a config_db.json)"
            raise DocumentError(file, "", reason, code="bad-syntax") from None
        _check(config, file)
        checked: Config = config
        return checked

    def configure(self, queues: PortQueues, ports: SwitchPorts, current: Config) -> Config:
        interfaces = interfaces_of(current, ports)
        config = deepcopy(dict(current))
        for table, entries in profiles(queues).items():
            kept = {}
            for name, fields in config.get(table, {}).items():
                # Profiles of an earlier run may have had other shares.
                if not name.startswith(NAME):
                    kept[name] = fields
            config[table] = {**kept, **entries}
        _bind_ports(config, interfaces, queues)
        config["QUEUE"] = queues_apart(config, interfaces, ports.file)
        _bind_queues(config["QUEUE"], interfaces, queues)
        return config

    def text(self, config: Config) -> str:
        return json.dumps(config, indent=4, ensure_ascii=False) + "\n"


def _bind_ports(config: dict[str, Any], interfaces: Sequence[str], queues: PortQueues) -> None:
    """Give interfaces the maps."""
    bindings = config.setdefault("PORT_QOS_MAP", {})
    for interface in interfaces:
        bindings[interface] = port_fields(queues.lossless, bindings.get(interface, {}))
    # Chips whose map is the whole switch's would keep the former one.
    if "dscp_to_tc_map" in bindings.get(_GLOBAL, {}):
        bindings[_GLOBAL]["dscp_to_tc_map"] = NAME


def _bind_queues(
    bindings: dict[str, Fields],
    interfaces: Sequence[str],
    queues: PortQueues,
) -> None:
    """Give queues of interfaces their schedulers, and those of jobs the marking."""
    by_queue = schedulers(queues.services)
    for interface in interfaces:
        for queue, (scheduler, _) in by_queue.items():
            binding = bindings.setdefault(f"{interface}|{queue}", {})
            binding["scheduler"] = scheduler
            # Best effort and acknowledgements stay as they are: they may not know ECN.
            if queues.marking is not None and queue in JOB_QUEUES:
                binding["wred_profile"] = NAME


def _check(config: object, file: str) -> None:
    """Raise `DocumentError` unless this is a mapping, and each table that is read has entries."""
    if not isinstance(config, dict):
        reason = "is not a mapping of tables (name a config_db.json)"
        raise DocumentError(file, "", reason, code="not-a-mapping")
    for table in config:
        entries = config[table]
        if not isinstance(entries, dict):
            reason = "is not a mapping of entries (name a config_db.json)"
            raise DocumentError(file, table, reason, code="not-a-mapping")
    for table in _READ:
        for key, fields in config.get(table, {}).items():
            if not isinstance(fields, dict):
                reason = "is not a mapping of fields (name a config_db.json)"
                raise DocumentError(file, f"{table}.{key}", reason, code="not-a-mapping")
