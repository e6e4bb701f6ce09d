"""Our ends against the kernel's, through a TAP interface: run in a network namespace of its own.

Prints one JSON object of what came out. Arguments: ``send`` or ``receive`` (what our end does),
bytes, part of the packets that are lost each way, and 0 or 1 for ECN.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from echelon_lab.endhosts.tcp.frames import (
    ECT0,
    KEY,
    PROTOCOL,
    SYN,
    TCP,
    Segment,
    TcpAddress,
    parse,
    parse_options,
)
from echelon_lab.endhosts.tcp.sender import TcpSender, TcpSettings
from echelon_lab.endhosts.tcp.stack import TcpReceiver

KERNEL, OURS = "10.9.0.1", "10.9.0.2"
KERNEL_MAC, OUR_MAC = "02:00:00:00:09:01", "02:00:00:00:09:02"
PORT = 5001
PATIENCE_S = 60
_TUNSETIFF = 0x400454CA
_IFF_TAP_WITHOUT_INFORMATION = 0x1002


def tap() -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH", b"tap0", _IFF_TAP_WITHOUT_INFORMATION))
    for command in (
        f"ip link set tap0 address {KERNEL_MAC} mtu 1500 up",
        f"ip address add {KERNEL}/24 dev tap0",
        f"ip neighbour add {OURS} lladdr {OUR_MAC} dev tap0",
    ):
        subprocess.run(command.split(), check=True)
    return fd


def loop(
    fd: int,
    address: TcpAddress,
    lose: float,
    on_segment: Callable[[int, Segment, bytes], list[bytes]],
    on_deadline: Callable[[int], list[bytes]],
    deadline_ns: Callable[[], int | None],
    done: Callable[[], bool],
    first: list[bytes],
) -> bool:
    """Carry frames between our end, which hears what comes from `address`, and the kernel.

    Return whether data went either way with ECN.
    """
    rng = Random(1)
    ecn_of_data: set[int] = set()
    give_up = time.monotonic() + PATIENCE_S

    def see(segment: Segment) -> None:
        if segment.length_bytes:
            ecn_of_data.add(segment.ecn)

    def send(frames: list[bytes]) -> None:
        for frame in frames:
            see(parse(frame))
            if rng.random() >= lose:
                os.write(fd, frame)

    send(first)
    while not done() and time.monotonic() < give_up:
        deadline = deadline_ns()
        wait_s = 0.2 if deadline is None else max(0.0, (deadline - time.monotonic_ns()) / 1e9)
        if select.select([fd], [], [], min(wait_s, 0.2))[0]:
            frame = os.read(fd, 65536)
            if frame[PROTOCOL] == TCP and frame[KEY] == address.key and rng.random() >= lose:
                see(parse(frame))
                send(on_segment(time.monotonic_ns(), parse(frame), frame))
        send(on_deadline(time.monotonic_ns()))
    return ECT0 in ecn_of_data


def send(fd: int, size: int, lose: float, ecn: bool) -> dict[str, object]:
    listener = socket.create_server((KERNEL, PORT))
    seen = {"bytes": 0, "zeros": True, "end": False}

    def read() -> None:
        peer, _ = listener.accept()
        while data := peer.recv(1 << 16):
            seen["bytes"] += len(data)
            seen["zeros"] = seen["zeros"] and not any(data)
        seen["end"] = True
        peer.close()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    address = TcpAddress(OUR_MAC, KERNEL_MAC, OURS, KERNEL, 40000, PORT)
    sender = TcpSender(address, TcpSettings(1400, ecn=ecn), isn=2**32 - 50_000)
    sender.write(0, size)
    sender.close(0)
    marked = loop(
        fd,
        address.reversed(),
        lose,
        lambda now, segment, frame: list(
            sender.on_segment(now, segment, parse_options(frame) if segment.flags & SYN else None)
        ),
        lambda now: list(sender.on_deadline(now)),
        lambda: sender.deadline_ns,
        lambda: sender.finished or sender.given_up,
        list(sender.open(time.monotonic_ns())),
    )
    reader.join(PATIENCE_S)
    return {**seen, "finished": sender.finished, "ecn": marked}


def receive(fd: int, size: int, lose: float, ecn: bool) -> dict[str, object]:
    address = TcpAddress(KERNEL_MAC, OUR_MAC, KERNEL, OURS, 40000, PORT)
    receiver = TcpReceiver(address, TcpSettings(1400, ecn=ecn), isn=2**32 - 1)

    def write() -> None:
        with socket.socket() as peer:
            peer.bind((KERNEL, 40000))
            peer.connect((OURS, PORT))
            peer.sendall(os.urandom(size))

    writer = threading.Thread(target=write, daemon=True)
    writer.start()

    def optional(frame: bytes | None) -> list[bytes]:
        return [] if frame is None else [frame]

    marked = loop(
        fd,
        address,
        lose,
        lambda now, segment, frame: optional(
            receiver.on_segment(now, segment, parse_options(frame) if segment.flags & SYN else None)
        ),
        lambda now: optional(receiver.on_deadline(now)),
        lambda: receiver.deadline_ns,
        lambda: receiver.ended,
        [],
    )
    writer.join(PATIENCE_S)
    return {"bytes": receiver.received_bytes, "end": receiver.ended, "ecn": marked}


def main() -> None:
    what, size, lose, ecn = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] == "1"
    fd = tap()
    # 1: the kernel asks for ECN and grants it.
    Path("/proc/sys/net/ipv4/tcp_ecn").write_text("1", encoding="ascii")
    print(json.dumps({"send": send, "receive": receive}[what](fd, size, lose, ecn)))


if __name__ == "__main__":
    main()
