"""A real etcd of one member, and a connection to it that can be disturbed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Self

from echelon.switches.processes import free_port

ETCD = "etcd"
START_S = 20.0


class EtcdProcess:
    """A process of etcd in which leases of one second are possible: the shortest is one and a half
    of its election timeout.
    """

    def __init__(self, home: Path, options: Sequence[str] = (), scheme: str = "http") -> None:
        self.endpoint = f"127.0.0.1:{free_port()}"
        self._peer = f"http://127.0.0.1:{free_port()}"
        self._home = home
        self._options = options
        self._scheme = scheme
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"etcd://{self.endpoint}"

    def start(self) -> None:
        client = f"{self._scheme}://{self.endpoint}"
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(ETCD, "--name", "only", "--data-dir", str(self._home / "data")),
                    *("--heartbeat-interval", "50", "--election-timeout", "250"),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *(
                        "--listen-peer-urls",
                        self._peer,
                        "--initial-advertise-peer-urls",
                        self._peer,
                    ),
                    *("--initial-cluster", f"only={self._peer}", *self._options),
                ],
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        host, _, port = self.endpoint.rpartition(":")
        deadline = time.monotonic() + START_S
        while True:
            with socket.socket() as s:
                if s.connect_ex((host, int(port))) == 0:
                    return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._home / "log").read_text()[-2000:])
            time.sleep(0.02)

    def send(self, what: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, what)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        # A port that was free may be somebody else's by now.
        for attempt in range(5):
            try:
                self.start()
            except RuntimeError:
                self.kill()
                if attempt == 4:
                    raise
                self.endpoint = f"127.0.0.1:{free_port()}"
                self._peer = f"http://127.0.0.1:{free_port()}"
                shutil.rmtree(self._home / "data", ignore_errors=True)
            else:
                break
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()


class _Connection:
    """Both directions of one TCP connection.

    What is held back is passed on by `release`, or never.
    """

    def __init__(self) -> None:
        self.requests_pass = asyncio.Event()
        self.answers_pass = asyncio.Event()
        self.requests_pass.set()
        self.answers_pass.set()
        self.held = asyncio.Event()
        """A request is being held back."""
        self.answered = asyncio.Event()
        """etcd has said something since `Proxy.release`."""


class Proxy:
    """A proxy between a store and etcd."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self.endpoint = ""
        self.connections: list[_Connection] = []
        self.connect = True
        """Whether new connections are kept; False: they are closed at once."""

    def hold_requests(self) -> None:
        for connection in self.connections:
            connection.requests_pass.clear()

    def hold_answers(self) -> None:
        for connection in self.connections:
            connection.answers_pass.clear()

    def release(self) -> None:
        for connection in self.connections:
            connection.answered.clear()
            connection.requests_pass.set()
            connection.answers_pass.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.connect:
            writer.close()
            return
        connection = _Connection()
        self.connections.append(connection)
        try:
            etcd_reader, etcd_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return

        async def requests() -> None:
            while data := await reader.read(1 << 16):
                held = not connection.requests_pass.is_set()
                if held:
                    connection.held.set()
                    await connection.requests_pass.wait()
                etcd_writer.write(data)
                await etcd_writer.drain()
                if held:
                    # What came later, such as a cancellation, is never passed on.
                    return

        async def answers() -> None:
            while data := await etcd_reader.read(1 << 16):
                connection.answered.set()
                await connection.answers_pass.wait()
                writer.write(data)
                await writer.drain()

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(requests())
                group.create_task(answers())
        except* OSError:
            pass
        finally:
            for each in (writer, etcd_writer):
                each.close()
                with contextlib.suppress(OSError):
                    await each.wait_closed()


@contextlib.asynccontextmanager
async def proxy(target: str) -> AsyncIterator[Proxy]:
    made = Proxy(target)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(asyncio.CancelledError):
            await made.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made.endpoint = "{}:{}".format(*server.sockets[0].getsockname()[:2])
    try:
        yield made
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def etcd_process(home: Path, *options: str, scheme: str = "http") -> Iterator[EtcdProcess]:
    home.mkdir(parents=True, exist_ok=True)
    with EtcdProcess(home, options, scheme) as process:
        yield process
