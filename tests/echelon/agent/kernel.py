"""The BPF programs, links and control groups of agents that the kernel holds."""

from __future__ import annotations

import ctypes
import os
from ctypes.util import find_library

from echelon.agent import cgroups
from echelon.agent.connection import AgentError
from echelon.agent.program import KernelProgram

_NAME_AT = 64
"""The offset of `name` in `struct bpf_prog_info` (Linux, include/uapi/linux/bpf.h)."""


def why_no_ebpf() -> str | None:
    """Return why the agent's program cannot be loaded here; None: it can."""
    try:
        with cgroups.group_for("probe") as group, KernelProgram(group):
            return None
    except AgentError as error:
        return str(error)


def programs() -> frozenset[int]:
    """Return the ids of all programs of agents."""
    lib = ctypes.CDLL(find_library("bpf") or "libbpf.so.1", use_errno=True)
    found = set()
    at = ctypes.c_uint32(0)
    while lib.bpf_prog_get_next_id(at, ctypes.byref(at)) == 0:
        descriptor = lib.bpf_prog_get_fd_by_id(at)
        if descriptor < 0:
            continue
        info, size = ctypes.create_string_buffer(256), ctypes.c_uint32(256)
        if lib.bpf_obj_get_info_by_fd(descriptor, info, ctypes.byref(size)) == 0:
            name = info.raw[_NAME_AT : _NAME_AT + 16].rstrip(b"\0")
            if name == b"connections":
                found.add(at.value)
        os.close(descriptor)
    return frozenset(found)


def links() -> frozenset[int]:
    """Return the ids of all links."""
    lib = ctypes.CDLL(find_library("bpf") or "libbpf.so.1", use_errno=True)
    found = set()
    at = ctypes.c_uint32(0)
    while lib.bpf_link_get_next_id(at, ctypes.byref(at)) == 0:
        found.add(at.value)
    return frozenset(found)


def groups() -> frozenset[str]:
    """Return the control groups of agents."""
    return frozenset(str(path) for path in cgroups.own_group().glob("echelon-*"))
