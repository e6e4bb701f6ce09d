"""Random requests to a real service: right ones, wrong ones and noise (tests/echelon/service/api
fuzzes by schema).

No answer is a server error, no record of the log has a traceback, memory stays flat, and everything
that was acknowledged is there at the end, and again after a SIGKILL.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import socket
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from tests.echelon.service.api.malformed import malformed
from tests.echelon.service.holdings import assert_exactly
from tests.echelon.service.lab import PATIENCE_S, rest, ring, specs
from tests.echelon.service.site import TRIANGLE, Site, site
from tests.soak.memory import bytes_of_process, memory_faults

NAMES = ("a", "b", "c", "s1", "h1", "", "ä", "../x", "x" * 300, "%00")
HOSTS = ("h1", "h2", "h3", "h4")
PATHS = (
    "/jobs", "/plan", "/switches", "/policy", "/links", "/status", "/events", "/healthz", "/readyz", "/metrics",
    "/openapi.json", "/jobs/{}", "/jobs/{}/distances", "/switches/{}", "/switches/{}/intent", "/links/{}/{}", "/{}",
)  # fmt: skip
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
QUERIES = (
    "",
    "?limit=3",
    "?limit=-1",
    "?limit=x",
    "?job=a",
    "?switch=s9",
    "?wait_s=0",
    "?wait_s=nan",
    "?%ff=%fe",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--requests", type=int, default=100_000, help="how many (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the requests (default: %(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    with TemporaryDirectory(prefix="soak-") as directory, site(Path(directory), TRIANGLE) as one:
        faults = _Requests(one, random.Random(options.seed)).send(options.requests)
    print(*faults, sep="\n", file=sys.stderr)
    return 1 if faults else 0


class UnixConnection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(self._path)


class _Requests:
    """Requests to a service, and the books of the jobs that it acknowledged."""

    def __init__(self, one: Site, rng: random.Random) -> None:
        self._site = one
        self._rng = rng
        self._jobs: dict[str, Any] = {}
        self._statuses: Counter[int] = Counter()
        self._faults: list[str] = []
        self._bad = [each.body for each in malformed(rng.randrange(1 << 30), 2000)]

    def send(self, count: int) -> list[str]:
        """Send so many requests, and return the faults."""
        began_s = time.monotonic()
        daemon = self._site.daemon("state.db")
        daemon.wait_event("leading")
        sizes = []
        connection = UnixConnection(str(self._site.directory / "api.sock"))
        for number in range(count):
            method, path, body = self._request()
            try:
                connection.request(method, path, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                content = answer.read()
            except (http.client.HTTPException, OSError) as error:
                self._faults.append(f"{method} {path}: {type(error).__name__}: {error}")
                connection.close()
                if not daemon.alive:
                    break
                continue
            self._note(method, path, body, answer.status, content)
            if number % max(1, count // 20) == 0:
                sizes.append(bytes_of_process(daemon.pid))
                print(f"{number} of {count} requests, {sizes[-1] >> 20} MB", file=sys.stderr)
        sizes.append(bytes_of_process(daemon.pid))
        connection.close()
        for restarted in (False, True):
            if restarted:
                daemon.kill()
                daemon = self._site.daemon("state.db")
            with self._site.client(daemon) as client:
                rest(client, links=True)
                there = specs(client)
                if there != self._jobs:
                    self._faults.append(f"jobs are {sorted(there)} instead of {sorted(self._jobs)}")
                assert_exactly(self._site, client)
        early, late = sizes[len(sizes) // 5], sizes[-1]
        self._faults += memory_faults(early, late)
        self._faults += [str(record) for record in self._site.records() if "exception" in record]
        print(
            f"{sum(self._statuses.values())} requests in {time.monotonic() - began_s:.0f} s, by"
            f" status: {dict(sorted(self._statuses.items()))}; {early >> 20} MB of memory after a"
            f" fifth, {late >> 20} MB at the end; {len(self._jobs)} jobs at the end;"
            f" {len(self._faults)} faults"
        )
        return self._faults

    def _request(self) -> tuple[str, str, bytes | None]:
        rng = self._rng
        if rng.random() < 0.02:
            name = rng.choice("abc")
            if rng.random() < 0.3:
                return "DELETE", f"/jobs/{name}", None
            spec = ring(name, rng.sample(HOSTS, rng.randint(2, 3)), f"{rng.randint(1, 9)} MB")
            return (
                *rng.choice((("POST", "/jobs"), ("PUT", f"/jobs/{name}"))),
                json.dumps(spec).encode(),
            )
        path = rng.choice(PATHS)
        for _ in range(path.count("{}")):
            path = path.replace("{}", quote(rng.choice(NAMES), safe=rng.choice(("", "/"))), 1)
        return (
            rng.choices(METHODS, (8, 4, 4, 1, 1, 1, 1))[0],
            path + rng.choice(QUERIES),
            self._body(),
        )

    def _body(self) -> bytes | None:
        rng = self._rng
        match rng.randrange(5):
            case 0 | 1:
                return None
            case 2:
                return rng.randbytes(rng.randrange(200))
            case 3:
                return json.dumps(
                    rng.choice(
                        ({}, [], 1, None, {"name": "fifo", "parameters": 7}, {"state": "up"})
                    )
                ).encode()
            case _:
                return rng.choice(self._bad)

    def _note(
        self, method: str, path: str, body: bytes | None, status: int, content: bytes
    ) -> None:
        self._statuses[status] += 1
        # Before the first plan, right after the start, there is none to show.
        is_early = status == 503 and (path.startswith("/readyz") or b'"no-plan"' in content)
        if status >= 500 and not is_early:
            self._faults.append(f"{method} {path} {body!r}: {status} {content[:300]!r}")
        if (
            method in ("POST", "PUT")
            and status in (200, 201)
            and path.startswith("/jobs")
            and "distances" not in path
        ):
            spec = json.loads(content)["spec"]
            self._jobs[spec["job"]] = spec
        if method == "DELETE" and status == 204:
            self._jobs.pop(path.split("/")[2].partition("?")[0], None)
