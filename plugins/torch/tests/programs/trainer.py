"""A program of two ranks that exchange bytes, iteration after iteration, without PyTorch:
trainer.py ITERATIONS FILE.

It gets its place from the environment, as a script that calls `init_process_group` does, and tells
the run what `echelon_torch.reporting` would. It writes the number of each iteration into FILE.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

PAYLOAD = bytes(100_000)
COMPUTE_S = 0.1


def connected(rank: int, address: tuple[str, int]) -> socket.socket:
    if rank == 0:
        return socket.create_server(address).accept()[0]
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            time.sleep(0.02)


def main() -> None:
    iterations, file = int(sys.argv[1]), Path(sys.argv[2])
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    warm_up = int(os.environ["ECHELON_RUN_WARM_UP"])
    peer = connected(rank, (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    run = socket.socket(socket.AF_UNIX)
    run.connect(os.environ["ECHELON_RUN_SOCKET"])

    def tell(*message: object) -> None:
        run.sendall(json.dumps(message).encode() + b"\n")

    tell("hello", os.environ["ECHELON_RUN_JOB"], os.environ["ECHELON_RUN_WORKER"], rank, ranks)
    for step in range(1, iterations + 1):
        time.sleep(COMPUTE_S)
        start_ns = time.monotonic_ns()
        peer.sendall(PAYLOAD)
        missing = len(PAYLOAD)
        while missing:
            missing -= len(peer.recv(missing))
        now_ns = time.monotonic_ns()
        file.write_text(str(step))
        if step == warm_up:
            tell("ready")
            begin_ns = int(run.recv(64))
            time.sleep(max(0, begin_ns - time.monotonic_ns()) / 1e9)
        elif step > warm_up:
            operation = [0, "all-reduce", [0, 1], 0, len(PAYLOAD), start_ns, now_ns]
            tell("step", step - warm_up, now_ns, [operation], [[start_ns, now_ns]])


if __name__ == "__main__":
    main()
