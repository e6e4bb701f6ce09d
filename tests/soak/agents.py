"""SIGKILLs of agents at random moments, and of their shells and commands
(plugins/torch/tests/agent/kills.py).
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from plugins.torch.tests.agent.kills import kills


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    began_s = time.monotonic()
    with TemporaryDirectory(prefix="soak-") as directory:
        there = kills(Path(directory), options.kills, random.Random(options.seed))
    took_s = time.monotonic() - began_s
    print(
        f"{options.kills} kills in {took_s:.0f} s, {there} of them of what had started; nothing is"
        " left"
    )
    return 0
