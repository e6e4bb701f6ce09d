"""The program of `test_station` in a network namespace: two processes' wires on one interface."""

from __future__ import annotations

import select
import socket
import subprocess

from echelon_aggregation.frames import Endpoint, Frames, InterfaceWire, read
from echelon_aggregation.wire import Kind, Packet

HERE, THERE = "02:00:00:00:00:01", "02:00:00:00:00:02"
PACKET = Packet(Kind.RESULT, 1, 1, 0, 3, values=bytes(8))


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def main() -> None:
    ip(
        "link",
        "add",
        "here",
        "address",
        HERE,
        "type",
        "veth",
        "peer",
        "name",
        "there",
        "address",
        THERE,
    )
    for end in ("here", "there"):
        ip("link", "set", end, "addrgenmode", "none", "up")
    ip("address", "add", "10.0.0.1/24", "dev", "here")
    ip("neighbour", "add", "10.0.0.2", "lladdr", THERE, "dev", "here")
    ends = [Endpoint("10.0.0.1", HERE, port) for port in (5000, 5001, 5002)]
    wires = [InterfaceWire("here", [end]) for end in ends[:2]]
    sender = Frames(Endpoint("10.0.0.2", THERE, 0xEF11))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as other:
        other.bind(("there", 3))
        for end in ends:
            other.send(sender.encode(end, PACKET))
        for wire, end in zip(wires, ends, strict=False):
            assert select.select([wire], [], [], 10)[0], f"nothing for port {end.port}"
            (arrived,) = map(read, wire.receive())
            assert arrived is not None
            assert (arrived.ip, arrived.port, arrived.packet) == (end.ip, end.port, PACKET)
        # The kernel answers what nobody holds, port 5002 (type 3, code 3), and nothing else.
        answers = []
        while select.select([other], [], [], 10 if not answers else 0.2)[0]:
            frame, (_, _, direction, *_) = other.recvfrom(1 << 16)
            if direction != socket.PACKET_OUTGOING:
                answers.append((frame[23], frame[34:36], int.from_bytes(frame[64:66], "big")))
        assert answers == [(socket.IPPROTO_ICMP, b"\3\3", 5002)], answers
        wires[0].send(Frames(ends[0]).encode(Endpoint("10.0.0.2", THERE, 0xEF11), PACKET))
        assert select.select([other], [], [], 10)[0]
        back = read(other.recv(1 << 16))
        assert back is not None
        assert back.packet == PACKET
        assert wires[0].receive() == [], "what goes out does not come in"
    print("done")


if __name__ == "__main__":
    main()
