"""A training script, unchanged, whose rank counts what its interface has sent at each step of the optimizer.

`python counted.py OUT SCRIPT ARGUMENTS...` writes OUT/sent-RANK.json. Only the kernel counts: nothing here knows of
collectives.
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
register_optimizer_step_post_hook(lambda *_: sent.append(int(counter.read_text())))
runpy.run_path(script, run_name="__main__")
(out / f"sent-{os.environ['RANK']}.json").write_text(json.dumps(sent))
