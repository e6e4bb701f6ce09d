"""A script that trains, beside a thread that asks the store of its ranks something all the time, as
heart-beats do.

Run it with ``torchrun --nproc-per-node 2 examples/torch/polled.py SECONDS SCRIPT [ARGUMENTS]``.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading
import time
from pathlib import Path

import torch.distributed as dist


def poll(interval_s: float) -> None:
    """Tell the store that this rank is alive, and read it again, on a connection of its own."""
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False
    )
    while True:
        store.set(f"alive-{os.environ['RANK']}", str(time.time()))
        store.get(f"alive-{os.environ['RANK']}")
        time.sleep(interval_s)


if __name__ == "__main__":
    seconds, script = float(sys.argv[1]), sys.argv[2]
    sys.argv = sys.argv[2:]
    sys.path.insert(0, str(Path(script).parent))
    threading.Thread(target=poll, args=(seconds,), daemon=True).start()
    runpy.run_path(script, run_name="__main__")
