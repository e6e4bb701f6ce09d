"""The command `softswitch` with BF Runtime."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from softswitch.bfruntime.schema import parse
from softswitch.cli import main
from tests.softswitch.bfruntime.conftest import INFO, Client


def test_the_command_serves_the_program_and_its_ports(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; from softswitch.cli import main; sys.exit(main())"]
    options = [
        "--no-p4",
        "--grpc-server-addr",
        "127.0.0.1:0",
        "--bf-runtime",
        "127.0.0.1:0",
        "--bf-rt-info",
        f"echelon={INFO}",
    ]
    ports = ["-i", f"5@unix:{tmp_path}/five", "--port-rate", "5=10Mbit"]
    with subprocess.Popen([*command, *options, *ports], stdout=subprocess.PIPE, text=True) as switch:
        assert switch.stdout is not None
        found = re.search(r"BF Runtime at (\S+),", switch.stdout.readline())
        assert found is not None
        with Client(found[1], 1, parse(INFO.read_bytes(), "")) as client:
            client.subscribe()
            client.bind("echelon")
            assert [entry["key"]["$DEV_PORT"] for entry in client.read(client.entry("$PORT", None))] == [5]
            client.modify(client.entry("tf1.tm.port.sched_cfg", {"dev_port": 5}, max_rate_enable=True))
        switch.send_signal(signal.SIGTERM)
        assert switch.wait(30) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--bf-rt-info", "x.json"], "--bf-runtime"),
        (["--bf-runtime", "nowhere"], "HOST:PORT"),
        (["--bf-runtime", "127.0.0.1:0", "--bf-rt-info", "/nonexistent/bf-rt.json"], "/nonexistent/bf-rt.json"),
        (["--bf-runtime", "127.0.0.1:0", "--bf-rt-info", __file__], "not JSON"),
    ],
)
def test_wrong_options_are_refused_in_one_line(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--no-p4", "--grpc-server-addr", "127.0.0.1:0", *options]) != 0
    line = capsys.readouterr().err.strip()
    assert said in line
    assert "\n" not in line
