"""A training script, unchanged, whose rank counts what its interface has sent at each step of the
optimizer.

`python counted.py OUT SCRIPT ARGUMENTS...` writes OUT/sent-RANK.json. Only the kernel counts:
nothing here knows of collectives.

From the first step on, all threads but the one that computes go first on their processors. They are
Gloo's, and need little time, but on a machine with a processor for each rank they would wait for
computing.
"""

import json
import os
import runpy
import sys
from pathlib import Path

from torch.optim.optimizer import register_optimizer_step_post_hook

out, script = Path(sys.argv[1]), sys.argv[2]
sys.argv = sys.argv[2:]
counter = Path("/sys/class/net/eth0/statistics/tx_bytes")
sent = []


def count(*_):
    if not sent:
        for thread in Path("/proc/self/task").iterdir():
            if int(thread.name) != os.getpid():
                os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(1))
    sent.append(int(counter.read_text()))


register_optimizer_step_post_hook(count)
sys.path.insert(0, str(Path(script).parent))
runpy.run_path(script, run_name="__main__")
(out / f"sent-{os.environ['RANK']}.json").write_text(json.dumps(sent))
