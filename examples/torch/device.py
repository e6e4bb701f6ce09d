"""A stand-in for an accelerator: a layer that takes a given time, and no processor.

Where several jobs are tried on one machine, their ranks, the switches and everything else share its
processors, which accelerators would not. With ``--device-ms`` the examples take most of their time
in this layer.
"""

from __future__ import annotations

import time

import torch
from torch import nn


class _Busy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, activations, seconds):
        ctx.seconds = seconds
        time.sleep(seconds)
        return activations.clone()  # FSDP takes no views

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds)
        return gradient, None


class Device(nn.Module):
    """A layer that changes nothing, and takes `ms` milliseconds forward and as long backward."""

    def __init__(self, ms: float) -> None:
        super().__init__()
        self.seconds = ms / 1000

    def forward(self, activations):
        return _Busy.apply(activations, self.seconds) if self.seconds else activations
