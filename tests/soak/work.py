"""Random job files of all paradigms, at and over the limits, to a service that holds jobs: is its
event loop free?

The lag of the loop is what `echelon_loop_lag_seconds` says, beside that of an idle service in the
same run. Everything has an answer in time, none is a server error, no record of the log has a
traceback, and the service is up throughout.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from echelon.controller.client import Client
from echelon.model.jobs.collectives import ALL_REDUCES, OPERATIONS
from tests.echelon.service.lab import PATIENCE_S, ring
from tests.echelon.service.site import TRIANGLE, Site, site
from tests.soak.requests import HOSTS, UnixConnection

HELD = 100
READS = ("/jobs", "/healthz", "/status", "/jobs/held0")
READ_S = 1.0
"""A reading request that takes longer is counted."""

Draw = Callable[[random.Random, int], dict[str, Any]]
"""Returns the section of a job file for so many workers."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", type=int, default=10_000, help="how many (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="end after so long (default: never)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the files (default: %(default)s)")
    unchecked = "check no invariants, for figures of the lag"
    parser.add_argument("--unchecked", action="store_true", help=unchecked)


def run(options: argparse.Namespace) -> int:
    with (
        TemporaryDirectory(prefix="soak-") as idle,
        TemporaryDirectory(prefix="soak-") as directory,
        site(Path(idle), TRIANGLE) as beside,
        site(Path(directory), TRIANGLE) as one,
    ):
        one.check_invariants = beside.check_invariants = not options.unchecked
        faults = _run(one, beside, random.Random(options.seed), options.files, options.seconds)
    print(*faults, sep="\n", file=sys.stderr)
    return 1 if faults else 0


def _run(one: Site, beside: Site, rng: random.Random, count: int, limit_s: float) -> list[str]:
    daemon, idle = one.daemon("state.db"), beside.daemon("state.db")
    with one.client(daemon) as client:
        for number in range(HELD):
            client.register_job(ring(f"held{number}", rng.sample(HOSTS, rng.randint(2, 3))))
    idle.wait_event("leading")
    before = _lags(one.url), _lags(beside.url)
    faults: list[str] = []
    reads_s: list[float] = []
    done = threading.Event()
    reader = threading.Thread(target=_read_on, args=(one.url, done, reads_s, faults))
    reader.start()
    statuses: Counter[str] = Counter()
    slowest = (0.0, "")
    began_s = time.monotonic()
    sent = 0
    try:
        for sent in range(1, count + 1):
            file = job_file(rng)
            status, took_s = _ask(one.url, *_request(rng, file), faults)
            statuses[f"{status} {file['parallelism']}"] += 1
            slowest = max(slowest, (took_s, json.dumps(file)[:300]))
            if status == 201:
                _ask(one.url, "DELETE", "/jobs/random", None, faults)
            if not daemon.alive or time.monotonic() - began_s > limit_s:
                break
            if sent % 50 == 0:
                print(f"{sent} files, {len(faults)} faults", file=sys.stderr)
    finally:
        done.set()
        reader.join()
    if not daemon.alive:
        return [*faults, "the service has ended", one.records()[-1:].__repr__()]
    loads = [
        _during(then, _lags(url)) for then, url in zip(before, (one.url, beside.url), strict=True)
    ]
    faults += [str(record) for record in one.records() if "exception" in record]
    for name, (p999_s, worst_s) in zip(("loaded", "idle"), loads, strict=True):
        print(
            f"{name}: lag of the loop p99.9 at most {p999_s * 1000:g} ms, worst at most"
            f" {worst_s * 1000:g} ms"
        )
    print(
        f"{sent} files in {time.monotonic() - began_s:.0f} s; {len(reads_s)} readings, p50"
        f" {sorted(reads_s)[len(reads_s) // 2]:.3f} s, worst {max(reads_s):.3f} s, above {READ_S:g}"
        f" s: {sum(took > READ_S for took in reads_s)}; slowest file {slowest[0]:.1f} s:"
        f" {slowest[1]}; above {PATIENCE_S:g} s: {sum('no answer' in fault for fault in faults)};"
        f" up throughout; {len(faults)} faults"
    )
    print(dict(sorted(statuses.items())))
    return faults


def _request(rng: random.Random, file: Mapping[str, Any]) -> tuple[str, str, bytes]:
    return "POST", "/jobs" + rng.choice(("", "?dry_run=true")), json.dumps(file).encode()


def _ask(
    url: str, method: str, path: str, body: bytes | None, faults: list[str]
) -> tuple[int, float]:
    """Send a request, and return its answer's status (0: none) and the seconds it took."""
    began_s = time.monotonic()
    connection = UnixConnection(url.removeprefix("unix:"))
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
    except (http.client.HTTPException, OSError) as error:
        faults.append(f"{method} {path} {body!r}: no answer: {type(error).__name__}: {error}")
        return 0, time.monotonic() - began_s
    finally:
        connection.close()
    if answer.status >= 500 and answer.status != 503:
        faults.append(f"{method} {path} {body!r}: {answer.status} {content[:300]!r}")
    return answer.status, time.monotonic() - began_s


def _read_on(url: str, done: threading.Event, reads_s: list[float], faults: list[str]) -> None:
    while not done.wait(0.1):
        reads_s.append(_ask(url, "GET", READS[len(reads_s) % len(READS)], None, faults)[1])


def _lags(url: str) -> dict[float, float]:
    """Return how many lags were at most so long, by that time."""
    with Client(url, timeout_s=PATIENCE_S) as client:
        found = {one.name: one for one in text_string_to_metric_families(client.metrics())}
    samples = found["echelon_loop_lag_seconds"].samples
    return {float(one.labels["le"]): one.value for one in samples if one.name.endswith("_bucket")}


def _during(before: Mapping[float, float], after: Mapping[float, float]) -> tuple[float, float]:
    """Return the bounds of the buckets that have the 99.9th percentile and the worst lag between
    two scrapes.
    """
    counts = {bound: after[bound] - before[bound] for bound in sorted(after)}
    p999_s, worst_s = (
        next(at for at, count in counts.items() if count >= part * counts[math.inf])
        for part in (0.999, 1)
    )
    return p999_s, worst_s


# -- job files -------------------------------------------------------------------------------------


def job_file(rng: random.Random) -> dict[str, Any]:
    """Return a job file whose sizes are of any magnitude: many describe more than a controller
    builds.
    """
    name = rng.choice(sorted(SECTIONS))
    workers = rng.sample(HOSTS, rng.randint(2, 3 if name == "parameter_server" else 4))
    file = {
        "job": "random",
        "parallelism": name,
        "workers": workers,
        name: SECTIONS[name](rng, len(workers)),
    }
    if name == "parameter_server":
        file[name]["server"] = next(host for host in HOSTS if host not in workers)
    if rng.random() < 0.2:
        file["recognition"] = {"by": "agent", "idle_gap": "20 ms"}
    return file


def _many(rng: random.Random, most: int) -> int:
    """Return a number from 1 to `most`, of each magnitude equally often, and the largest more
    often.
    """
    return most if rng.random() < 0.05 else round(10 ** rng.uniform(0, math.log10(most)))


def _size(rng: random.Random) -> str:
    return f"{_many(rng, 10**9) + 10**5} B"


def _passes(rng: random.Random) -> dict[str, str]:
    return {"forward": f"{rng.randint(0, 9)} ms", "backward": f"{rng.randint(0, 9)} ms"}


def _all_reduce(rng: random.Random) -> str:
    return rng.choice(list(ALL_REDUCES))


def _data(rng: random.Random, workers: int) -> dict[str, Any]:
    timed = (
        {"compute": "1 ms"} if rng.random() < 0.3 else {**_passes(rng), "buckets": _many(rng, 1000)}
    )
    return {"gradient": _size(rng), "collective": _all_reduce(rng), **timed}


def _tensor(rng: random.Random, workers: int) -> dict[str, Any]:
    ranks = {"ranks_per_worker": _many(rng, 1000), "layers": _many(rng, 1000)}
    return {**ranks, **_passes(rng), "activation": _size(rng), "collective": _all_reduce(rng)}


def _fsdp(rng: random.Random, workers: int) -> dict[str, Any]:
    layers = _many(rng, 10_000)
    sizes: Any = [_size(rng) for _ in range(layers)] if rng.random() < 0.2 else _size(rng)
    per_worker = _many(rng, 1000)
    replicas = rng.choice([each for each in (1, 2, 3, 4) if workers * per_worker % each == 0])
    ranks = {"ranks_per_worker": per_worker, "layers": layers, "replicas": replicas}
    passes = {**_passes(rng), "zero": rng.choice((1, 2, 3))}
    return {**ranks, **passes, "parameters": sizes, "collective": _all_reduce(rng)}


def _expert(rng: random.Random, workers: int) -> dict[str, Any]:
    per_worker = _many(rng, 1000)
    groups = rng.choice([each for each in (1, 2, 3, 4, 8) if workers * per_worker % each == 0])
    return {
        "ranks_per_worker": per_worker, "group": workers * per_worker // groups, "layers": _many(rng, 1000),
        "attention": "1 ms", "expert": "2 ms", "tokens": _size(rng), "gradient": _size(rng),
    }  # fmt: skip


def _mesh(rng: random.Random, workers: int) -> dict[str, Any]:
    lengths = {axis: _many(rng, 30) for axis in ("data", "pipeline", "tensor")}
    lengths[rng.choice(list(lengths))] *= workers
    schedule = rng.choice(("gpipe", "1f1b", "interleaved", "zero-bubble"))
    micro_batches = _many(rng, 300)
    chunked = {"chunks": 1 + _many(rng, 99)} if schedule == "interleaved" else {}
    if chunked:
        micro_batches *= lengths["pipeline"]
    return {
        **lengths, **chunked, **_passes(rng), "ranks_per_worker": math.prod(lengths.values()) // workers,
        "schedule": schedule, "micro_batches": min(micro_batches, 10_000), "activation": _size(rng),
        "gradient": _size(rng), "layers": _many(rng, 1000), "sequence_parallel": rng.random() < 0.5,
    }  # fmt: skip


def _pipedream(rng: random.Random, workers: int) -> dict[str, Any]:
    per_worker = _many(rng, 100)
    first = rng.randint(1, workers * per_worker - 1)
    return {
        "ranks_per_worker": per_worker, "replicas": [first, workers * per_worker - first], **_passes(rng),
        "mini_batches": _many(rng, 100_000), "activation": _size(rng), "parameters": _size(rng),
    }  # fmt: skip


def _pipeline(rng: random.Random, workers: int) -> dict[str, Any]:
    timed = {**_passes(rng), "activation": _size(rng)}
    return {"schedule": rng.choice(("gpipe", "1f1b")), "micro_batches": _many(rng, 1000), **timed}


def _graph(rng: random.Random, workers: int) -> dict[str, Any]:
    per_worker = _many(rng, 500)
    ranks = range(workers * per_worker)
    groups = {f"g{number}": rng.sample(ranks, rng.randint(1, len(ranks))) for number in range(3)}
    nodes: list[dict[str, Any]] = []
    for number in range(_many(rng, 3000)):
        after = [nodes[-1]["name"]] if nodes and rng.random() < 0.9 else []
        node: dict[str, Any] = {"name": f"n{number}", "after": after}
        if rng.random() < 0.3:
            nodes.append({**node, "rank": rng.choice(ranks), "compute": "1 ms"})
            continue
        operation = rng.choice(list(OPERATIONS))
        sized = {} if operation == "barrier" else {"bytes": _size(rng)}
        how = {
            "algorithm": rng.choice(list(OPERATIONS[operation])),
            "steps": rng.choice(("whole", "rounds")),
        }
        nodes.append(
            {**node, "collective": operation, "group": rng.choice(list(groups)), **how, **sized}
        )
    return {"ranks_per_worker": per_worker, "groups": groups, "nodes": nodes}


SECTIONS: Mapping[str, Draw] = {
    "data": _data,
    "expert": _expert,
    "fsdp": _fsdp,
    "graph": _graph,
    "mesh": _mesh,
    "parameter_server": lambda rng, _: {"compute": "1 ms", "gradient": _size(rng)},
    "pipedream": _pipedream,
    "pipeline": _pipeline,
    "tensor": _tensor,
}
