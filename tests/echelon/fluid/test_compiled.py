"""The compiled filling against the same source, interpreted."""

from __future__ import annotations

from array import array
from random import Random

import pytest

from echelon.fluid.compiled import compiled_shared_rates
from echelon.fluid.filling import NO_RATE, SharedPorts, Standings, shared_rates

PORTS, QUEUES = 12, 8


def random_ports(rng: Random) -> SharedPorts:
    """Return ports of which the first four are FIFOs, each with the next one as its reverse."""
    fifo = [port < 4 for port in range(PORTS)]
    port_of = [port for port in range(PORTS) for _ in range(1 if fifo[port] else QUEUES)]
    capacity = [float(rng.choice([1e9, 1.25e9])) for _ in range(PORTS)]
    most = [1.0 if fifo[port] else rng.choice([1.0, 1.0, 0.3]) for port in port_of]
    return SharedPorts(
        capacity=array("d", capacity),
        is_fifo=array("q", fifo),
        limited=array(
            "q", [any(m < 1 for m, p in zip(most, port_of, strict=True) if p == port) for port in range(PORTS)]
        ),
        reverse=array("q", [port ^ 1 for port in range(PORTS)]),
        port_of=array("q", port_of),
        level=array("q", [rng.randrange(4) for _ in port_of]),
        weight=array("q", [rng.randint(1, 4) for _ in port_of]),
        limit=array("d", [capacity[port] * part for port, part in zip(port_of, most, strict=True)]),
        minimum=array("d", [capacity[port] * (1.0 if fifo[port] else rng.choice([0.0, 0.01])) for port in port_of]),
        port_number=array("q", [-1] * PORTS),
        queue_number=array("q", [-1] * len(port_of)),
    )


def random_standings(rng: Random, ports: SharedPorts, count: int) -> Standings:
    standings = Standings(array("q", [0]), array("q"), array("q"), array("d"))
    for _ in range(count):
        crossed = [rng.randrange(4), *rng.sample(range(4, PORTS), rng.randint(0, 3))]
        for port in crossed:
            standings.places.append(rng.choice([q for q, of in enumerate(ports.port_of) if of == port]))
        standings.starts.append(len(standings.places))
        standings.window.append(rng.choice([1, 10, 16]))
        standings.sent.append(rng.choice([NO_RATE, NO_RATE, NO_RATE, 2e8]))
    return standings


def test_compiled_and_interpreted_agree_to_the_last_bit() -> None:
    pytest.importorskip("numba", reason="the extra 'fast' is not installed")
    compiled = compiled_shared_rates()
    rng = Random(5)
    for acknowledging in (0.0, 0.005):
        for _ in range(150):
            ports = random_ports(rng)
            standings = random_standings(rng, ports, rng.randint(1, 12))
            flows = array("q", range(len(standings.window)))
            interpreted = shared_rates(flows, standings, ports, 0.0, acknowledging, 1e-9)
            assert compiled(flows, standings, ports, 0.0, acknowledging, 1e-9) == interpreted
