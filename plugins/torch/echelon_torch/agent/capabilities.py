"""The capabilities of this process: it keeps those that the agent names, and gives up others."""

from __future__ import annotations

import ctypes
import os

CAP_DAC_OVERRIDE = 1
CAP_NET_ADMIN = 12
CAP_SYS_PTRACE = 19
CAP_BPF = 39

_VERSION_3 = 0x20080522


def keep_only(*wanted: int) -> None:
    """Give up all capabilities but those `wanted` ones that the calling thread has.

    Threads made later have no more.

    Raise OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    words = (ctypes.c_uint32 * 6)()
    if libc.capget(header, words) != 0:
        raise _refused()
    # Two halves of 32 capabilities, each of them effective, permitted, inheritable.
    for half in (0, 1):
        mask = sum(1 << wish % 32 for wish in wanted if wish // 32 == half)
        effective, permitted, inheritable = 3 * half, 3 * half + 1, 3 * half + 2
        words[permitted] &= mask
        words[effective] = words[permitted]
        words[inheritable] = 0
    if libc.capset(header, words) != 0:
        raise _refused()


def _refused() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
