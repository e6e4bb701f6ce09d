"""A rank of a real job: DistributedDataParallel over gloo, which knows nothing of Echelon.

Its connections are new in each round.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 python training.py DIRECTORY ROUNDS

After each round it writes DIRECTORY/trained-RANK-ROUND, and goes on when there is
DIRECTORY/go-ROUND.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main(directory: Path, rounds: int) -> None:
    rank = os.environ["RANK"]
    for number in range(rounds):
        os.environ["MASTER_PORT"] = str(29500 + number)
        dist.init_process_group("gloo")
        model = DistributedDataParallel(
            nn.Sequential(*(nn.Linear(256, 256) for _ in range(4))), bucket_cap_mb=0.3
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 256)).square().mean().backward()
            optimizer.step()
        (directory / f"trained-{rank}-{number}").touch()
        while not (directory / f"go-{number}").exists():
            time.sleep(0.01)
        del model
        dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
