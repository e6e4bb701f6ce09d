"""The move of links: waiting until no packet is on its way over them, and the optical switch.

The optical switch is told by a command, which gets one JSON object on standard input: `links`, all
links as they are to be, and of these `come`, those that are new or at other ports, and `go`, those
that were there until now. A link is as in a fabric file, with its ports: `{"between": ["s1", "s2"],
"ports": {"s1": 3, "s2": 1}, "rate": "10 Gbit/s"}`. The command ends with status 0 when the links
stand. It may be killed at any moment, and runs again until it has succeeded.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.controller.machine.wiring import Wiring, as_written
from echelon.model.quantities import one_line
from echelon.switches.southbound.errors import SouthboundError

if TYPE_CHECKING:
    from echelon.controller.service.switches import Switches

_QUIET_S = 0.05
"""The least time for which a queue that sends nothing is empty."""
_LARGEST_BYTES = 9216
"""The largest packet."""
_LIMIT_S = 120.0
"""The longest time that the command may take."""


async def drain(
    switches: Switches,
    wiring: Wiring,
    most_s: float,
) -> None:
    """Return when the ports of the links that go have sent nothing for a while, or after `most_s`.

    A queue with packets sends. Where switches do not count, `most_s` passes.
    """
    ports = _ports_of_switches(wiring)
    rates_bps = [cable.rate_bps for cable in wiring.going]
    slowest_bps = min(rates_bps, default=1)
    # A packet counts when it has been sent: a queue that sends counts one at least in this time.
    two_packets_s = 2 * 8 * _LARGEST_BYTES / slowest_bps
    quiet_s = max(_QUIET_S, two_packets_s)

    ends_at_s = time.monotonic() + most_s
    before = None
    while True:
        left_s = ends_at_s - time.monotonic()
        if left_s <= 0:
            break
        now = await _packets_sent(switches, ports)
        if now is not None and now == before:
            break
        before = now
        await asyncio.sleep(min(quiet_s, left_s))

    # What was sent last arrives.
    delays_s = [float(cable.delay_s) for cable in wiring.going]
    await asyncio.sleep(max(delays_s, default=0.0))


def _ports_of_switches(wiring: Wiring) -> set[tuple[str, int]]:
    """Return the ports of switches at the links that go."""
    ports = set()
    for cable in wiring.going:
        for end in (cable.a, cable.b):
            if end.node in wiring.now.switches:
                ports.add((end.node, end.port))
    return ports


async def _packets_sent(
    switches: Switches, ports: set[tuple[str, int]]
) -> Mapping[tuple[str, int, int], int] | None:
    """Return how many packets each queue of these ports has sent; None: nobody knows of some."""
    names = sorted({switch for switch, _ in ports})
    readings = [switches[name].queue_counts() for name in names]
    try:
        counts = await asyncio.gather(*readings)
    except SouthboundError:
        return None

    packets = {}
    for name, queues in zip(names, counts, strict=True):
        for (port, queue), count in queues.items():
            if (name, port) in ports:
                packets[name, port, queue] = count.packets
    counted = {(switch, port) for switch, port, _ in packets}
    if counted == ports:
        return packets
    return None


async def switch_links(
    command: Sequence[str],
    directory: Path,
    wiring: Wiring,
) -> str | None:
    """Run the command of the optical switch.

    Return the reason, in one line, why the links do not stand.
    """
    assert wiring.then is not None
    order = {
        "links": list(map(as_written, wiring.then.cables)),
        "come": list(map(as_written, wiring.coming)),
        "go": list(map(as_written, wiring.going)),
    }
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=directory,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        return f"{command[0]} cannot be run: {error.strerror or error}"
    try:
        async with asyncio.timeout(_LIMIT_S):
            order_text = json.dumps(order)
            output, _ = await process.communicate(order_text.encode())
    except TimeoutError:
        return f"{command[0]} took more than {_LIMIT_S:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return None
    text = one_line(output.decode(errors="replace"))
    return f"{command[0]} ended with status {process.returncode}: {text}"
