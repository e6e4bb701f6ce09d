"""The cost of tcc: the time of each library in C as it compiles it, over the system's compiler.

Times are the processor's, so that other work on the machine falsifies less: the least of some
rounds, in which the compilers take turns, each in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
ROUNDS = 3
NOWHERE = "/nowhere"
"""A `PATH` on which there is no compiler, so that tcc has to do."""
PACKETS = 2_000_000
FEW = 5
MANY = 105
"""The iterations of two runs on packets, of which the difference counts."""
_DRIVER = """
uint64_t queue(uint64_t count)
{
    static ss_packet packets[64];
    tm_config configs[8] = {{0}};
    for (uint32_t i = 0; i < 8; i++)
        configs[i] = (tm_config){.depth_bytes = 1 << 30, .level = i % 4, .weight = 1 + i % 3, .scheduled = 1};
    tm_port *port = tm_new(10000000000, 8, configs);
    int64_t now_ns = 0;
    uint64_t left = 0;
    tm_leaving leaving;
    for (uint64_t i = 0; i < count; i++) {
        ss_packet *packet = &packets[i % 64];
        packet->length_bytes = 1250;
        tm_enqueue(port, i % 8, packet, now_ns);
        if (i % 8 == 7)
            for (int k = 0; k < 8; k++) {
                now_ns = tm_next_ns(port, now_ns);
                tm_dequeue(port, now_ns, &leaving);
                left += leaving.packet != 0;
            }
    }
    tm_free(port);
    return left;
}
"""


def fluid() -> float:
    """Return the seconds of a run of plans on the fluid engine."""
    from bench_fluid import jobs_of, leaf_spine, measure

    measure("fair", leaf_spine(64), jobs_of(8, 64))
    runs = [measure("fair", leaf_spine(128), jobs_of(20, 128)) for _ in range(2)]
    return min(run.run_s for run in runs)


def switch() -> float:
    """Return the seconds that a packet takes through our program."""
    import bench_engines
    from bench_pipeline import configured

    from ctoolchain import CSource, load

    filled, _ = configured()
    declared = "void repeat(void *, void *, const uint8_t *, uint32_t, uint64_t);"
    driver = load(CSource("repeat", bench_engines.DRIVER), declared)
    return bench_engines.inside_ns(filled, bench_engines.job_frames(64), driver) * 1e-9


def traffic_manager() -> float:
    """Return the seconds that packets take through the queues of a port."""
    from ctoolchain import CSource, load
    from softswitch.native.scheduler import c_source

    source, declared = c_source("fabric", "fabric.h")
    text = f'#include "tm.c"\n{_DRIVER}'
    loaded = load(
        CSource("queueing", text, source.includes), f"{declared}\nuint64_t queue(uint64_t count);"
    )
    begin = time.process_time()
    left = loaded.library.queue(PACKETS)
    took_s = time.process_time() - begin
    assert left == PACKETS
    return took_s


def fabric() -> float:
    """Return the seconds that some iterations on packets take: fabric, hosts, switches and queues
    in virtual time.
    """
    from echelon.planning.policies import make_policy
    from echelon_lab.scenarios.scenario import load_scenario
    from echelon_lab.virtual.run import run

    scenario = load_scenario(HERE.parents[2] / "topologies" / "scenarios" / "dp_pair.yaml")
    took_s = []
    for iterations in (FEW, FEW, MANY):
        begin = time.process_time()
        longer = replace(scenario, iterations=iterations)
        run(longer, "fair", lambda: make_policy("fair"), lambda _job, _iteration: None)
        took_s.append(time.process_time() - begin)
    # Without the start, in which Python compiles, connects and plans.
    return took_s[-1] - took_s[-2]


PARTS: Mapping[str, Callable[[], float]] = {
    "fluid engine": fluid,
    "fabric: iterations on packets, with hosts, switches and queues": fabric,
    "switch: a packet through our program": switch,
    "traffic manager: packets through eight queues": traffic_manager,
}


def _measured(path: str) -> Mapping[str, float]:
    """Return what the parts take in a process that finds compilers on `path`."""
    words = [sys.executable, __file__]
    environment = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        words,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    times: Mapping[str, float] = json.loads(done.stdout)
    return times


def _fastest(rounds: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    fastest = {}
    for part in PARTS:
        fastest[part] = min(times[part] for times in rounds)
    return fastest


def bench() -> list[tuple[str, float, str]]:
    times: dict[str, list[Mapping[str, float]]] = {}
    for path in (os.environ["PATH"], NOWHERE):
        times[path] = []
    for _ in range(ROUNDS):
        for path, rounds in times.items():
            rounds.append(_measured(path))
    system, tcc = map(_fastest, times.values())
    return [
        (f"{part}, tcc / the system's compiler", tcc[part] / system[part], "times the time")
        for part in PARTS
    ]


if __name__ == "__main__":
    seconds = {name: part() for name, part in PARTS.items()}
    print(json.dumps(seconds))
