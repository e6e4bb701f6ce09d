"""The command `softswitch`."""

from __future__ import annotations

import argparse
import errno
import json
import os
from pathlib import Path

import pytest

from softswitch.cli import main, switch_command, without_dashes
from softswitch.cli.switch_command import port_rate
from tests.faults import mentions

PROGRAM = Path(__file__).parents[2] / "p4src" / "build" / "v1model" / "echelon.json"
ABSENT = os.strerror(errno.ENOENT)


def test_compile_prints_c(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(PROGRAM)]) == 0
    assert (
        "static int ingress_control(ss_switch *s, packet *p, uint64_t now_ns) {"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("damage", ["missing", "not JSON", "no parser"])
def test_what_cannot_be_used_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    path = tmp_path / "program.json"
    if damage == "not JSON":
        path.write_text("{")
    elif damage == "no parser":
        program = json.loads(PROGRAM.read_text())
        program["parsers"] = []
        path.write_text(json.dumps(program))
    assert main(["compile", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert str(path) in captured.err


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ([], "PROGRAM.json --no-p4"),
        (["--no-p4", "-i", "0"], "-i/--interface '0' PORT@IFACE"),
        (["--no-p4", "-i", "x@veth0"], "-i/--interface 'x@veth0' PORT@IFACE"),
        (["--no-p4", "-i", "0@"], "-i/--interface '0@' PORT@IFACE"),
        (["--no-p4", "-i", "0@unix:"], "-i/--interface '0@unix:' path"),
        (["--no-p4", "-i", "512@veth0"], "-i/--interface port 512 511"),
        (["--no-p4", "-i", "511@veth0"], "port 511 --drop-port"),
        (["--no-p4", "-i", "0@unix:/tmp/a", "-i", "0@unix:/tmp/b"], "-i port 0"),
        (["--no-p4", "-i", "0@unix:/tmp/a", "-i", "1@unix:/tmp/a"], "-i interface unix:/tmp/a"),
        (["--no-p4", "-i", "0@no-such-interface"], "-i 0@no-such-interface"),
        (
            ["--no-p4", "-i", "0@unix:/no/such/directory/p0"],
            f"-i 0@unix:/no/such/directory/p0 {ABSENT}",
        ),
        (["--no-p4", "--", "--cpu-port", "0"], "--cpu-port '0' 1 511"),
        (["--no-p4", "-i", "5@veth0", "--", "--cpu-port", "5"], "--cpu-port 5 interface"),
        (["--no-p4", "--", "--cpu-port", "511"], "port 511 --drop-port"),
        (["--no-p4", "--", "--priority-queues", "9"], "--priority-queues '9' 1 8"),
        (["--no-p4", "--port-rate", "fast"], "--port-rate 'fast' [PORT=]RATE"),
        (["--no-p4", "--port-rate", "0"], "--port-rate '0' 1 bit/s"),
        (["--no-p4", "--port-rate", "3=1Mbit"], "--port-rate 3= interface"),
        (["--no-p4", "--log-console", "--log-file", "x"], "--log-console --log-file"),
        (["--no-p4", "-L", "loud"], "-L/--log-level loud trace off"),
        (
            ["--no-p4", "--pcap=/no/such/directory", "-i", "0@unix:{tmp}/p0"],
            f"/no/such/directory {ABSENT}",
        ),
        (["--no-p4", "--log-file", "/no/such/directory/log"], f"/no/such/directory/log {ABSENT}"),
        (["--no-p4", "--p4info", "x"], "--p4info PROGRAM.json"),
        (["--no-p4", "--nanolog", "ipc:///tmp/log"], "--nanolog --log-console --log-file"),
        (["--no-p4", "--debugger"], "--debugger server"),
        (["--no-p4", "--use-files", "1"], "--use-files interfaces stf"),
        (["--no-p4", "--", "--grpc-server-ssl"], "--grpc-server-ssl --grpc-server-cert"),
        (["--no-p4", "--", "--grpc-server-addr", "nowhere"], "--grpc-server-addr nowhere"),
        (["no-such-program.json"], f"no-such-program.json {ABSENT}"),
        ([str(PROGRAM), "--p4info", str(PROGRAM)], f"{PROGRAM} P4Info 1:1"),
        (["--no-p4", "--no-such-option"], "--no-such-option"),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else "",
)
def test_a_switch_that_cannot_start_says_why_in_one_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], facts: str
) -> None:
    arguments = [argument.replace("{tmp}", str(tmp_path)) for argument in arguments]
    if "--grpc-server-addr" not in arguments:
        arguments += ["--grpc-server-addr", "127.0.0.1:0"]
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert mentions(captured.err, *facts.split()), captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10Mbit", (None, 10_000_000)),
        ("2=1Gbit", (2, 10**9)),
        ("0=1.5mbit/s", (0, 1_500_000)),
        ("64kbps", (None, 64_000)),
        ("9600", (None, 9600)),
    ],
)
def test_a_rate_is_read(text: str, expected: tuple[int | None, int]) -> None:
    assert port_rate(text) == expected


def test_options_may_stand_on_either_side_of_the_dashes() -> None:
    parser = argparse.ArgumentParser()
    switch_command.add_arguments(parser)
    words = [
        "--no-p4",
        "-i",
        "1@a",
        "--cpu-port",
        "9",
        "--pcap",
        "--",
        "-i",
        "2@b",
        "--priority-queues",
        "8",
    ]
    options = switch_command.checked(parser.parse_args(without_dashes(words)))
    assert [(interface.port, interface.name) for interface in options.interfaces] == [
        (1, "a"),
        (2, "b"),
    ]
    assert (options.cpu_port, options.queues, options.pcap) == (9, 8, Path())


@pytest.mark.parametrize("tool", [[], ["compile"], ["optical"], ["stf"], ["tofino"]])
def test_help_is_for_people(capsys: pytest.CaptureFixture[str], tool: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*tool, "-h"])
    assert ended.value.code == 0
    assert "usage: softswitch" in capsys.readouterr().out
