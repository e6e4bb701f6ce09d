"""The command `softswitch` with BF Runtime."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from echelon_tofino.bfrt_proto import bfruntime_pb2 as bfrt
from echelon_tofino_model.bfruntime.schema import parse
from plugins.tofino_model.tests.bfruntime.conftest import INFO, Client
from plugins.tofino_model.tests.emulator.test_device import DESCRIPTION, GATEWAY, PROGRAMS
from plugins.tofino_model.tests.emulator.test_router import frame
from softswitch.cli import main


@contextmanager
def _started(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a process, and end it when the block has ended or failed."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_command_serves_the_program_and_its_ports(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "import sys; from softswitch.cli import main; sys.exit(main())",
    ]
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
    with _started([*command, *options, *ports]) as switch:
        assert switch.stdout is not None
        found = re.search(r"BF Runtime at (\S+),", switch.stdout.readline())
        assert found is not None
        with Client(found[1], 1, parse(INFO.read_bytes(), "")) as client:
            client.subscribe()
            client.bind("echelon")
            assert [
                entry["key"]["$DEV_PORT"] for entry in client.read(client.entry("$PORT", None))
            ] == [5]
            client.modify(
                client.entry("tf1.tm.port.sched_cfg", {"dev_port": 5}, max_rate_enable=True)
            )
        switch.send_signal(signal.SIGTERM)
        assert switch.wait(30) == 0


def test_a_program_that_a_client_brings_is_executed(tmp_path: Path) -> None:
    """An assembly is loaded over BF Runtime; a packet then takes the route that a client has
    written.
    """
    command = [
        sys.executable,
        "-c",
        "import sys; from softswitch.cli import main; sys.exit(main())",
    ]
    options = ["--no-p4", "--grpc-server-addr", "127.0.0.1:0", "--bf-runtime", "127.0.0.1:0"]
    ports = [word for port in (1, 5) for word in ("-i", f"{port}@unix:{tmp_path}/{port}")]
    description = json.dumps(DESCRIPTION).encode()
    config = bfrt.ForwardingPipelineConfig(p4_name="edge", bfruntime_info=description)
    config.profiles.add(profile_name="pipe", binary=(PROGRAMS / "edge.bfa").read_bytes())
    with (
        _started([*command, *options, *ports]) as switch,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as five,
    ):
        one.bind(f"{tmp_path}/1.peer")
        five.bind(f"{tmp_path}/5.peer")
        five.settimeout(30)
        assert switch.stdout is not None
        found = re.search(r"BF Runtime at (\S+),", switch.stdout.readline())
        assert found is not None
        with Client(found[1], 1, parse(description, "")) as client:
            client.subscribe()
            client.configure(
                bfrt.SetForwardingPipelineConfigRequest.VERIFY_AND_WARM_INIT_BEGIN_AND_END, [config]
            )
            client.bind("edge")
            key = {"hdr.ip.dst": (0x0A000000, 8)}
            client.insert(
                client.entry("pipe.Ingress.route", key, "Ingress.forward", out=5, mac=GATEWAY)
            )
            one.sendto(bytes(frame("10.2.3.4")), f"{tmp_path}/1")
            assert five.recv(2000)[:6] == GATEWAY.to_bytes(6, "big")
            assert (
                client.read(client.entry("pipe.Ingress.route", key))[0]["$COUNTER_SPEC_PKTS"] == 1
            )
        switch.send_signal(signal.SIGTERM)
        assert switch.wait(30) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--bf-rt-info", "x.json"], "--bf-runtime"),
        (["--bf-runtime", "nowhere"], "HOST:PORT"),
        (
            ["--bf-runtime", "127.0.0.1:0", "--bf-rt-info", "/nonexistent/bf-rt.json"],
            "/nonexistent/bf-rt.json",
        ),
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
