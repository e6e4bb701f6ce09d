"""Tensor parallelism inside data parallelism, on a device mesh: DTensor divides each layer among
the ranks of a host.

Run it with ``torchrun --nproc-per-node 4 examples/torch/mesh.py``: ranks 0 and 1 share one copy of
the model, ranks 2 and 3 the other. All traffic is Gloo's, over TCP.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from device import Device
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--tensor", type=int, default=2, help="ranks that share a layer")
    parser.add_argument(
        "--width", type=int, default=192, help="of each layer, which has 4 × width² parameters"
    )
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument(
        "--batch", type=int, default=64, help="samples: what ranks of a layer sum grows with them"
    )
    parser.add_argument("--bucket-mb", type=float, default=0.25)
    parser.add_argument(
        "--device-ms", type=float, default=0, help="of each layer, forward and backward (device.py)"
    )
    options = parser.parse_args()
    dist.init_process_group("gloo")
    shape = dist.get_world_size() // options.tensor, options.tensor
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "tensor"))
    torch.manual_seed(0)
    layers = [
        nn.Sequential(
            nn.Linear(options.width, 2 * options.width),
            nn.ReLU(),
            nn.Linear(2 * options.width, options.width),
            Device(options.device_ms),
        )
        for _ in range(options.layers)
    ]
    for layer in layers:
        parallelize_module(layer, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    model = DistributedDataParallel(
        nn.Sequential(*layers), device_mesh=mesh["data"], bucket_cap_mb=options.bucket_mb
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    samples = torch.randn(options.batch, options.width)
    for _ in range(options.iterations):
        optimizer.zero_grad()
        model(samples).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
