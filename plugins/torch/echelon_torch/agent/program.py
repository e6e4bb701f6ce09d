"""The program in the kernel that tells of connections as they open and close
(`bpf/connections.bpf.c`), loaded with libbpf.

It is attached by a link that only this process holds, so the kernel detaches and forgets it when
the process ends, whatever ends it. Loading needs CAP_BPF and CAP_NET_ADMIN.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from ctypes.util import find_library
from pathlib import Path
from typing import Any, NamedTuple, Self

from echelon_torch.agent.connection import AgentError, TcpConnection

OBJECT = Path(__file__).parent / "bpf" / "connections.bpf.o"
_EVENT = struct.Struct("=BBHHH4s4s")
_ACCEPTED, _CLOSED = 2, 3
_MARKED = 0x100
_INT = ctypes.c_int
_POINTER = ctypes.c_void_p
_TEXT = ctypes.c_char_p
_ENTRY = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, ctypes.c_size_t)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "libbpf_set_print": (_POINTER, _POINTER),
    "bpf_object__open_mem": (_POINTER, _TEXT, ctypes.c_size_t, _POINTER),
    "bpf_object__load": (_INT, _POINTER),
    "bpf_object__close": (None, _POINTER),
    "bpf_object__find_program_by_name": (_POINTER, _POINTER, _TEXT),
    "bpf_object__find_map_fd_by_name": (_INT, _POINTER, _TEXT),
    "bpf_program__attach_cgroup": (_POINTER, _POINTER, _INT),
    "bpf_program__fd": (_INT, _POINTER),
    "bpf_link_create": (_INT, _INT, _INT, _INT, _POINTER),
    "bpf_link__destroy": (_INT, _POINTER),
    "bpf_map_delete_elem": (_INT, _INT, _POINTER),
    "bpf_map_update_elem": (_INT, _INT, _POINTER, _POINTER, ctypes.c_uint64),
    "ring_buffer__new": (_POINTER, _INT, _ENTRY, _POINTER, _POINTER),
    "ring_buffer__epoll_fd": (_INT, _POINTER),
    "ring_buffer__consume": (_INT, _POINTER),
    "ring_buffer__free": (None, _POINTER),
}
"""The functions of libbpf that are called: the type of the result, then those of the arguments."""


class Seen(NamedTuple):
    """A connection that has opened or closed."""

    connection: TcpConnection
    is_open: bool
    is_marked: bool
    """Whether its packets carry the mark that was asked for."""
    is_accepted: bool
    """Whether the other end has opened it."""


def parse_event(data: bytes) -> Seen:
    """Return what an entry of the ring buffer tells."""
    kind, marked, local_port, remote_port, _, local, remote = _EVENT.unpack(data)
    local_ipv4 = socket.inet_ntoa(local)
    remote_ipv4 = socket.inet_ntoa(remote)
    connection = TcpConnection(local_ipv4, local_port, remote_ipv4, remote_port)
    return Seen(connection, kind != _CLOSED, bool(marked), kind == _ACCEPTED)


class KernelProgram:
    """The program, attached to a control group and those below it; use it as a context manager.

    With `dscp`, packets of connections that open from now on carry it. Raise `AgentError` where the
    kernel does not allow it, or libbpf is missing.
    """

    def __init__(self, cgroup: Path, dscp: int | None = None) -> None:
        self._seen: list[Seen] = []
        self._take = _ENTRY(self._entry)
        self._libbpf = load_libbpf()
        self._object = self._ring = self._link = None
        try:
            self._attach(cgroup, dscp)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is something to read."""
        return int(self._libbpf.ring_buffer__epoll_fd(self._ring))

    def read(self) -> list[Seen]:
        """Return what has happened since the last call, in order."""
        self._libbpf.ring_buffer__consume(self._ring)
        seen = self._seen
        self._seen = []
        return seen

    def close(self) -> None:
        if self._link:
            self._libbpf.bpf_link__destroy(self._link)
        if self._ring:
            self._libbpf.ring_buffer__free(self._ring)
        if self._object:
            self._libbpf.bpf_object__close(self._object)
        self._object = self._ring = self._link = None

    def _attach(self, cgroup: Path, dscp: int | None) -> None:
        lib = self._libbpf
        code = OBJECT.read_bytes()
        self._object = lib.bpf_object__open_mem(code, len(code), None)
        if not self._object:
            raise refused("read its program")
        if lib.bpf_object__load(self._object) != 0:
            raise refused("load its program")
        program = lib.bpf_object__find_program_by_name(self._object, b"connections")
        events = lib.bpf_object__find_map_fd_by_name(self._object, b"events")
        self._ring = lib.ring_buffer__new(events, self._take, None, None)
        if not self._ring:
            raise refused("make its ring buffer")
        if dscp is not None:
            self._set_mark(dscp)
        try:
            directory = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise AgentError(f"{cgroup}: {error.strerror}") from None
        try:
            self._link = lib.bpf_program__attach_cgroup(program, directory)
            if not self._link:
                raise refused(f"attach its program to {cgroup}")
        finally:
            os.close(directory)

    def _set_mark(self, dscp: int) -> None:
        lib = self._libbpf
        marks = lib.bpf_object__find_map_fd_by_name(self._object, b"marks")
        key = ctypes.c_uint32(0)
        value = ctypes.c_uint32(_MARKED | dscp << 2)
        if lib.bpf_map_update_elem(marks, ctypes.byref(key), ctypes.byref(value), 0) != 0:
            raise refused("set the mark of packets")

    def _entry(
        self,
        _context: int,
        data: int,
        size: int,
    ) -> int:
        entry = ctypes.string_at(data, size)
        self._seen.append(parse_event(entry[: _EVENT.size]))
        return 0


def load_libbpf() -> ctypes.CDLL:
    """Return libbpf with the types of what is called. Raise `AgentError` if it is missing."""
    try:
        lib = ctypes.CDLL(find_library("bpf") or "libbpf.so.1", use_errno=True)
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(lib, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError):
        raise AgentError(
            "libbpf 1.0 or later is not installed (on Debian: apt-get install libbpf1)"
        ) from None
    lib.libbpf_set_print(None)
    return lib


def refused(action: str) -> AgentError:
    """Return the error for what libbpf has just refused."""
    number = ctypes.get_errno()
    if number in (errno.EPERM, errno.EACCES):
        needs = " (it needs CAP_BPF and CAP_NET_ADMIN)"
    else:
        needs = ""
    return AgentError(f"the kernel does not let the agent {action}: {os.strerror(number)}{needs}")
