"""A script that trains nothing: two ranks that call each operation once in an iteration.

It has the two-line hook.

`python every_operation.py OUT` with the variables of `torchrun`.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from echelon_torch import observe

dist.init_process_group("gloo")
rank = dist.get_rank()
alone = dist.new_group([1], group_desc="odd ranks")
ten, four = torch.zeros(10), torch.zeros(4)
wait = dist.Work.wait


class Sum(torch.nn.Module):
    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(tensor, "sum", dist.group.WORLD)


model = torch.nn.ModuleDict({"unused": Sum(), "head": torch.nn.Sequential(Sum())})
model.forward = lambda tensor: model["head"](tensor)

with observe(sys.argv[1], iterations=2, skip=1) as observer:
    assert observe() is observer
    for _ in range(5):
        dist.all_reduce(ten)
        work = dist.all_reduce(four, async_op=True)
        dist.broadcast(ten, src=1)
        dist.reduce(ten, dst=1)
        dist.all_gather([torch.zeros(10), torch.zeros(10)], ten)
        dist.gather(ten, [torch.zeros(10), torch.zeros(10)] if rank == 0 else None, dst=0)
        dist.scatter(ten, [torch.zeros(10), torch.zeros(10)] if rank == 1 else None, src=1)
        dist.all_to_all_single(torch.zeros(4), four)
        dist.all_to_all_single(torch.zeros(2 + rank * 2), torch.zeros(3), [1 + rank] * 2, [1, 2])
        if rank == 0:
            dist.send(four, 1)
        else:
            dist.recv(four, 0)
            dist.all_reduce(ten, group=alone)
        dist.barrier()
        work.wait()
        functional.wait_tensor(model(four))
        observer.step()

assert dist.Work.wait is wait, "the observer has put everything back"
Path(sys.argv[1], f"done-{rank}").touch()
dist.destroy_process_group()
