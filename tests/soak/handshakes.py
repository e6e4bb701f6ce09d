"""Rounds of strangers that begin a TLS handshake and go no further, against an operator who asks
for the status.

Each of them sends nothing, a part of a ClientHello, a whole one, or a record of a very long one;
then it is silent or goes, and comes again when it is closed. The memory of the service is printed
after each round.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from echelon.controller.service.api.tokens import new_token
from tests.echelon.service.api.test_handshakes import HELLO, LONG_HELLO
from tests.echelon.service.lab import PATIENCE_S
from tests.echelon.service.site import TRIANGLE, site
from tests.echelon.southbound.test_tls import issued
from tests.soak.memory import bytes_of_process
from tests.soak.strangers import OTHER, SAME, status_s
from tests.softswitch.p4runtime.test_tls import make_authority

MOST_BYTES = 200_000_000
SENT = b"", HELLO[:100], HELLO, LONG_HELLO
ADDRESSES = 20
AGAIN_S = 0.1
SILENT_S = 3.0
IDLE_S = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=20, help="rounds (default: %(default)s)")
    parser.add_argument(
        "--strangers", type=int, default=2000, help="of each round (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="of each round (default: %(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    ops = new_token("ops", "operator")
    took: dict[str, list[float | None]] = {SAME: [], OTHER: []}
    most_bytes = 0
    with TemporaryDirectory(prefix="soak-") as directory, site(Path(directory), TRIANGLE) as lab:
        tokens = lab.directory / "tokens.yaml"
        tokens.write_text(f"tokens:\n{ops.entry}")
        tokens.chmod(0o600)
        authority = make_authority(Path(directory) / "authority")
        certificate, key = issued(authority, "service")
        context = ssl.create_default_context(cafile=authority.home / "ca.crt")
        context.check_hostname = False
        with socket.create_server((SAME, 0)) as free:
            port = free.getsockname()[1]
        api: dict[str, Any] = {
            "listen": f"{SAME}:{port}",
            "tokens": "tokens.yaml",
            "tls": {"certificate": str(certificate), "key": str(key)},
        }
        daemon = lab.daemon("state.db", api=api)
        until = time.monotonic() + PATIENCE_S
        while status_s(port, SAME, ops.token, context) is None and time.monotonic() < until:
            time.sleep(AGAIN_S)

        print("round, memory at most and after it in MB")
        for number in range(options.rounds):
            attack = multiprocessing.Process(
                target=_begin_handshakes, args=(port, options.strangers), daemon=True
            )
            attack.start()
            until = time.monotonic() + options.seconds
            resident = []
            while time.monotonic() < until:
                for source, times in took.items():
                    times.append(status_s(port, source, ops.token, context))
                resident.append(bytes_of_process(daemon.pid))
                time.sleep(AGAIN_S)
            attack.terminate()
            attack.join()
            time.sleep(IDLE_S)
            resident.append(bytes_of_process(daemon.pid))
            most_bytes = max(most_bytes, *resident)
            print(number + 1, max(resident) // 1_000_000, resident[-1] // 1_000_000, flush=True)
        assert daemon.alive, daemon.lines[-20:]

    for source, times in took.items():
        answered = [each for each in times if each is not None]
        print(
            f"operator at {source}: p50 {1e3 * median(answered or [0]):.0f} ms, worst"
            f" {1e3 * max(answered, default=0):.0f} ms, {len(times) - len(answered)} of"
            f" {len(times)} requests without an answer"
        )
    # At the address of so many strangers an operator has its turn among them.
    return 0 if most_bytes <= MOST_BYTES and None not in took[OTHER] else 1


def _begin_handshakes(port: int, strangers: int) -> None:
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    sources = [f"127.0.0.{1 + number % ADDRESSES}" for number in range(strangers)]
    asyncio.run(_all_of(port, sources))


async def _all_of(port: int, sources: Sequence[str]) -> None:
    await asyncio.gather(*(_hold(port, each, number) for number, each in enumerate(sources)))


async def _hold(port: int, source: str, number: int) -> None:
    # The number of an address does not tell the kind.
    kind = number // ADDRESSES
    sent = SENT[kind % len(SENT)]
    is_silent = kind // len(SENT) % 2 == 0
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(
                SAME, port, local_addr=(source, 0), limit=1024
            )
            writer.write(sent)
            with suppress(OSError, TimeoutError):
                await asyncio.wait_for(_is_closed(reader), None if is_silent else SILENT_S)
            writer.transport.abort()
        await asyncio.sleep(AGAIN_S)


async def _is_closed(reader: asyncio.StreamReader) -> None:
    while await reader.read(1024):
        pass
