"""SIGKILLs at random moments of an agent's life: of the agent, of the shell that cleans up after
it, of the command.

Whatever is killed, in the end there is no process, no control group and no program in the kernel.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from echelon_torch.agent import groups
from plugins.torch.tests.agent import kernel
from tests.echelon.service.lab import BIN, PATIENCE_S, until

VICTIMS = ("agent", "shell", "command", "shell, agent", "command, agent")
_NAMES = {"shell": "sh", "command": "cat"}
MARK = "ECHELON_KILLS"
LONGEST_LIFE_S = 2.0
"""An agent has started after about a second."""


def kill(directory: Path, victim: str, after_s: float) -> bool:
    """Start an agent, kill the victim after that time, and check that nothing is left.

    Return whether all that was to be killed was there by then. Raise `AssertionError`.
    """
    mark = uuid.uuid4().hex
    # The command ends with its standard input; the shell has a standard input of its own.
    agent = subprocess.Popen(
        [
            BIN / "echelon",
            "agent",
            "run",
            "--url",
            f"unix:{directory}/nobody",
            "--job",
            "killed",
            "--",
            "cat",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, MARK: mark},
    )
    assert agent.stdin is not None
    time.sleep(after_s)
    # Other agents may run on this machine.
    group = groups.own_group() / f"echelon-killed-{agent.pid}"
    links, programs = kernel.attached(group)
    # One after the other, even if the first was not there.
    were_there = [_kill(agent.pid, one) for one in victim.split(", ")]
    if victim == "command" and all(were_there):
        # The agent ends with its command, and as it.
        assert agent.wait(PATIENCE_S) == 128 + signal.SIGKILL
    agent.stdin.close()
    agent.wait(PATIENCE_S)
    until(
        lambda: not list(marked(mark)),
        f"{victim} after {after_s} s: these run: {list(marked(mark))}",
    )
    until(lambda: not group.exists(), f"{victim} after {after_s} s: {group} is left")
    until(
        lambda: not links & kernel.links() and not programs & kernel.programs(),
        f"{victim} after {after_s} s: links {links} or programs {programs} are left",
    )
    return all(were_there)


def _kill(agent: int, victim: str) -> bool:
    """Kill the agent or one of its children; return whether it was there."""
    if victim == "agent":
        os.kill(agent, signal.SIGKILL)
        return True
    found = [child for child in children(agent) if name(child) == _NAMES[victim]]
    for child in found:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    if found and victim == "shell":
        # If the agent were killed at the same moment, nobody would be left to clean up.
        until(
            lambda: "sh" in {name(one) for one in children(agent) if one not in found},
            "there is no other shell",
        )
    return bool(found)


def name(process: int) -> str:
    with suppress(OSError):
        # A process that has ended and is not waited for yet is a zombie.
        status = Path(f"/proc/{process}/stat").read_text()
        return (
            ""
            if status.rpartition(")")[2].split()[0] == "Z"
            else status.partition("(")[2].rpartition(")")[0]
        )
    return ""


def children(process: int) -> list[int]:
    with suppress(OSError):
        return [
            int(word)
            for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()
        ]
    return []


def marked(mark: str) -> Iterator[int]:
    """Yield the processes that an agent and its descendants are."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (
                entry / "environ"
            ).read_bytes().split(b"\0"):
                yield int(entry.name)


def kills(directory: Path, count: int, rng: random.Random) -> int:
    """Kill so many times; return how often the victim was there."""
    return sum(
        kill(directory, VICTIMS[number % len(VICTIMS)], rng.uniform(0, LONGEST_LIFE_S))
        for number in range(count)
    )
