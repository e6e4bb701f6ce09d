"""``python -m tests.soak attacks [NAMES]``: each attack on a service and a switch of its own.

A row is an attack: how long an operator waits meanwhile, and the memory of the attacked process;
the answers to the attacker follow. The exit status is 1 where a bound broke: a process died, an
acknowledged change is lost, compilers outlive their switch, or memory is beyond the attack's bound.
"""

from __future__ import annotations

import argparse
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.soak.attacks import clients, messages, programs, streams
from tests.soak.attacks.target import ANSWER_S, Answer, Target, Telling
from tests.soak.attacks.victim import ATTACKED, Operator, Victim, victim
from tests.soak.processes import descendants, is_running

_SPAWNING = multiprocessing.get_context("spawn")

SWITCH_MB = 256
"""The bound of a switch. It takes 80 MB without a program, 100 with the product's."""
PROGRAM_MB = 1400
"""The bound with a hostile program: its budget is 1 GiB, beside its text and its C."""
SERVICE_MB = 200

_LOOK_S = 0.5
_HOLDS_S = 2.0
"""The time after which an attacker holds what it can."""
_ENDS_S = 3.0
"""The most time that a compiler outlives its switch."""


@dataclass(frozen=True)
class Attack:
    text: str
    make: Callable[[Target, Telling], None]
    most_mb: int = SWITCH_MB
    of_switch: bool = True
    restarts: bool = False
    """Whether the service is killed and started again while the attacker holds its places."""
    ends: bool = False
    """Whether the attack ends by itself, when it has tried everything once."""


ATTACKS = {
    "programs": Attack(
        "hostile programs and packets", programs.push_programs, PROGRAM_MB, ends=True
    ),
    "compilers": Attack("six programs of 3,000 tables", programs.keep_compilers, PROGRAM_MB),
    "idle": Attack("60 silent streams, a restart", streams.hold_idle, restarts=True),
    "apart": Attack("60 silent streams of 60 peers", streams.hold_idle_apart, restarts=True),
    "backups": Attack("16 backups, a restart", streams.hold_backups, restarts=True),
    "role": Attack("another role deletes all entries", streams.delete_entries),
    "pipeline": Attack("another role replaces the pipeline", streams.replace_pipeline),
    "read4": Attack("Read of 10,000 queries", partial(messages.read_queries, queries=10_000)),
    "read5": Attack("Read of 100,000 queries", partial(messages.read_queries, queries=100_000)),
    "read6": Attack("Read of 1,000,000", partial(messages.read_queries, queries=1_000_000)),
    "long": Attack("Reads of everything", messages.read_everything),
    "mb64": Attack("messages of 64 MB", partial(messages.send_large, megabytes=64)),
    "mb512": Attack("messages of 512 MB", partial(messages.send_large, megabytes=512)),
    "handshakes": Attack("2,000 TLS handshakes", clients.shake_hands, SERVICE_MB, False),
    "strangers": Attack("1,000 clients of the API", clients.hold_connections, SERVICE_MB, False),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = f"of {', '.join(ATTACKS)} (default: all)"
    parser.add_argument("names", nargs="*", metavar="NAMES", help=names)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of each attack (default: %(default)s)"
    )
    parser.add_argument("--answers", action="store_true", help="print all answers to attackers")


def run(options: argparse.Namespace) -> int:
    names = options.names or list(ATTACKS)
    unknown = set(names) - set(ATTACKS)
    if unknown:
        raise SystemExit(f"no attack {', '.join(sorted(unknown))}; there are {', '.join(ATTACKS)}")
    print(
        "attack | status p50, worst ms | submit --wait p50, worst ms (count) | without answer"
        " | memory MB before, most, after | alive | broken"
    )
    is_broken = False
    for name in names:
        with TemporaryDirectory(prefix="soak-") as directory, victim(Path(directory)) as served:
            faults = _make(name, ATTACKS[name], served, options)
        is_broken = is_broken or bool(faults)
    return 1 if is_broken else 0


def _make(
    name: str,
    attack: Attack,
    served: Victim,
    options: argparse.Namespace,
) -> list[str]:
    operator = Operator(served, attack.of_switch)
    operator.take_memory()
    receiver, sender = _SPAWNING.Pipe(duplex=False)
    attacker = _SPAWNING.Process(
        target=_attack, args=(attack.make, served.target, sender), daemon=True
    )
    attacker.start()
    sender.close()
    # A process that has begun says so first.
    receiver.recv()
    answers: list[Answer] = []
    reader = threading.Thread(target=_read, args=(receiver, answers), daemon=True)
    reader.start()
    back_s = None
    if attack.restarts:
        time.sleep(_HOLDS_S)
        began_s = time.monotonic()
        served.restart()
        back_s = time.monotonic() - began_s
    with operator.at_work():
        attacker.join(None if attack.ends else options.seconds)
        # An attack that has met nothing yet shows nothing.
        give_up_at = time.monotonic() + ANSWER_S
        while not answers and attacker.is_alive() and time.monotonic() < give_up_at:
            attacker.join(_LOOK_S)
    attacker.kill()
    attacker.join()
    alive = served.is_alive()
    faults = [] if alive else ["died"]
    if alive:
        faults += _consequences(served, operator)
        operator.take_memory()
    if max(operator.resident) > attack.most_mb * 1_000_000:
        faults.append(f"more than {attack.most_mb} MB")
    faults += _left_over(served)
    _print_row(name, operator, alive, faults)
    if back_s is not None:
        print(f"    the service leads again after {back_s:.1f} s")
    _print_answers(attack, operator, answers, options.answers)
    return faults


def _attack(make: Callable[[Target, Telling], None], target: Target, pipe: Connection) -> None:
    pipe.send(None)
    make(target, Telling(pipe))


def _read(pipe: Connection, answers: list[Answer]) -> None:
    try:
        while True:
            answers.append(pipe.recv())
    except (EOFError, OSError):
        return


def _consequences(served: Victim, operator: Operator) -> list[str]:
    """Return what is not as it was acknowledged, once the attack is over."""
    wrong = served.recover()
    if wrong:
        return [f"not in order after the attack: {wrong}"[:200]]
    lost = operator.lost()
    return [f"lost: {', '.join(lost)}"] if lost else []


def _left_over(served: Victim) -> list[str]:
    """Kill the attacked switch; return a fault if processes that it started go on."""
    switch = served.lab.switches[ATTACKED]
    children = descendants(switch.process.pid)
    switch.kill()
    until = time.monotonic() + _ENDS_S
    while children and time.monotonic() < until:
        children = [pid for pid in children if is_running(pid)]
        time.sleep(0.1)
    return [f"{len(children)} of the switch's processes go on"] if children else []


def _print_row(name: str, operator: Operator, alive: bool, faults: Iterable[str]) -> None:
    resident = operator.resident
    memory = [resident[0], max(resident), resident[-1]]
    cells = [
        name,
        _times(operator.status_s),
        f"{_times(operator.submit_s)} ({len(operator.submit_s)})",
        str(len(operator.failures)),
        ", ".join(str(each // 1_000_000) for each in memory),
        "yes" if alive else "NO",
        "; ".join(faults) or "-",
    ]
    print(" | ".join(cells), flush=True)


def _times(times_s: list[float]) -> str:
    if not times_s:
        return "-"
    return f"{1e3 * median(times_s):.0f}, {1e3 * max(times_s):.0f}"


def _print_answers(
    attack: Attack,
    operator: Operator,
    answers: Iterable[Answer],
    prints_all: bool,
) -> None:
    """Print the answers to the attacker, each once with the longest wait for it."""
    counts: Counter[tuple[str, str]] = Counter()
    longest_s: dict[tuple[str, str], float] = {}
    for call, answer, took_s in answers:
        counts[call, answer] += 1
        longest_s[call, answer] = max(longest_s.get((call, answer), 0.0), took_s or 0.0)
    print(f"    {attack.text}; told:")
    for (call, answer), count in list(counts.items())[: None if prints_all else 30]:
        print(f"      {call}: {answer} ({count} x, at most {longest_s[call, answer]:.2f} s)")
    for title, lines in (("problem", operator.problems), ("failure", set(operator.failures))):
        for line in sorted(lines)[:5]:
            print(f"    {title}: {line[:200]}")
