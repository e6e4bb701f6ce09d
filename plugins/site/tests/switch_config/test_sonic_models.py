"""Files for three fabrics, by the commands that a user types, pass SONiC's own YANG models."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from echelon.cli import app
from echelon.model.fabric.load import load_fabric
from echelon_site.switch_config.dialects import SwitchPorts
from echelon_site.switch_config.queues import (
    EcnMarking,
    PortQueues,
    QueueService,
    queues_by_code_point,
)
from echelon_site.switch_config.sonic.dialect import Sonic
from plugins.site.tests.switch_config.sonic_configs import (
    Config,
    delivered_config,
    delivered_text,
)
from plugins.site.tests.switch_config.sonic_yang import verdict
from tests.needs import needs

pytestmark = needs("yanglint", "SONiC's models")

FABRICS = {
    "leaf-spine": ["--leaves", "4", "--spines", "2", "--hosts-per-leaf", "8"],
    "rail-optimised": ["--servers", "8", "--rails", "4", "--spines", "2"],
    "clos": ["--pods", "2", "--leaves", "2", "--spines", "2"],
}


def echelon(*arguments: str | Path) -> None:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output


ALL = ["--pfc", "3,4", "--ecn", "1 MiB,2 MiB,5%"]


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        *((shape, ALL) for shape in FABRICS),
        ("leaf-spine", []),
        ("leaf-spine", ["--pfc", "none"]),
    ],
)
def test_files_of_a_fabric_are_valid(shape: str, options: list[str], tmp_path: Path) -> None:
    fabric = tmp_path / "fabric.yaml"
    echelon("fabric", shape, *FABRICS[shape], "-o", fabric)
    current = tmp_path / "current"
    current.mkdir()
    switches = load_fabric(fabric).switches
    for switch in switches:
        (current / f"{switch}.json").write_text(delivered_text())
    out = tmp_path / "out"
    echelon("switch-config", fabric, "--against", current, *options, "-o", out)
    assert {path.stem for path in out.iterdir()} == set(switches)
    for switch in switches:
        config = json.loads((out / f"{switch}.json").read_text())
        assert verdict(config, tmp_path) == (0, "")


def test_shares_are_valid_and_so_is_a_file_without_a_given_one_once_ports_are_there(
    tmp_path: Path,
) -> None:
    services = (*(QueueService(0, weight) for weight in range(1, 8)), QueueService(1))
    queues = PortQueues(
        queues_by_code_point((0, 8, 10, 26, 34, 40, 46, 56)),
        services,
        frozenset({3, 4}),
        EcnMarking(100_000, 400_000, 20),
    )
    alone = dict(Sonic().configure(queues, SwitchPorts("leaf1", tuple(range(1, 9)), 4), {}))
    ports = {"PORT": delivered_config(8)["PORT"]}
    assert verdict(alone | ports, tmp_path) == (0, "")


def weigh_too_much(config: Config) -> None:
    config["SCHEDULER"]["ECHELON_STRICT"]["weight"] = "101"


def name_no_scheduler(config: Config) -> None:
    config["QUEUE"]["Ethernet0|3"]["scheduler"] = "ECHELON_NONE"


def name_no_code_point(config: Config) -> None:
    config["DSCP_TO_TC_MAP"]["ECHELON"]["64"] = "3"


def name_no_port(config: Config) -> None:
    config["PORT_QOS_MAP"]["Ethernet999"] = {"dscp_to_tc_map": "ECHELON"}


def add_a_field(config: Config) -> None:
    config["PORT_QOS_MAP"]["Ethernet0"]["dscp_map"] = "ECHELON"


def mark_before_it_begins(config: Config) -> None:
    config["WRED_PROFILE"]["ECHELON"]["green_max_threshold"] = "1"


@pytest.mark.parametrize(
    "spoil",
    [
        weigh_too_much,
        name_no_scheduler,
        name_no_code_point,
        name_no_port,
        add_a_field,
        mark_before_it_begins,
    ],
)
def test_the_models_refuse_what_is_wrong(spoil: Callable[[Config], None], tmp_path: Path) -> None:
    queues = PortQueues(
        queues_by_code_point(),
        tuple(map(QueueService, range(8))),
        frozenset({3}),
        EcnMarking(100_000, 400_000, 20),
    )
    config = dict(Sonic().configure(queues, SwitchPorts("leaf1", (1, 2), 4), delivered_config(4)))
    assert verdict(config, tmp_path) == (0, "")
    spoilt = deepcopy(config)
    spoil(spoilt)
    status, complaints = verdict(spoilt, tmp_path)
    assert status != 0
    assert "libyang err" in complaints
