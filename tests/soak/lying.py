"""A real service whose switches lie: answers that are wrong, damaged, late, missing or of other
calls.

A proxy stands between the service and each switch. It passes calls on, and lies in a part of the
answers. At the end it tells the truth: then every switch must hold exactly the plan. Until then no
record of the log may have a traceback, memory stays flat, and nothing that was acknowledged is
lost.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc  # type: ignore[import-untyped]

from echelon.controller.client import Client
from tests.echelon.service.holdings import assert_exactly
from tests.echelon.service.lab import RULE, rest, ring, specs
from tests.echelon.service.site import TRIANGLE, ServedSwitch, site
from tests.soak.memory import bytes_of_process, memory_faults

HOSTS = ("h1", "h2", "h3", "h4")
LONGEST_DELAY_S = 0.2
UNARY = 60.0
"""Longest time for an honest answer, in seconds."""
AUDIT = "100 ms"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rpcs", type=int, default=100_000, help="answers of switches (default: %(default)s)"
    )
    parser.add_argument(
        "--lies", type=float, default=0.02, help="the part of them that lie (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of lies and changes (default: %(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    rng = random.Random(options.seed)
    began_s, faults = time.monotonic(), []
    with TemporaryDirectory(prefix="soak-") as directory, site(Path(directory), TRIANGLE) as one:
        honest = dict(one.switches)
        proxies = {
            name: Proxy(switch.address, options.lies, rng.random())
            for name, switch in honest.items()
        }
        one.switches = {
            name: ServedSwitch(proxies[name].address, honest[name].device_id) for name in honest
        }
        daemon = one.daemon("state.db", audit=AUDIT, policy={"name": "echelon", "parameters": RULE})
        jobs: dict[str, Any] = {}
        sizes = []
        with one.client(daemon) as client:
            while (
                answered := sum(proxy.answers for proxy in proxies.values())
            ) < options.rpcs and daemon.alive:
                _change(client, rng, jobs)
                time.sleep(0.05)
                if answered >= len(sizes) * options.rpcs // 20:
                    sizes.append(bytes_of_process(daemon.pid))
                    print(
                        f"{answered} of {options.rpcs} answers, {sizes[-1] >> 20} MB",
                        file=sys.stderr,
                    )
            for proxy in proxies.values():
                proxy.lies = 0.0
            rest(client, links=True)
            one.switches = honest
            assert_exactly(one, client)
            there = specs(client)
            if there != jobs:
                faults.append(f"jobs are {sorted(there)} instead of {sorted(jobs)}")
        early, late = sizes[len(sizes) // 5], sizes[-1]
        faults += memory_faults(early, late)
        daemon.kill()
        for proxy in proxies.values():
            proxy.stop()
        faults += [str(record) for record in one.records() if "exception" in record]
        faults += [line for line in daemon.lines if line.startswith("Traceback")]
    told: Counter[str] = sum((proxy.told for proxy in proxies.values()), Counter())
    print(
        f"{answered} answers in {time.monotonic() - began_s:.0f} s, lies:"
        f" {dict(told.most_common())}; {early >> 20} MB of memory after a fifth, {late >> 20} MB at"
        f" the end; {len(jobs)} jobs; {len(faults)} faults"
    )
    print(*faults[:20], sep="\n", file=sys.stderr)
    return 1 if faults else 0


def _change(client: Client, rng: random.Random, jobs: dict[str, Any]) -> None:
    name = rng.choice("abcd")
    if name in jobs and rng.random() < 0.3:
        client.remove_job(name)
        del jobs[name]
    else:
        spec = ring(name, rng.sample(HOSTS, rng.randint(2, 3)), f"{rng.randint(1, 9)} MB")
        client.register_job(spec, replace=True)
        jobs[name] = spec


class Proxy(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A gRPC server that passes every call on as bytes, and lies."""

    def __init__(self, address: str, lies: float, seed: float) -> None:
        self.lies = lies
        """The part of the answers that are lies; it may be changed."""
        self.answers = 0
        self.told: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._last = b""
        unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._channel = grpc.insecure_channel(address, unlimited)
        self._server = grpc.server(ThreadPoolExecutor(64), [self], options=unlimited)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None)
        self._channel.close()

    def service(self, details: Any) -> Any:
        method = details.method
        kind = method.rpartition("/")[2]
        if kind in ("StreamChannel", "Subscribe"):
            call = self._channel.stream_stream(method)
            return grpc.stream_stream_rpc_method_handler(
                lambda asked, context: self._stream(call(asked), context)
            )
        if kind == "Read":
            call = self._channel.unary_stream(method)
            return grpc.unary_stream_rpc_method_handler(
                lambda asked, context: self._stream(call(asked), context)
            )
        call = self._channel.unary_unary(method)
        return grpc.unary_unary_rpc_method_handler(
            lambda asked, context: self._unary(call, asked, context)
        )

    def _unary(self, call: Any, asked: bytes, context: Any) -> bytes:
        try:
            answer = call(asked, timeout=UNARY)
        except grpc.RpcError as error:
            self.answers += 1
            context.set_trailing_metadata(error.trailing_metadata())
            context.abort(error.code(), error.details())
        (lied,) = self._lied(answer, context) or [b""]
        return lied

    def _stream(self, answers: Any, context: Any) -> Iterator[bytes]:
        context.add_callback(answers.cancel)
        try:
            for answer in answers:
                yield from self._lied(answer, context)
        except grpc.RpcError as error:
            self.answers += 1
            context.abort(error.code(), error.details())

    def _lied(self, answer: bytes, context: Any) -> list[bytes]:
        """Return what is said instead of an answer; aborts the call for some lies."""
        with self._lock:
            self.answers += 1
            rng, last, self._last = self._rng, self._last, answer
            if rng.random() >= self.lies:
                return [answer]
            lie = rng.choice(("error", "noise", "damaged", "empty", "another", "late", "cut"))
            self.told[lie] += 1
            code, noise = rng.choice(list(grpc.StatusCode)[1:]), rng.randbytes(rng.randrange(1, 60))
            place, delay_s = rng.randrange(len(answer) + 1), rng.uniform(0, LONGEST_DELAY_S)
        match lie:
            case "error":
                context.abort(code, "no".ljust(place % 100, "!"))
            case "noise":
                return [noise]
            case "damaged":
                return [answer[:place] + noise[:1] + answer[place + 1 :]]
            case "empty":
                return [b""]
            case "another":
                return [last]
            case "late":
                time.sleep(delay_s)
                return [answer]
        return [answer[:place]]
