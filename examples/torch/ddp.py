"""Data parallelism: DistributedDataParallel all-reduces buckets of gradients during the backward
pass.

Run it with ``torchrun --nproc-per-node 2 examples/torch/ddp.py``. All traffic is Gloo's, over TCP.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
from device import Device
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument(
        "--width", type=int, default=256, help="of each layer: gradients have width² × 4 bytes"
    )
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument(
        "--batch", type=int, default=1024, help="samples: computing grows with them, bytes do not"
    )
    parser.add_argument("--bucket-mb", type=float, default=0.5)
    parser.add_argument(
        "--accumulate",
        type=int,
        default=1,
        help="batches whose gradients add up before all-reduces",
    )
    parser.add_argument(
        "--device-ms", type=float, default=0, help="of each layer, forward and backward (device.py)"
    )
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [
        nn.Sequential(nn.Linear(options.width, options.width), nn.ReLU(), Device(options.device_ms))
        for _ in range(options.layers)
    ]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=options.bucket_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    samples = torch.randn(options.batch, options.width)
    for _ in range(options.iterations):
        optimizer.zero_grad()
        for left in reversed(range(options.accumulate)):
            with model.no_sync() if left else nullcontext():
                model(samples).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
