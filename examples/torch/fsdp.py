"""Sharded data parallelism: `fully_shard` gathers each layer before its use, and scatters its
gradients behind it.

Run it with ``torchrun --nproc-per-node 2 examples/torch/fsdp.py``. All traffic is Gloo's, over TCP.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from device import Device
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument(
        "--width", type=int, default=256, help="of each layer: it has width² × 4 bytes"
    )
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument(
        "--batch", type=int, default=1024, help="samples: computing grows with them, bytes do not"
    )
    parser.add_argument(
        "--prefetch",
        type=int,
        default=0,
        help="layers that are gathered ahead, by explicit prefetch",
    )
    parser.add_argument(
        "--device-ms", type=float, default=0, help="of each layer, forward and backward (device.py)"
    )
    options = parser.parse_args()
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    layers = [
        nn.Sequential(nn.Linear(options.width, options.width), nn.ReLU(), Device(options.device_ms))
        for _ in range(options.layers)
    ]
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    model = fully_shard(nn.Sequential(*layers), mesh=mesh)
    if options.prefetch:
        for at, layer in enumerate(layers):
            layer.set_modules_to_forward_prefetch(layers[at + 1 : at + 1 + options.prefetch])
            layer.set_modules_to_backward_prefetch(layers[max(0, at - options.prefetch) : at][::-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    samples = torch.randn(options.batch, options.width)
    for _ in range(options.iterations):
        optimizer.zero_grad()
        model(samples).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
