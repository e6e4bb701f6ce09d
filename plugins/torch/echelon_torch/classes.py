"""The traffic class of a process group, for programs whose communicators have different ones.

`echelon job env` and `echelon agent run --classes` put the classes into the environment. This file
imports nothing but the standard library and PyTorch.
"""

from __future__ import annotations

import os
from typing import Any

VARIABLE = "ECHELON_TRAFFIC_CLASSES"
"""The variable of the environment, as `NAME=BYTE,NAME=BYTE`."""


def traffic_classes() -> dict[str, int]:
    """Return the traffic class of each EchelonFlow that has one.

    Raises:
        ValueError: the variable is not what Echelon writes.
    """
    classes: dict[str, int] = {}
    text = os.environ.get(VARIABLE, "")
    for setting in filter(None, text.split(",")):
        name, _, byte = setting.rpartition("=")
        if not name or not byte.isdecimal() or int(byte) > 255:
            raise ValueError(
                f"{VARIABLE}: '{setting}' is not a name and a traffic class (set it by"
                " `echelon job env`)"
            )
        classes[name] = int(byte)
    return classes


def nccl_options(name: str) -> Any:
    """Return options of a process group whose packets have the traffic class of an EchelonFlow.

    Give them to `new_group` or `init_process_group` as `pg_options`. Needs PyTorch 2.8 with NCCL
    2.26, which have `ProcessGroupNCCL.Options.config.traffic_class`. NCCL reads the class once, as
    it makes the communicator.

    Args:
        name: the EchelonFlow's name, as `echelon job env` prints it. If it has no class there, or
            the environment has no classes, the option stays as it is.

    Raises:
        RuntimeError: this PyTorch has no such option.
        ValueError: the environment's variable is not what Echelon writes.
    """
    from torch import distributed

    options = distributed.ProcessGroupNCCL.Options()
    byte = traffic_classes().get(name)
    if byte is None:
        return options
    if not hasattr(options.config, "traffic_class"):
        raise RuntimeError(
            "this PyTorch has no traffic class for process groups (it needs PyTorch 2.8 with NCCL"
            f" 2.26; or let the program set ncclConfig_t.trafficClass = {byte} itself)"
        )
    options.config.traffic_class = byte
    return options
