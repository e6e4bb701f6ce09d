"""Rounds of strangers that begin TLS handshakes and go no further, beside an operator.

Each stranger sends nothing, a part of a ClientHello, a whole one, or a record of a very long one;
then it is silent or goes, and comes again when it is closed. The memory of the service is printed
after each round.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from echelon.controller.service.api.tokens import new_token
from echelon.switches.processes import free_port
from tests.echelon.service.api.test_handshakes import HELLO, LONG_HELLO
from tests.echelon.service.lab import PATIENCE_S, Daemon
from tests.echelon.service.site import TRIANGLE, Site, site
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


@dataclass(frozen=True)
class Operator:
    """An operator that asks for the status, from an address of strangers and from one of its own."""

    port: int
    token: str
    tls: ssl.SSLContext
    times: dict[str, list[float | None]] = field(default_factory=lambda: {SAME: [], OTHER: []})
    """The times of requests by address, in seconds; None: there was no answer."""

    def ask(self) -> None:
        for source, times in self.times.items():
            times.append(status_s(self.port, source, self.token, self.tls))

    def wait_for_service(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while status_s(self.port, SAME, self.token, self.tls) is None:
            assert time.monotonic() < until, "the service does not answer"
            time.sleep(AGAIN_S)

    def report(self) -> None:
        for source, times in self.times.items():
            answered = [each for each in times if each is not None]
            p50_ms = 1e3 * median(answered or [0])
            worst_ms = 1e3 * max(answered, default=0)
            lost = len(times) - len(answered)
            print(
                f"operator at {source}: p50 {p50_ms:.0f} ms, worst {worst_ms:.0f} ms,"
                f" {lost} of {len(times)} requests without an answer"
            )


def run(options: argparse.Namespace) -> int:
    with TemporaryDirectory(prefix="soak-") as directory, site(Path(directory), TRIANGLE) as lab:
        daemon, operator = _start(lab)
        operator.wait_for_service()
        print("round, memory at most and after it in MB")
        most_bytes = 0
        for number in range(1, options.rounds + 1):
            resident = _round(options, operator, daemon)
            most_bytes = max(most_bytes, *resident)
            print(number, max(resident) // 1_000_000, resident[-1] // 1_000_000, flush=True)
        assert daemon.alive, daemon.lines[-20:]
    operator.report()
    # At the address of so many strangers an operator has its turn among them.
    is_answered = None not in operator.times[OTHER]
    return 0 if most_bytes <= MOST_BYTES and is_answered else 1


def _start(lab: Site) -> tuple[Daemon, Operator]:
    """Start a service with TLS and a token."""
    ops = new_token("ops", "operator")
    tokens = lab.directory / "tokens.yaml"
    tokens.write_text(f"tokens:\n{ops.entry}")
    tokens.chmod(0o600)
    authority = make_authority(lab.directory / "authority")
    certificate, key = issued(authority, "service")
    context = ssl.create_default_context(cafile=authority.home / "ca.crt")
    context.check_hostname = False
    port = free_port()
    api = {
        "listen": f"{SAME}:{port}",
        "tokens": "tokens.yaml",
        "tls": {"certificate": str(certificate), "key": str(key)},
    }
    return lab.daemon("state.db", api=api), Operator(port, ops.token, context)


def _round(options: argparse.Namespace, operator: Operator, daemon: Daemon) -> list[int]:
    """Let strangers come while the operator asks. Return the memory by time, the last after it."""
    attack = multiprocessing.Process(
        target=begin_handshakes, args=(operator.port, options.strangers), daemon=True
    )
    attack.start()
    until = time.monotonic() + options.seconds
    resident = []
    while time.monotonic() < until:
        operator.ask()
        resident.append(bytes_of_process(daemon.pid))
        time.sleep(AGAIN_S)
    attack.terminate()
    attack.join()
    time.sleep(IDLE_S)
    resident.append(bytes_of_process(daemon.pid))
    return resident


def begin_handshakes(port: int, strangers: int) -> None:
    """Hold the connections of so many strangers for ever."""
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    sources = [f"127.0.0.{1 + number % ADDRESSES}" for number in range(strangers)]
    asyncio.run(_hold_all(port, sources))


async def _hold_all(port: int, sources: Sequence[str]) -> None:
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
