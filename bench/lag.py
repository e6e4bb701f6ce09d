"""``python -m bench.lag FILE COMMAND...``: run `echelon COMMAND...`, and measure its event loop's
delay.

A timer of 5 ms goes off all the while. At the end FILE has, as JSON, a row for every time that it
went off: the seconds of the monotonic clock, how many seconds late it was, and for how many of
these the process was at work. The rest is due to other processes of a machine that is shared.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from echelon.cli import main

PERIOD_S = 0.005
seen: list[tuple[float, float, float]] = []


class _Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = super().new_event_loop()

        def ring(due_s: float, before_s: float) -> None:
            now_s = time.monotonic()
            late_s = now_s - due_s
            worked_s = time.process_time()
            held_s = min(late_s, worked_s - before_s)
            sample = (round(now_s, 4), round(late_s, 6), round(held_s, 6))
            seen.append(sample)
            loop.call_later(PERIOD_S, ring, now_s + PERIOD_S, worked_s)

        loop.call_soon(ring, time.monotonic(), time.process_time())
        return loop


if __name__ == "__main__":
    out = Path(sys.argv.pop(1))
    asyncio.set_event_loop_policy(_Policy())
    try:
        main()
    finally:
        out.write_text(json.dumps(seen))
