"""The process that computes for `CpuComputing`.

It keeps a processor busy for as much of its time as it is asked for.

This script imports next to nothing. It reads 8-byte counts of nanoseconds from standard input. It
writes a byte to standard output when it is ready, and one for each count when that time has been
used. It ends with its standard input.
"""

import os
import struct
import sys
import time

_REQUEST = struct.Struct("=q")


def burn(duration_ns: int) -> None:
    """Keep the processor busy until this process has used `duration_ns` more of its time."""
    end_ns = time.process_time_ns() + duration_ns
    value = 1
    while time.process_time_ns() < end_ns:
        for _ in range(200):
            value = (value * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF


def _main() -> None:
    requests = sys.stdin.fileno()
    answers = sys.stdout.fileno()
    os.write(answers, b".")
    while request := os.read(requests, _REQUEST.size):
        burn(*_REQUEST.unpack(request))
        os.write(answers, b".")


if __name__ == "__main__":
    _main()
