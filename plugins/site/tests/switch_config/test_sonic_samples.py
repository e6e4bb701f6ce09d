"""Queues go into what SONiC's own templates make for real switches (sonic-config-engine).

Its samples have no ports, so each gets those that it names; lanes are invented.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from echelon.model.documents import DocumentError
from echelon_site.switch_config.dialects import SwitchPorts
from echelon_site.switch_config.queues import (
    STRICT,
    EcnMarking,
    PortQueues,
    queues_by_code_point,
)
from echelon_site.switch_config.sonic.dialect import Sonic
from plugins.site.tests.switch_config.sonic_configs import Config, Interface
from plugins.site.tests.switch_config.sonic_yang import TABLES, verdict
from tests.faults import coded
from tests.needs import needs

pytestmark = needs("yanglint", "SONiC's models", "SONiC's configurations")

LOSSLESS = frozenset({3, 4})
QUEUES = PortQueues(queues_by_code_point(), STRICT, LOSSLESS, EcnMarking(1 << 20, 2 << 20, 5))


PORTS = SwitchPorts("leaf1", (1, 2), 4, "leaf1.json")


def with_ports(sample: Any) -> Config:
    """Return a sample with the ports that it names."""
    names = [*sample.get("PORT_QOS_MAP", {}), *sample.get("QUEUE", {})]
    ports = dict.fromkeys(name.partition("|")[0] for name in names)
    ports.pop("global", None)
    lanes = {name: {"lanes": str(n), "speed": "100000"} for n, name in enumerate(ports)}
    return {**sample, "PORT": lanes, "DEVICE_METADATA": {"localhost": {"hostname": "leaf1"}}}


def samples() -> dict[str, Config]:
    """Return the samples by name, without those that are empty or have no ports."""
    configs = {}
    for path in sorted(Path(os.environ["ECHELON_SONIC_QOS"]).glob("qos-*.json")):
        text = path.read_text()
        if text.lstrip().startswith("{"):
            config = with_ports(json.loads(text))
            if len(config["PORT"]) > 1:
                configs[path.stem] = config
    return configs


def is_chassis(config: Config) -> bool:
    return any(key.count("|") > 1 for key in config["QUEUE"])


def test_switches_of_sonics_own_samples_get_the_queues(tmp_path: Path) -> None:
    served = {name: config for name, config in samples().items() if not is_chassis(config)}
    assert len(served) >= 15
    for name, config in served.items():
        sonic = Sonic()
        current = sonic.parse(json.dumps(config), "leaf1.json")
        wanted = dict(sonic.configure(QUEUES, PORTS, current))
        # Of other tables (buffers, tunnels), the translation to the models knows nothing.
        known = {table: content for table, content in wanted.items() if table in TABLES}
        assert (name, *verdict(known, tmp_path)) == (name, 0, "")
        for table in set(config) - TABLES:
            assert wanted[table] == config[table]
        for port in config["PORT"]:
            interface = Interface(wanted, port)
            assert all(interface.served(queue).strict for queue in range(8))
            for dscp in range(64):
                queue = interface.queue(dscp)
                assert queue == dscp // 8
                assert interface.priority_group(dscp) == (queue if queue in LOSSLESS else 0)


def test_a_chassis_is_refused() -> None:
    refused = [config for config in samples().values() if is_chassis(config)]
    assert refused
    for config in refused:
        with pytest.raises(DocumentError, check=coded("not-allowed", "leaf1.json", "QUEUE")):
            Sonic().configure(QUEUES, PORTS, config)
