"""`softswitch tofino` and `softswitch stf` on a Tofino program."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from softswitch.cli import main
from tests.faults import mentions

COMMAND = Path(sys.executable).with_name("softswitch")
PROGRAMS = Path(__file__).parent / "programs"
FRAME = bytes.fromhex(
    "020000000002 020000000001 0800 4500001c 00000000 4011 66cf 0a000001 0a000002 03e8 07d0 0008"
    " 0000"
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
    ("line", "facts"),
    [
        (
            "add Ingress.route ip.dst:1/8 Ingress.forward(out:1)",
            ("'Ingress.route'", "'Ingress.forward'", "'mac'"),
        ),
        ("add nowhere a:1 b()", ("table 'nowhere'", "Ingress.route")),
        ("mirroring_get 3", ("session 3",)),
        ("check_counter routed(1) packets == 1", ("counter 'routed'", "arrays")),
    ],
)
def test_a_wrong_command_is_one_line(
    line: str, facts: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = tmp_path / "one.stf"
    test.write_text(f"# A command that does not fit.\n{line}\n")
    assert main(["stf", str(PROGRAMS / "edge.bfa"), str(test)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"{test}:2: ")
    assert mentions(said, *facts), said


def test_a_damaged_program_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "damaged.bfa"
    program.write_bytes(b"\xff\xfe")
    assert main(["tofino", str(program)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"{program}: ")


def test_packets_pass_in_real_time(tmp_path: Path) -> None:
    entries = tmp_path / "entries.stf"
    entries.write_text(
        "add Ingress.route ip.dst:0x0a000000/8 Ingress.forward(out:5, mac:0x020000000009)\n"
    )
    command = [str(COMMAND), "tofino", str(PROGRAMS / "edge.bfa"), "--setup", str(entries)]
    for port in (3, 5):
        command += ["-i", f"{port}@unix:{tmp_path}/{port}"]
    sockets = {}
    for port in (3, 5):
        sockets[port] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sockets[port].bind(f"{tmp_path}/{port}.peer")
        sockets[port].settimeout(60)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
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


def test_the_higher_priority_wins_and_entries_without_one_come_first(tmp_path: Path) -> None:
    """The packet is shorter than Ethernet's shortest frame, and leaves as short as it came."""
    setup = "remove all\nadd route dst:0x0a000000/8 forward(port:5, next:9)\n" + "".join(
        f"add translation meta.class:{port} translate(port:{port})\n" for port in (7, 8, 9)
    )
    low, high, none = (
        f"add classes {priority} hdr.udp.dst:0->0xffff hdr.ipv4.tos:0&&&0 set_class(class:{port})\n"
        for priority, port in (("1", 7), ("2", 8), ("", 9))
    )
    datagram = "4500001c 00000000 4011 66cf 0a000001 0a000002 03e8 07d0 0008 0000"
    for entries, port in ((low + high, 8), (high + low, 8), (low + none + high, 9)):
        sent = (
            f"000000000009 020000000001 0800 45b8001c 00010000 3f11 {'*' * 20} 03e8 {port:04x} 0008"
            " **** $"
        )
        test = tmp_path / "priorities.stf"
        test.write_text(
            f"{setup}{entries}packet 3 020000000002 020000000001 0800 {datagram}\nexpect 5 {sent}\n"
        )
        assert main(["stf", str(PROGRAMS / "gate.bfa"), str(test)]) == 0
