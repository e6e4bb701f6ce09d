"""The command `softswitch`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from softswitch.cli import main, switch_command, without_dashes
from softswitch.cli.switch_command import port_rate

PROGRAM = Path(__file__).parents[2] / "p4src" / "build" / "v1model" / "echelon.json"


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
    ("arguments", "reason"),
    [
        ([], "give PROGRAM.json, or --no-p4"),
        (["--no-p4", "-i", "0"], "argument -i/--interface: '0' is not PORT@IFACE"),
        (["--no-p4", "-i", "x@veth0"], "'x@veth0' is not PORT@IFACE"),
        (["--no-p4", "-i", "0@"], "'0@' is not PORT@IFACE"),
        (["--no-p4", "-i", "0@unix:"], "unix: needs a path"),
        (["--no-p4", "-i", "512@veth0"], "port 512 is above 511"),
        (["--no-p4", "-i", "511@veth0"], "port 511 means drop"),
        (["--no-p4", "-i", "0@unix:/tmp/a", "-i", "0@unix:/tmp/b"], "-i: port 0 is given twice"),
        (
            ["--no-p4", "-i", "0@unix:/tmp/a", "-i", "1@unix:/tmp/a"],
            "-i: interface unix:/tmp/a is given twice",
        ),
        (["--no-p4", "-i", "0@no-such-interface"], "-i 0@no-such-interface: "),
        (
            ["--no-p4", "-i", "0@unix:/no/such/directory/p0"],
            "-i 0@unix:/no/such/directory/p0: No such file",
        ),
        (
            ["--no-p4", "--", "--cpu-port", "0"],
            "argument --cpu-port: '0' is not a whole number from 1 to 511",
        ),
        (
            ["--no-p4", "-i", "5@veth0", "--", "--cpu-port", "5"],
            "--cpu-port 5: an interface already has",
        ),
        (["--no-p4", "--", "--cpu-port", "511"], "port 511 means drop"),
        (["--no-p4", "--", "--priority-queues", "9"], "'9' is not a whole number from 1 to 8"),
        (["--no-p4", "--port-rate", "fast"], "'fast' is not [PORT=]RATE"),
        (["--no-p4", "--port-rate", "0"], "'0': a rate must be at least 1 bit/s"),
        (
            ["--no-p4", "--port-rate", "3=1Mbit"],
            "--port-rate 3=...: no interface has that port number",
        ),
        (
            ["--no-p4", "--log-console", "--log-file", "x"],
            "--log-console and --log-file exclude each other",
        ),
        (["--no-p4", "-L", "loud"], "invalid choice: 'loud'"),
        (
            ["--no-p4", "--pcap=/no/such/directory", "-i", "0@unix:{tmp}/p0"],
            "/no/such/directory/unix_",
        ),
        (
            ["--no-p4", "--log-file", "/no/such/directory/log"],
            "/no/such/directory/log: No such file",
        ),
        (["--no-p4", "--p4info", "x"], "--p4info needs PROGRAM.json"),
        (["--no-p4", "--nanolog", "ipc:///tmp/log"], "--nanolog: nanomsg is not supported"),
        (["--no-p4", "--debugger"], "--debugger: there is no such server here"),
        (["--no-p4", "--use-files", "1"], "--use-files: packets come from interfaces only"),
        (["--no-p4", "--", "--grpc-server-ssl"], "--grpc-server-ssl needs --grpc-server-cert"),
        (["--no-p4", "--", "--grpc-server-addr", "nowhere"], "nowhere"),
        (["no-such-program.json"], "no-such-program.json: No such file"),
        ([str(PROGRAM), "--p4info", str(PROGRAM)], "not a P4Info in protobuf text format"),
        (["--no-p4", "--no-such-option"], "unrecognized arguments: --no-such-option"),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else "",
)
def test_a_switch_that_cannot_start_says_why_in_one_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], reason: str
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
    assert reason in captured.err
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
