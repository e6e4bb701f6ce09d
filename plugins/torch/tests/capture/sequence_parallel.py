"""Two ranks share layers as torchtitan has them: DTensor with sequence parallelism, and activations
that are computed again in the backward pass. Run by `torchrun`.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WIDTH, TOKENS, LAYERS = 64, 16, 2

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
plan = {"0": ColwiseParallel(input_layouts=Shard(0)), "2": RowwiseParallel(output_layouts=Shard(0))}
layers = [
    nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    for _ in range(LAYERS)
]
model = nn.Sequential(
    *(checkpoint_wrapper(parallelize_module(layer, mesh, plan)) for layer in layers)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(16):
    optimizer.zero_grad()
    model(torch.ones(TOKENS, WIDTH, requires_grad=True)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
