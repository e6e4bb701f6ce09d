"""A pipeline of `torch.distributed.pipelining`: stages send activations forward and gradients back.

Run it with ``torchrun --nproc-per-node 2 examples/torch/pipeline.py``. All traffic is Gloo's, over
TCP.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from device import Device
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--schedule", choices=["gpipe", "1f1b"], default="1f1b")
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument(
        "--layers",
        type=int,
        default=4,
        help="of each stage: computing grows with them, bytes do not",
    )
    parser.add_argument(
        "--batch", type=int, default=256, help="samples of a micro-batch: of width × 4 bytes each"
    )
    parser.add_argument(
        "--device-ms", type=float, default=0, help="of each layer, forward and backward (device.py)"
    )
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, stages = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layers = [
        nn.Sequential(nn.Linear(options.width, options.width), nn.ReLU(), Device(options.device_ms))
        for _ in range(options.layers)
    ]
    model = nn.Sequential(*layers)
    stage = PipelineStage(model, rank, stages, torch.device("cpu"))
    make = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[options.schedule]
    schedule = make(stage, options.micro_batches, loss_fn=nn.MSELoss())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    samples = torch.randn(options.micro_batches * options.batch, options.width)
    for _ in range(options.iterations):
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(samples)
        elif rank == stages - 1:
            schedule.step(target=samples)
        else:
            schedule.step()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
