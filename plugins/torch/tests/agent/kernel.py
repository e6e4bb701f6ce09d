"""The BPF programs, links and control groups of agents that the kernel holds."""

from __future__ import annotations

import ctypes
import os
import struct
from ctypes.util import find_library
from pathlib import Path

from echelon_torch.agent import cgroups
from echelon_torch.agent.connection import AgentError
from echelon_torch.agent.groups import own_group
from echelon_torch.agent.program import KernelProgram
from echelon_torch.agent.ranking import HostRanking

_LINK = struct.Struct("=III4xQ")
"""The beginning of `struct bpf_link_info` of a link with a control group: type, id, program, number
of the group.
"""
_TO_CGROUP = 3
_NAME_AT = 64
"""The offset of `name` in `struct bpf_prog_info` (Linux, include/uapi/linux/bpf.h)."""


def why_no_ebpf() -> str | None:
    """Return why the agent's program cannot be loaded here; None: it can."""
    try:
        with cgroups.JobGroup("probe") as group, KernelProgram(group.path):
            return None
    except AgentError as error:
        # The name of the group has the number of this process, and others ask, too.
        return str(error).replace(f"-{os.getpid()}", "")


def why_no_tcx() -> str | None:
    """Return why the program that ranks packets cannot be attached here; None: it can."""
    try:
        with HostRanking("127.0.0.1"):
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
            if name in (b"connections", b"ranks"):
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


def attached(group: Path) -> tuple[frozenset[int], frozenset[int]]:
    """Return the ids of the links with a control group, and of their programs."""
    lib = ctypes.CDLL(find_library("bpf") or "libbpf.so.1", use_errno=True)
    found = set()
    for link in links():
        descriptor = lib.bpf_link_get_fd_by_id(link)
        if descriptor < 0:
            continue
        info, size = ctypes.create_string_buffer(256), ctypes.c_uint32(256)
        if lib.bpf_obj_get_info_by_fd(descriptor, info, ctypes.byref(size)) == 0:
            kind, _, program, at = _LINK.unpack_from(info.raw)
            if kind == _TO_CGROUP and group.exists() and at == group.stat().st_ino:
                found.add((link, program))
        os.close(descriptor)
    return frozenset(link for link, _ in found), frozenset(program for _, program in found)


def groups() -> frozenset[str]:
    """Return the control groups of agents."""
    return frozenset(str(path) for path in own_group().glob("echelon-*"))
