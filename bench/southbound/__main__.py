"""Entries onto switches and back: our session beside finsy, p4runtime-shell and prepared bytes.

    python -m bench.southbound [--entries 20000] [--switches 4] [--large 100000] [--rounds 2]

All in one run on one machine. Ratios count; rates of different machines do not compare.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_ROOT), str(_ROOT / "controller")]

from rich.console import Console  # noqa: E402
from rich.progress import Progress  # noqa: E402
from rich.table import Table  # noqa: E402

from bench.southbound import clients  # noqa: E402
from bench.southbound.clients import DEVICE_ID, Rate  # noqa: E402
from bench.southbound.switches import running  # noqa: E402
from bench.southbound.workload import large, leaf  # noqa: E402
from bench.switch.targets import BMV2, SOFTSWITCH, Target  # noqa: E402
from echelon.model.p4program import program  # noqa: E402
from echelon.switches.lowering.intent import Intent  # noqa: E402
from echelon.switches.southbound.outcomes import Applied  # noqa: E402
from echelon.switches.southbound.session import SwitchSession  # noqa: E402
from echelon.switches.targets.softswitch.queues import GnmiQueues  # noqa: E402

T = TypeVar("T")

_SHELL_ENTRIES = 300
_SHELL = next(_ROOT.glob(".venv-interop/echelon/p4runtime-shell-*/bin/python"), _ROOT)
_WANTED_SHELL = 50
_WANTED_FINSY = 3
_WANTED_BYTES = 0.9
_WANTED_READ_S = 3.0


_RUNNER = asyncio.Runner()
"""One event loop for all: gRPC's poller does not outlive the first."""


def _run(work: Coroutine[Any, Any, T]) -> T:
    return _RUNNER.run(work)


def _best(
    work: Callable[[], Coroutine[Any, Any, Rate]],
    addresses: Sequence[str],
    rounds: int,
) -> Rate:
    """Return the best of some rounds, each from empty tables."""
    rates = []
    for _ in range(rounds):
        _run(clients.clear(addresses))
        rates.append(_run(work()))
    return max(rates, key=lambda rate: rate.per_second)


def _shell(address: str, intent: Intent) -> Rate | str:
    if not _SHELL.is_file():
        return "p4runtime-shell is not there: `pytest tests/interop` makes its environment"
    plain = [entry for entry in intent.entries if len(entry.actions) == 1]
    step = max(1, len(plain) // _SHELL_ENTRIES)
    _run(clients.clear([address]))
    return clients.by_shell(_SHELL, address, plain[::step][:_SHELL_ENTRIES])


async def _ours(
    addresses: Sequence[str],
    intents: Sequence[Intent],
    shares: list[str],
) -> Rate:
    rate, applied = await clients.by_session(addresses, intents)
    encoding_s = statistics.fmean(a.encoding_s for a in applied)
    shares[:] = [
        (
            f"encoding {encoding_s:.3f} s and RPC {statistics.fmean(a.rpc_s for a in applied):.3f} s a"
            " switch"
        )
    ]
    return rate


async def _read_back(address: str, intent: Intent) -> tuple[float, float, float]:
    """Return the seconds to write an intent, to compare it, and to do so in a new session."""
    start = time.perf_counter()
    async with _session(address) as session:
        applied = await session.reconcile(intent)
        applied.require()
        written_s = time.perf_counter() - start
        start = time.perf_counter()
        changed = await session.reconcile(intent)
        compared_s = time.perf_counter() - start
        _check_unchanged(session, changed, intent)
    async with _session(address) as session:
        start = time.perf_counter()
        changed = await session.reconcile(intent)
        unknown_s = time.perf_counter() - start
        _check_unchanged(session, changed, intent)
    return written_s, compared_s, unknown_s


def _session(address: str) -> SwitchSession:
    return SwitchSession("s", address, DEVICE_ID, program(), queues=GnmiQueues("s"))


def _check_unchanged(
    session: SwitchSession,
    changed: Applied,
    intent: Intent,
) -> None:
    if changed or session.entries != len(intent.entries):
        raise RuntimeError(f"{session.entries} entries read back, {len(changed)} to write again")


def _verdict(value: float, wanted: float) -> str:
    return f"{value:.2f} ({'≥' if value >= wanted else 'below'} {wanted:g})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.southbound",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument(
        "--entries",
        type=int,
        default=20_000,
        help="of all switches together",
    )
    parser.add_argument(
        "--switches",
        type=int,
        default=4,
    )
    parser.add_argument(
        "--large",
        type=int,
        default=100_000,
        help="entries of the one switch that is read back",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=2,
        help="of each; the best counts",
    )
    options = parser.parse_args(arguments)
    console = Console(width=max(110, Console().width))
    rates = Table("switches", "how", "entries", "entries/s", "ours against it")
    reads = Table("switch", "entries", "written", "read back and compared", "by a new session")
    notes: list[str] = []
    with Progress(
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task("measuring", total=None)

        def tell(label: str) -> None:
            progress.update(task, description=label)

        _softswitches(options, rates, notes, tell)
        _bmv2(options, rates, notes, tell)
        for target in (SOFTSWITCH, BMV2):
            if target.path() is not None:
                tell(f"{options.large} entries of {target.name}")
                _large(target, options.large, reads)
    console.print(rates)
    for note in notes:
        console.print(note)
    console.print(reads)
    console.print(f"wanted: read back and compared in under {_WANTED_READ_S:g} s")
    return 0


def _softswitches(
    options: argparse.Namespace,
    rates: Table,
    notes: list[str],
    tell: Callable[[str], None],
) -> None:
    count = options.switches
    rounds = options.rounds
    intents = [leaf(options.entries // count)] * count
    where = f"{count} softswitch"
    with ExitStack() as stack:
        addresses = [stack.enter_context(running(SOFTSWITCH)) for _ in range(count)]
        tell("finsy")
        finsy = _best(lambda: clients.by_finsy(addresses, intents), addresses, rounds)
        tell("bytes made before")
        ready = _best(lambda: clients.by_bytes(addresses, intents), addresses, rounds)
        tell("this session")
        shares: list[str] = []
        ours = _best(lambda: _ours(addresses, intents, shares), addresses, rounds)
        tell("p4runtime-shell")
        shell = _shell(addresses[0], intents[0])
    rates.add_row(
        where, "echelon, update(intent)", f"{ours.entries}", f"{ours.per_second:,.0f}", "1"
    )
    ratio = ours.per_second / ready.per_second
    rates.add_row(
        where,
        "bytes made before, 1000 a Write",
        f"{ready.entries}",
        f"{ready.per_second:,.0f}",
        f"{ratio:.2f}",
    )
    against = _verdict(ours.per_second / finsy.per_second, _WANTED_FINSY)
    rates.add_row(
        where, "finsy, write() of 1000", f"{finsy.entries}", f"{finsy.per_second:,.0f}", against
    )
    if isinstance(shell, Rate):
        against = _verdict(ours.per_second / shell.per_second, _WANTED_SHELL)
        rates.add_row(
            "1 softswitch",
            "p4runtime-shell, insert()",
            f"{shell.entries}",
            f"{shell.per_second:,.0f}",
            against,
        )
    else:
        notes.append(shell)
    notes.append(f"echelon on {where}: {shares[0]}")


def _bmv2(
    options: argparse.Namespace,
    rates: Table,
    notes: list[str],
    tell: Callable[[str], None],
) -> None:
    if BMV2.path() is None:
        notes.append(f"BMv2: {BMV2.executable} is not installed")
        return
    intents = [leaf(options.entries)]
    with running(BMV2) as address:
        tell("BMv2")
        shares: list[str] = []
        addresses = [address]
        write_ready = partial(clients.by_bytes, addresses, intents)
        write_ours = partial(_ours, addresses, intents, shares)
        ready = _best(write_ready, addresses, options.rounds)
        ours = _best(write_ours, addresses, options.rounds)
    rates.add_row(
        "1 BMv2", "echelon, update(intent)", f"{ours.entries}", f"{ours.per_second:,.0f}", "1"
    )
    against = _verdict(ours.per_second / ready.per_second, _WANTED_BYTES)
    rates.add_row(
        "1 BMv2",
        "bytes made before, 1000 a Write",
        f"{ready.entries}",
        f"{ready.per_second:,.0f}",
        against,
    )
    notes.append(f"echelon on 1 BMv2: {shares[0]}")


def _large(
    target: Target,
    entries: int,
    reads: Table,
) -> None:
    intent = large(entries)
    with running(target) as address:
        written_s, compared_s, unknown_s = _run(_read_back(address, intent))
    seconds = [f"{s:.2f} s" for s in (written_s, compared_s, unknown_s)]
    reads.add_row(target.name, f"{len(intent.entries)}", *seconds)


if __name__ == "__main__":
    sys.exit(main())
