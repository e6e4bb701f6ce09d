"""`echelon switch-config`: files, a dry run by its status, and one line for each mistake."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from echelon.cli import app
from echelon.cli.usage import BAD_INPUT, FAILED
from plugins.site.tests.switch_config.sonic_configs import (
    Interface,
    delivered_config,
    delivered_text,
)
from tests.echelon.service.conftest import building
from tests.echelon.service.lab import TWO_BY_TWO, Lab, settle
from tests.faults import mentions

SWITCHES = ["leaf1", "leaf2", "spine1", "spine2"]


def run(*arguments: str | Path) -> Result:
    command = ["switch-config", *(str(argument) for argument in arguments)]
    # Wide enough for every line.
    return CliRunner().invoke(app, command, env={"COLUMNS": "300"})


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    file = tmp_path / "fabric.yaml"
    file.write_text(yaml.safe_dump(TWO_BY_TWO))
    return file


@pytest.fixture
def current(tmp_path: Path) -> Path:
    folder = tmp_path / "current"
    folder.mkdir()
    for switch in SWITCHES:
        (folder / f"{switch}.json").write_text(delivered_text(4))
    return folder


def test_each_switch_has_a_file_for_its_ports(fabric: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(fabric, "--for", "sonic", "--lanes", "8", "-o", out)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [Path(line).stem for line in result.stdout.splitlines()] == SWITCHES
    leaf = json.loads((out / "leaf1.json").read_text())
    spine = json.loads((out / "spine1.json").read_text())
    assert list(leaf["PORT_QOS_MAP"]) == ["Ethernet0", "Ethernet8", "Ethernet16", "Ethernet24"]
    assert list(spine["PORT_QOS_MAP"]) == ["Ethernet0", "Ethernet8"]
    # The numbers of lanes are the chip's, which no fabric file has.
    assert "PORT" not in leaf


def test_a_dry_run_tells_by_its_status_whether_a_switch_has_to_change(
    fabric: Path, current: Path, tmp_path: Path
) -> None:
    before = {path: path.read_text() for path in current.iterdir()}
    dry = run(fabric, "--against", current)
    assert (dry.exit_code, dry.stderr) == (FAILED, "")
    assert {path: path.read_text() for path in current.iterdir()} == before
    # Four ports of four switches change alike: one line has them all.
    (line,) = [
        line for line in dry.stdout.splitlines() if mentions(line, "PORT_QOS_MAP", "Ethernet0")
    ]
    assert mentions(line, *SWITCHES, "Ethernet4", "Ethernet12", "AZURE", "ECHELON")
    out = tmp_path / "out"
    assert run(fabric, "--against", current, "-o", out).exit_code == 0
    again = run(fabric, "--against", out)
    assert (again.exit_code, len(again.stdout.splitlines())) == (0, 1)
    # One switch that somebody has changed since.
    leaf = json.loads((out / "leaf2.json").read_text())
    leaf["QUEUE"]["Ethernet4|5"]["scheduler"] = "scheduler.0"
    (out / "leaf2.json").write_text(json.dumps(leaf))
    changed = run(fabric, "--against", out)
    assert changed.exit_code == FAILED
    (line,) = changed.stdout.splitlines()[1:]
    assert mentions(line, "leaf2", "Ethernet4|5", "scheduler", "scheduler.0", "ECHELON_STRICT")
    asked = json.loads(run(fabric, "--against", out, "--json").stdout)
    assert asked["files"] == []
    assert asked["differences"] == [
        {
            "switch": "leaf2",
            "table": "QUEUE",
            "key": "Ethernet4|5",
            "field": "scheduler",
            "before": "scheduler.0",
            "after": "ECHELON_STRICT",
        }
    ]


def test_one_configuration_stands_for_equal_switches(fabric: Path, tmp_path: Path) -> None:
    file = tmp_path / "config_db.json"
    file.write_text(delivered_text(8))
    out = tmp_path / "out"
    assert run(fabric, "--against", file, "--pfc", "3", "-o", out).exit_code == 0
    for switch in SWITCHES:
        config = json.loads((out / f"{switch}.json").read_text())
        assert config["PORT"] == delivered_config(8)["PORT"]
        assert Interface(config, "Ethernet28").maps["pfc_enable"] == "3"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--for", "sonik"], ["--for", "sonik", "sonic"]),
        (["--pfc", "8"], ["--pfc", 8]),
        (["--pfc", "0,3"], ["--pfc", 0]),
        (["--pfc", "3;4"], ["--pfc"]),
        (["--ecn", "1 MiB"], ["--ecn", "1 MiB"]),
        (["--ecn", "2 MiB,1 MiB,5%"], ["--ecn", "2 MiB", "1 MiB"]),
        (["--ecn", "1,2,5%"], ["--ecn"]),
        (["--ecn", "1 MiB,2 MiB,101%"], ["--ecn"]),
        (["--against", "nowhere.json"], ["nowhere.json"]),
        (["--against", "."], ["leaf1.json"]),
    ],
)
def test_a_mistake_is_one_line(
    options: list[str],
    named: list[object],
    fabric: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(fabric, *options, "-o", "out")
    assert (result.exit_code, result.stdout) == (BAD_INPUT, "")
    assert len(result.stderr.splitlines()) == 1
    assert mentions(result.stderr, *named)
    assert not (tmp_path / "out").exists()


def test_no_file_is_overwritten(fabric: Path, current: Path) -> None:
    (current / "leaf1.json").unlink()
    before = {path: path.read_text() for path in current.iterdir()}
    result = run(fabric, "-o", current)
    assert (result.exit_code, result.stdout) == (BAD_INPUT, "")
    assert mentions(result.stderr, current / "leaf2.json")
    assert {path: path.read_text() for path in current.iterdir()} == before


def test_marks_that_two_queues_share_are_named_with_the_file(fabric: Path) -> None:
    fabric.write_text(yaml.safe_dump({**TWO_BY_TWO, "roce_marks": [26] * 8}))
    result = run(fabric)
    assert (result.exit_code, result.stdout) == (BAD_INPUT, "")
    assert mentions(result.stderr, fabric, "roce_marks", 26)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with building() as build:
        yield build(TWO_BY_TWO, policy={"name": "fair"})


def test_the_plan_of_a_service_says_how_queues_are_served(
    lab: Lab, fabric: Path, current: Path, tmp_path: Path
) -> None:
    daemon = lab.daemon()
    url = daemon.wait_listening()
    out = tmp_path / "out"
    with lab.client(daemon) as client:
        settle(client)
        fair = run(fabric, "--from-service", "--url", url, "--against", current, "-o", out)
        assert (fair.exit_code, fair.stderr) == (0, "")
        interface = Interface(json.loads((out / "leaf1.json").read_text()), "Ethernet0")
        served = [interface.served(queue) for queue in range(8)]
        # All share but acknowledgements, which go first.
        assert [queue.strict for queue in served] == [False] * 7 + [True]
        assert {queue.weight for queue in served} == {1}

        client.set_policy("crux")
        settle(client)
        strict = run(fabric, "--from-service", "--url", url, "--against", out)
        assert strict.exit_code == FAILED
        assert "ECHELON_STRICT" in strict.stdout

        # Packets that move between queues need a share of each, which classes have not.
        client.set_policy("srpt")
        settle(client)
        refused = run(fabric, "--from-service", "--url", url)
        assert (refused.exit_code, refused.stdout) == (BAD_INPUT, "")
        assert mentions(refused.stderr, "leaf1", "queue 0", "rate")
    silent = run(fabric, "--from-service", "--url", "http://127.0.0.1:9")
    assert (silent.exit_code, silent.stdout) == (FAILED, "")
