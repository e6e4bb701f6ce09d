"""A program that knows nothing of Echelon: it accepts TCP connections on a port of the kernel's
choice, or makes some.

    python program.py accept ADDRESS FILE             # writes its port into FILE
    python program.py connect ADDRESS PORT            # obeys the lines of its standard input, and answers each

The lines are `open N`, `send BYTES` (on each connection), `close N` (the oldest), and `poll
MILLISECONDS`: a thread sends a little at this interval on a connection of its own, as one does that
asks a store.
"""

from __future__ import annotations

import selectors
import socket
import sys
import threading
import time
from pathlib import Path


def accept(address: str, file: Path) -> None:
    with (
        socket.create_server((address, 0), backlog=4096) as server,
        selectors.DefaultSelector() as selector,
    ):
        file.with_suffix(".new").write_text(str(server.getsockname()[1]))
        file.with_suffix(".new").rename(file)
        selector.register(server, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is server:
                    selector.register(server.accept()[0], selectors.EVENT_READ)
                    continue
                one = key.fileobj
                assert isinstance(one, socket.socket)
                if not one.recv(1 << 16):
                    selector.unregister(one)
                    one.close()


def poll(connection: socket.socket, interval_s: float) -> None:
    while True:
        connection.sendall(bytes(64))
        time.sleep(interval_s)


def connect(address: str, port: int) -> None:
    opened: list[socket.socket] = []
    for line in sys.stdin:
        order, number = line.split()
        if order == "open":
            opened += [socket.create_connection((address, port)) for _ in range(int(number))]
        elif order == "send":
            for one in opened:
                one.sendall(bytes(int(number)))
        elif order == "poll":
            polling = socket.create_connection((address, port))
            threading.Thread(target=poll, args=(polling, int(number) / 1000), daemon=True).start()
        else:
            for _ in range(int(number)):
                opened.pop(0).close()
        print(*(one.getsockname()[1] for one in opened), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "accept":
        accept(sys.argv[2], Path(sys.argv[3]))
    else:
        connect(sys.argv[2], int(sys.argv[3]))
