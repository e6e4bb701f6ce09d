"""`softswitch tofino` and `softswitch stf` on a Tofino program."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from softswitch.cli import main

COMMAND = Path(sys.executable).with_name("softswitch")
PROGRAMS = Path(__file__).parent / "programs"
FRAME = bytes.fromhex(
    "020000000002 020000000001 0800 4500001c 00000000 4011 66cf 0a000001 0a000002 03e8 07d0 0008 0000"
)
SENT = bytes.fromhex("020000000009 020000000001 0800 4500001c 00000000 3f11 67cf") + FRAME[26:]


def test_a_program_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tofino", str(PROGRAMS / "edge.bfa")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "table Ingress.classes (length: range 16, class: ternary 8), 16 entries" in lines
    assert "digest Ingress.unknown" in lines


def test_a_test_in_stf_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    test = (PROGRAMS / "edge.stf").read_text()
    assert main(["stf", str(PROGRAMS / "edge.bfa"), str(PROGRAMS / "edge.stf")]) == 0
    assert "9 expectations met" in capsys.readouterr().out
    wrong = tmp_path / "wrong.stf"
    wrong.write_text(test.replace("expect 8 a5", "expect 8 a6"))
    assert main(["stf", str(PROGRAMS / "edge.bfa"), str(wrong)]) == 1
    assert "port 8: expected A6" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("add Ingress.route ip.dst:1/8 Ingress.forward(out:1)", "the parameter 'mac' is missing"),
        ("add nowhere a:1 b()", "there is no table 'nowhere'"),
        ("mirroring_get 3", "there is no mirroring session 3"),
        ("check_counter routed(1) packets == 1", "only arrays can be checked"),
    ],
)
def test_a_wrong_command_is_one_line(
    line: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = tmp_path / "one.stf"
    test.write_text(f"# A command that does not fit.\n{line}\n")
    assert main(["stf", str(PROGRAMS / "edge.bfa"), str(test)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"{test}:2: ")
    assert reason in said


def test_a_damaged_program_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "damaged.bfa"
    program.write_bytes(b"\xff\xfe")
    assert main(["tofino", str(program)]) == 2
    assert capsys.readouterr().err == f"{program}: this is not a text file\n"


def test_packets_pass_in_real_time(tmp_path: Path) -> None:
    entries = tmp_path / "entries.stf"
    entries.write_text("add Ingress.route ip.dst:0x0a000000/8 Ingress.forward(out:5, mac:0x020000000009)\n")
    command = [str(COMMAND), "tofino", str(PROGRAMS / "edge.bfa"), "--setup", str(entries)]
    for port in (3, 5):
        command += ["-i", f"{port}@unix:{tmp_path}/{port}"]
    sockets = {}
    for port in (3, 5):
        sockets[port] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sockets[port].bind(f"{tmp_path}/{port}.peer")
        sockets[port].settimeout(60)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("softswitch tofino: ")
        sockets[3].sendto(FRAME, f"{tmp_path}/3")
        assert sockets[5].recv(2000) == SENT
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert said == "packets: in 1, out 1\n"
    for end in sockets.values():
        end.close()
