"""A rank of a job of PyTorch, which `test_torch_backend` starts.

Arguments are the rank, the number of ranks, the address of the store, which rank 0 holds unless it
is of the loopback interface, the backend, and what to do. The last line of the output is a JSON
document.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

STEPS = 200


def operations(rank: int, size: int) -> dict[str, Any]:
    """Do one collective of each kind, and return what this rank has."""
    real = torch.sin(torch.arange(999.0) * (rank + 1)) * 10.0 ** (torch.arange(999) % 9 - 4)
    summed = real.clone().view(27, 37)
    dist.all_reduce(summed)
    whole = torch.full((5,), 2**30, dtype=torch.int32)
    dist.all_reduce(whole)
    double = torch.ones(3, dtype=torch.float64) * rank
    dist.all_reduce(double)
    most = torch.ones(3) * rank
    dist.all_reduce(most, dist.ReduceOp.MAX)
    sent = (
        torch.arange(7, dtype=torch.int64) * 2**40
        if rank == 1
        else torch.zeros(7, dtype=torch.int64)
    )
    dist.broadcast(sent, 1)
    odd = (
        torch.tensor([1, 2, 3], dtype=torch.uint8)
        if rank == 0
        else torch.zeros(3, dtype=torch.uint8)
    )
    dist.broadcast(odd, 0)
    share = torch.zeros(2, dtype=torch.int32)
    dist.reduce_scatter(
        share, [torch.arange(2, dtype=torch.int32) + 10 * part + rank for part in range(size)]
    )
    gathered = [torch.zeros(1) for _ in range(size)]
    dist.all_gather(gathered, torch.tensor([float(rank)]))
    halves = dist.new_group([0, 1])
    pair = torch.ones(1)
    if rank < 2:
        dist.all_reduce(pair, group=halves)
    works = [dist.all_reduce(torch.ones(50), async_op=True) for _ in range(5)]
    for work in works:
        work.wait()
    dist.barrier()
    return {
        "given": real.tolist(),
        "summed": summed.view(-1).tolist(),
        "whole": whole.tolist(),
        "double": double.tolist(),
        "most": most.tolist(),
        "sent": sent.tolist(),
        "odd": odd.tolist(),
        "share": share.tolist(),
        "gathered": [float(part) for part in gathered],
        "pair": pair.tolist(),
    }


def training(rank: int, size: int, hook: bool = False, dies: bool = False) -> dict[str, Any]:
    """Train a small model, and return the loss of each step."""
    torch.manual_seed(5)
    layers = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    model = nn.parallel.DistributedDataParallel(layers)
    epochs = 0
    if hook:
        from echelon_aggregation.torch_backend import Aggregation, aggregate

        state = Aggregation()
        model.register_comm_hook(state, aggregate)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = torch.Generator().manual_seed(rank)
    losses, times_s = [], []
    for step in range(STEPS):
        if dies and rank == size - 1 and step == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        print(f"step {step}", flush=True)
        began = perf_counter()
        inputs = torch.randn(8, 16, generator=data)
        loss = (model(inputs) - inputs[:, :4].sum(1, keepdim=True)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(float(total) / size)
        times_s.append(perf_counter() - began)
    if hook:
        epochs = state.group.epoch
        state.close()
    return {"losses": losses, "epochs": epochs, "times_s": times_s}


def main() -> int:
    rank, size, store_at, backend, what = (
        int(sys.argv[1]),
        int(sys.argv[2]),
        sys.argv[3],
        sys.argv[4],
        sys.argv[5],
    )
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    torch.set_num_threads(1)
    if backend == "cpu:echelon":
        import echelon_aggregation.torch_backend  # noqa: F401
    host, _, port = store_at.partition(":")
    store = dist.TCPStore(host, int(port), None, rank == 0 and host != "127.0.0.1")
    dist.init_process_group(backend=backend, store=store, rank=rank, world_size=size)
    try:
        if what == "operations":
            found = operations(rank, size)
        else:
            found = training(rank, size, hook=what == "hook", dies=what == "dies")
    except RuntimeError as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        # The group is of no use any more; an ordinary end would wait for the others.
        os._exit(3)
    dist.destroy_process_group()
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
