"""A program with data, pipeline and tensor parallelism that knows nothing of Echelon."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

NUMBERS = 20_000


def main(iterations: int) -> None:
    """Train for so many iterations: what is computed is not looked at."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("data", "pipeline", "tensor"))
    stage = mesh.get_local_rank("pipeline")
    pipeline = mesh.get_group("pipeline")
    for _ in range(iterations):
        activation = torch.ones(NUMBERS)
        gradient = torch.ones(NUMBERS)
        if stage == 0:
            dist.all_reduce(activation, group=mesh.get_group("tensor"))
            dist.send(activation, group=pipeline, group_dst=1)
            dist.recv(gradient, group=pipeline, group_src=1)
        else:
            dist.recv(activation, group=pipeline, group_src=0)
            dist.all_reduce(activation, group=mesh.get_group("tensor"))
            dist.send(gradient, group=pipeline, group_dst=0)
        dist.all_reduce(gradient, group=mesh.get_group("data"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
