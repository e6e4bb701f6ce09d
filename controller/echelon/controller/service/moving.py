"""The move of links at the switches: waiting until nothing is on its way over them, and telling the
optical switch.

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

from echelon.controller.machine.errors import one_line
from echelon.controller.machine.wiring import Wiring, as_written
from echelon.switches.southbound.errors import SouthboundError

if TYPE_CHECKING:
    from echelon.controller.service.switches import Switches

_QUIET_S = 0.05
"""The least time for which a queue that sends nothing is empty."""
_LARGEST_BYTES = 9216
"""The largest packet."""
_LIMIT_S = 120.0
"""The longest time that the command may take."""


async def drained(switches: Switches, wiring: Wiring, most_s: float) -> None:
    """Return when the ports of the links that go have sent nothing for a while, or after `most_s`.

    A queue with packets sends. Where switches do not count, `most_s` passes.
    """
    ends = [
        end
        for cable in wiring.going
        for end in (cable.a, cable.b)
        if end.node in wiring.now.switches
    ]
    if wiring.going:
        slowest_bps = min(cable.rate_bps for cable in wiring.going)
    else:
        slowest_bps = 1
    quiet_s = max(_QUIET_S, 2 * 8 * _LARGEST_BYTES / slowest_bps)
    over_s = time.monotonic() + most_s
    before = None
    while (left_s := over_s - time.monotonic()) > 0:
        now = await _counts(switches, {(end.node, end.port) for end in ends})
        if now is not None and now == before:
            break
        before = now
        await asyncio.sleep(min(quiet_s, left_s))
    # What was sent last arrives.
    await asyncio.sleep(max((float(cable.delay_s) for cable in wiring.going), default=0.0))


async def _counts(
    switches: Switches, ports: set[tuple[str, int]]
) -> Mapping[tuple[str, int, int], int] | None:
    """Return how many packets each queue of these ports has sent; None: nobody knows of some."""
    names = sorted({switch for switch, _ in ports})
    try:
        read = await asyncio.gather(*(switches[name].queue_counts() for name in names))
    except SouthboundError:
        return None
    counts = {
        (name, *place): one.packets
        for name, of_switch in zip(names, read, strict=True)
        for place, one in of_switch.items()
        if (name, place[0]) in ports
    }
    if {(switch, port) for switch, port, _ in counts} == ports:
        return counts
    return None


async def switched(command: Sequence[str], directory: Path, wiring: Wiring) -> str | None:
    """Run the command of the optical switch.

    Return the reason, in one line, why the links do not stand.
    """
    assert wiring.then is not None
    of = {"links": wiring.then.cables, "come": wiring.coming, "go": wiring.going}
    order = {key: [as_written(cable) for cable in cables] for key, cables in of.items()}
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
            said, _ = await process.communicate(json.dumps(order).encode())
    except TimeoutError:
        return f"{command[0]} took more than {_LIMIT_S:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = one_line(said.decode(errors="replace"))
    if process.returncode == 0:
        return None
    return f"{command[0]} ended with status {process.returncode}: {text}"
