"""The ports of stores, from what processes were told: of a tree that stands for /proc, and of a
real process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from echelon_torch.agent.stores import store_ports


@pytest.mark.parametrize(
    ("words", "environment", "ports"),
    [
        (["python", "train.py"], ["MASTER_PORT=4711", "PATH=/bin"], {4711}),
        (["torchrun", "--master-port", "1234", "train.py"], [], {1234}),
        (["torchrun", "--master_port=1234"], ["PET_MASTER_PORT=1235"], {1234, 1235}),
        (["torchrun", "--rdzv-endpoint=h1:5000"], [], {5000}),
        (["torchrun", "--rdzv_endpoint", "h1"], [], {29400}),
        (["torchrun"], ["PET_RDZV_ENDPOINT=[::1]:5001"], {5001}),
        (
            ["train.py", "--master-port"],
            ["MASTER_PORT=", "MASTER_PORT=x", "MASTER_PORT=70000", "MY_MASTER_PORT=1"],
            (),
        ),
        (["train.py", "--rdzv-endpoint", ""], ["MASTER_PORT=0"], ()),
    ],
)
def test_what_processes_were_told(
    tmp_path: Path, words: Sequence[str], environment: Sequence[str], ports: set[int]
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (tmp_path / "7" / "environ").write_bytes(
        b"".join(line.encode() + b"\0" for line in environment)
    )
    # Process 8 has ended.
    assert store_ports([7, 8], tmp_path) == set(ports)


def test_a_process_of_one_s_own() -> None:
    script = [sys.executable, "-c", "print(); input()", "--rdzv-endpoint", "h1:5000"]
    told = {**os.environ, "MASTER_PORT": "4711"}
    with subprocess.Popen(
        script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=told
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.read(1)  # the kernel has its words now
        assert store_ports([process.pid]) == {4711, 5000}
        process.stdin.write(b"\n")
