"""Clients without a token that ask for a large file and do not read it, against an operator who
asks for the status.

The strangers hold as many connections as they can, and connect again as soon as they are closed.
The operator makes a new connection for each request, from the address of most strangers and from an
address of its own. With `--tls` all shake hands first, so that nobody shows a token before.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import multiprocessing
import select
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from echelon.controller.service.api.tokens import new_token
from echelon.switches.processes import free_port
from tests.echelon.service.lab import PATIENCE_S
from tests.echelon.service.site import TRIANGLE, site
from tests.echelon.southbound.test_tls import issued
from tests.softswitch.p4runtime.test_tls import make_authority

SAME, OTHER = "127.0.0.1", "127.0.1.1"
ASKED = 3 * b"GET /web/vendor/echarts.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
GOAL_S = 0.1
_SEEN_AFTER_S = 0.05
_FAILURES = Counter[str]()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--one", type=int, default=1000, help="connections from one address (default: %(default)s)"
    )
    parser.add_argument(
        "--each", type=int, default=20, help="from each of 50 others (default: %(default)s)"
    )
    parser.add_argument(
        "--requests", type=int, default=300, help="of the operator (default: %(default)s)"
    )
    parser.add_argument("--tls", action="store_true", help="the API is served by HTTPS")
    parser.add_argument(
        "--pause", type=float, default=0.1, help="s before connecting again (default: %(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    sources = [SAME] * options.one + [f"127.0.0.{number}" for number in range(2, 52)] * options.each
    ops, ok = new_token("ops", "operator"), True
    with TemporaryDirectory(prefix="soak-") as directory, site(Path(directory), TRIANGLE) as one:
        (one.directory / "tokens.yaml").write_text(f"tokens:\n{ops.entry}")
        (one.directory / "tokens.yaml").chmod(0o600)
        port = free_port()
        api: dict[str, Any] = {"listen": f"{SAME}:{port}", "tokens": "tokens.yaml"}
        tls = None
        if options.tls:
            authority = make_authority(Path(directory) / "authority")
            certificate, key = issued(authority, "service")
            tls = ssl.create_default_context(cafile=authority.home / "ca.crt")
            tls.check_hostname = False
            api["tls"] = {"certificate": str(certificate), "key": str(key)}
        daemon = one.daemon("state.db", api=api)
        until = time.monotonic() + PATIENCE_S
        while (
            status_s(port, SAME, ops.token, tls) is None
            and daemon.alive
            and time.monotonic() < until
        ):
            time.sleep(_SEEN_AFTER_S)
        assert daemon.alive, daemon.lines[-20:]
        _FAILURES.clear()
        for strangers in ([], sources):
            hold = _strangers if tls is None else partial(_shake_hands, context=tls)
            attack = multiprocessing.Process(
                target=hold, args=(port, strangers, options.pause), daemon=True
            )
            attack.start()
            time.sleep(3.0 if strangers else 0.0)  # until they hold all that they can
            for source, place in ((SAME, "the same address"), (OTHER, "another address")):
                took = [status_s(port, source, ops.token, tls) for _ in range(options.requests)]
                answered = sorted(one for one in took if one is not None)
                lost = len(took) - len(answered)
                ok = ok and not lost and answered[-1] < GOAL_S
                print(
                    f"{len(strangers)} strangers, operator at {place}: p50"
                    f" {1e3 * median(answered or [0]):.1f} ms, worst"
                    f" {1e3 * max(answered, default=0):.1f} ms, {lost} of {len(took)} requests"
                    " without an answer"
                )
            attack.terminate()
            attack.join()
        log_bytes = sum(len(line) + 1 for line in daemon.lines)
        print(f"log: {log_bytes} bytes; failures: {dict(_FAILURES)}", file=sys.stderr)
    return 0 if ok else 1


def status_s(port: int, source: str, token: str, tls: ssl.SSLContext | None) -> float | None:
    """Ask for the status by a new connection.

    Return the seconds until the answer; None: there was none.
    """
    began_s = time.monotonic()
    more: dict[str, Any] = {"timeout": 5, "source_address": (source, 0)}
    connection = (
        http.client.HTTPSConnection("127.0.0.1", port, context=tls, **more)
        if tls is not None
        else http.client.HTTPConnection("127.0.0.1", port, **more)
    )
    try:
        connection.request("GET", "/status", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return time.monotonic() - began_s if answer.status == 200 and json.load(answer) else None
    except (http.client.HTTPException, OSError) as error:
        _FAILURES[repr(error)] += 1
        return None
    finally:
        connection.close()


def _strangers(port: int, sources: Sequence[str], pause_s: float) -> None:
    """Hold a connection from each of the sources, each with a request whose answer is not read, for
    ever.
    """
    poll, held, again = (
        select.epoll(),
        dict[int, socket.socket](),
        [(0.0, source) for source in sources],
    )
    addresses = dict[int, str]()
    while True:
        while again and again[0][0] <= time.monotonic():
            source = again.pop(0)[1]
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.setblocking(False)
            with suppress(OSError):
                one.bind((source, 0))
                one.connect_ex(("127.0.0.1", port))
            held[one.fileno()], addresses[one.fileno()] = one, source
            poll.register(one.fileno(), select.EPOLLOUT | select.EPOLLRDHUP)
        for number, event in poll.poll(0.01 if again else 1.0, 64):
            if event & (select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP):
                poll.unregister(number)
                held.pop(number).close()
                again.append((time.monotonic() + pause_s, addresses.pop(number)))
            else:
                with suppress(OSError):
                    held[number].send(ASKED)
                poll.modify(number, select.EPOLLRDHUP)


def _shake_hands(
    port: int, sources: Sequence[str], pause_s: float, context: ssl.SSLContext
) -> None:
    """Do as `_strangers` over TLS."""

    async def hold(source: str) -> None:
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=context, local_addr=(source, 0), limit=1024
                )
                writer.write(ASKED)
                with suppress(OSError):
                    # It goes on when the connection is closed: nothing of the answer beyond the
                    # buffer is read.
                    (
                        await writer.wait_closed()
                        if writer.is_closing()
                        else await _closed(reader, writer)
                    )
                writer.transport.abort()
            await asyncio.sleep(pause_s)

    async def all_of_them() -> None:
        await asyncio.gather(*map(hold, sources))
        await asyncio.Event().wait()

    asyncio.run(all_of_them())


async def _closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Wait until the other side has closed a connection of which nothing is read."""
    while not (writer.transport.is_closing() or reader.at_eof() or reader.exception()):
        await asyncio.sleep(0.5)
