"""The bytes that wait at the sender and in the network with the agent's socket options.

`python -m research.sender_options [SECONDS]` needs root. One connection sends all it can over a
router whose link has RATE and a queue of 1 MB, for each option and each congestion control that the
kernel has.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import fmean

from echelon_torch.agent.marking import SocketOptions

RATE = "50mbit"
RATE_BPS = 50_000_000
PORT = 5000
OPTIONS = {
    "nothing": SocketOptions(),
    "window of 100 kB": SocketOptions(window_bytes=100_000),
    "unsent 100 kB": SocketOptions(unsent_bytes=100_000),
    "pacing at the rate": SocketOptions(pacing_bps=RATE_BPS),
    "pacing at 9/10": SocketOptions(pacing_bps=RATE_BPS * 9 // 10),
    "window and unsent": SocketOptions(
        window_bytes=100_000,
        unsent_bytes=100_000,
    ),
}
NETWORK = f"""
set -e
ip link set lo up
unshare --net sleep 3600 & a=$!
unshare --net sleep 3600 & b=$!
sleep 0.5
ip link add toa type veth peer name eth0 netns $a
ip link add tob type veth peer name eth0 netns $b
ip address add 10.0.1.254/24 dev toa; ip address add 10.0.2.254/24 dev tob
ip link set toa up; ip link set tob up
echo 1 >/proc/sys/net/ipv4/ip_forward
tc qdisc add dev tob root tbf rate {RATE} burst 16kb limit 1mb
for side in "$a 1" "$b 2"; do
    set -- $side
    nsenter --net=/proc/$1/ns/net ip address add 10.0.$2.1/24 dev eth0
    nsenter --net=/proc/$1/ns/net ip link set eth0 up
    nsenter --net=/proc/$1/ns/net ip route add default via 10.0.$2.254
done
echo $a $b
"""


def enter(process: int) -> None:
    with Path(f"/proc/{process}/ns/net").open() as network:
        if ctypes.CDLL(None).setns(network.fileno(), 0) < 0:
            raise OSError("setns")


def receive(
    process: int,
    options: SocketOptions,
    ready: threading.Event,
    received: list[int],
    end_s: float,
) -> None:
    enter(process)  # the namespace of this thread
    with socket.create_server(("10.0.2.1", PORT)) as server:
        ready.set()
        with server.accept()[0] as connection:
            options.set_on(connection)
            connection.settimeout(end_s)
            while data := connection.recv(1 << 16):
                received[0] += len(data)


def send(
    process: int,
    options: SocketOptions,
    control: str,
    seconds: float,
    waits: list[tuple[int, int]],
) -> None:
    enter(process)
    with socket.socket() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        connection.connect(("10.0.2.1", PORT))
        options.set_on(connection)
        connection.settimeout(0.05)
        began_s = looked_s = time.monotonic()
        while (now_s := time.monotonic()) < began_s + seconds:
            try:
                connection.send(bytes(16384))
            except TimeoutError:
                continue
            if now_s > looked_s + 0.05 and now_s > began_s + seconds / 2:
                looked_s = now_s
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
                (mss,) = struct.unpack_from("=I", info, 16)
                (unacked,) = struct.unpack_from("=I", info, 24)
                (unsent,) = struct.unpack_from("=I", info, 144)
                waits.append((unsent, unacked * mss))


def main() -> None:
    if "ECHELON_BENCH_INSIDE" not in os.environ:
        inside = {**os.environ, "ECHELON_BENCH_INSIDE": "1"}
        command = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        module = "research.sender_options"
        command += [sys.executable, "-m", module, *sys.argv[1:]]
        sys.exit(subprocess.call(command, env=inside))
    seconds = float(sys.argv[1]) if sys.argv[1:] else 6.0
    network = subprocess.Popen(
        ["sh", "-c", NETWORK + "wait"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert network.stdout is not None
    a, b = map(int, network.stdout.readline().split())
    controls = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    print(
        "| option | control | Mbit/s | unsent at the sender, kB | on its way, kB | in the network's"
        " queue, kB |"
    )
    print("|---|---|---|---|---|---|")
    for control in sorted({"cubic", "bbr"}.intersection(controls), reverse=True):
        for name, options in OPTIONS.items():
            ready = threading.Event()
            received = [0]
            waits: list[tuple[int, int]] = []
            receiving = threading.Thread(
                target=receive,
                args=(b, options, ready, received, seconds),
            )
            sending = threading.Thread(
                target=send,
                args=(a, options, control, seconds, waits),
            )
            receiving.start()
            ready.wait()
            sending.start()
            time.sleep(seconds / 2)
            before = received[0]
            began_s = time.monotonic()
            queued = []
            while sending.is_alive():
                show = ["tc", "-s", "qdisc", "show", "dev", "tob"]
                listing = subprocess.run(
                    show,
                    capture_output=True,
                    text=True,
                ).stdout
                backlog = re.search(r"backlog (\d+)(K?)b", listing)
                if backlog is not None:
                    unit_bytes = 1024 if backlog[2] else 1
                    queued.append(int(backlog[1]) * unit_bytes)
                time.sleep(0.1)
            arrived = received[0] - before
            rate_mbps = arrived * 8 / (time.monotonic() - began_s) / 1e6
            receiving.join()
            unsent_kb, sent_kb = (fmean(column) / 1000 for column in zip(*waits, strict=True))
            queued_kb = fmean(queued) / 1000
            print(
                f"| {name} | {control} | {rate_mbps:.1f} | {unsent_kb:.0f} | {sent_kb:.0f} |"
                f" {queued_kb:.0f} |",
                flush=True,
            )
    network.terminate()


if __name__ == "__main__":
    main()
