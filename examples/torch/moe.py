"""A small mixture of experts: each rank has one expert of a layer, and tokens go to their experts
by all-to-all.

Each token goes to the expert that its router prefers, so the bytes between two ranks differ, and
change as the router learns. Gradients of the routers, which all ranks share, are all-reduced.

Run it with ``torchrun --nproc-per-node 2 examples/torch/moe.py``. All traffic is Gloo's, over TCP.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from device import Device
from torch import nn


class Exchange(torch.autograd.Function):
    """Rows sent to ranks; the gradients go back the same way."""

    @staticmethod
    def forward(ctx, rows, sent, received):
        ctx.sent, ctx.received = sent, received
        out = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(ctx, gradient):
        out = gradient.new_empty(sum(ctx.sent), gradient.shape[1])
        dist.all_to_all_single(out, gradient.contiguous(), ctx.sent, ctx.received)
        return out, None, None


class Experts(nn.Module):
    """A layer of one expert on each rank."""

    def __init__(self, width: int, device_ms: float) -> None:
        super().__init__()
        self.router = nn.Linear(width, dist.get_world_size())
        self.expert = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width), Device(device_ms)
        )

    def forward(self, tokens):
        gates = self.router(tokens).softmax(dim=1)
        weight, choice = gates.max(dim=1)
        order = choice.argsort()
        counts = torch.bincount(choice, minlength=gates.shape[1])
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts)
        sent, received = counts.tolist(), arriving.tolist()
        answers = Exchange.apply(
            self.expert(Exchange.apply(tokens[order], sent, received)), received, sent
        )
        return tokens + weight[:, None] * torch.empty_like(tokens).index_copy(0, order, answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument(
        "--tokens", type=int, default=1024, help="of each rank: of width × 4 bytes each"
    )
    parser.add_argument(
        "--device-ms",
        type=float,
        default=0,
        help="of each expert, forward and backward (device.py)",
    )
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(
        *(Experts(options.width, options.device_ms) for _ in range(options.layers))
    )
    shared = [parameter for layer in model for parameter in layer.router.parameters()]
    for parameter in shared:
        dist.broadcast(parameter.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(options.iterations):
        tokens = torch.randn(options.tokens, options.width)
        optimizer.zero_grad()
        model(tokens).square().mean().backward()
        gradients = torch.cat([parameter.grad.flatten() for parameter in shared])
        dist.all_reduce(gradients)
        for parameter, gradient in zip(
            shared, gradients.split([each.numel() for each in shared]), strict=True
        ):
            parameter.grad.copy_(gradient.view_as(parameter) / dist.get_world_size())
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
