"""``python -m bench.lag FILE COMMAND...``: run `echelon COMMAND...`, and measure its event loop's
delay.

A timer of 5 ms goes off all the while. At the end FILE has, as JSON, a list of pairs for every time
that it went off: the seconds since the start, and how many seconds late it was.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from echelon.cli import main

PERIOD_S = 0.005
seen: list[tuple[float, float]] = []


class _Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = super().new_event_loop()

        def ring(due_s: float) -> None:
            now_s = time.monotonic()
            seen.append((round(now_s, 4), round(now_s - due_s, 6)))
            loop.call_later(PERIOD_S, ring, now_s + PERIOD_S)

        loop.call_soon(ring, time.monotonic())
        return loop


if __name__ == "__main__":
    out = Path(sys.argv.pop(1))
    asyncio.set_event_loop_policy(_Policy())
    try:
        main()
    finally:
        out.write_text(json.dumps(seen))
