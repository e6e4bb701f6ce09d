"""The part of Echelon inside a training script that uses PyTorch (docs/torch.md)::

from echelon_torch import observe

observe()  # behind torch.distributed.init_process_group()
"""

from __future__ import annotations

from echelon_torch.classes import nccl_options, traffic_classes
from echelon_torch.observer import Observer, observe

__all__ = ["Observer", "nccl_options", "observe", "traffic_classes"]
