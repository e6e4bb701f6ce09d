"""The ways of writing entries to switches: this project's session, finsy, p4runtime-shell, and
requests already encoded.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import finsy

from echelon.model.p4program import program
from echelon.switches.lowering.intent import Intent, Interval, Prefix, TableEntry
from echelon.switches.southbound.channel import P4RuntimeChannel
from echelon.switches.southbound.codec import OWNER, Codec
from echelon.switches.southbound.encoding import UpdateKind, write_header, write_request
from echelon.switches.southbound.outcomes import Applied
from echelon.switches.southbound.session import SwitchSession
from echelon.switches.targets.softswitch.queues import GnmiQueues

BATCH = 1000
DEVICE_ID = 1
_PRIMARY = 10
_SHELL = Path(__file__).with_name("shell_insert.py")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate of `entries` in `seconds` of wall clock, from the entries as lists to the last
    acknowledgement.
    """

    entries: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.entries / self.seconds


def _empty(intent: Intent) -> Intent:
    return Intent(intent.switch, ())


async def _sessions(stack: AsyncExitStack, addresses: Sequence[str]) -> list[SwitchSession]:
    sessions = []
    for number, address in enumerate(addresses):
        name = f"s{number}"
        session = SwitchSession(name, address, DEVICE_ID, program(), queues=GnmiQueues(name))
        sessions.append(await stack.enter_async_context(session))
    return sessions


async def by_session(
    addresses: Sequence[str],
    intents: Sequence[Intent],
) -> tuple[Rate, list[Applied]]:
    """Measure the change from one intent to the next: encode, compare, write in stages, check for
    refusals. Leaves the entries.
    """
    async with AsyncExitStack() as stack:
        sessions = await _sessions(stack, addresses)
        empty = map(_empty, intents)
        await asyncio.gather(*map(SwitchSession.reconcile, sessions, empty))
        start = time.perf_counter()
        applied = await asyncio.gather(*map(SwitchSession.update, sessions, intents))
        seconds = time.perf_counter() - start
    for result in applied:
        result.require()
    changes = sum(map(len, applied))
    return Rate(changes, seconds), list(applied)


async def clear(addresses: Sequence[str]) -> None:
    async with AsyncExitStack() as stack:
        for session in await _sessions(stack, addresses):
            applied = await session.reconcile(Intent("", ()))
            applied.require()


async def by_bytes(addresses: Sequence[str], intents: Sequence[Intent]) -> Rate:
    """Measure requests of 1000 updates each, made before the clock starts: the time that switch and
    gRPC take.
    """
    async with AsyncExitStack() as stack:
        sessions = await _sessions(stack, addresses)
        codec = Codec(sessions[0].schema)
        header = write_header(DEVICE_ID, _PRIMARY)
        ready = []
        updates_in_all = 0
        for intent in intents:
            entries = [codec.encode(entry).wire for entry in intent.entries]
            requests = []
            for part in _parts(entries):
                request = write_request(header, UpdateKind.INSERT, part)
                requests.append((request, len(part)))
            ready.append(requests)
            updates_in_all += len(entries)
        channels = [P4RuntimeChannel(address) for address in addresses]

        async def send(channel: P4RuntimeChannel, requests: list[tuple[bytes, int]]) -> None:
            for request, updates in requests:
                await channel.write(request, updates)

        for channel in channels:
            await channel.ping(5)
        start = time.perf_counter()
        await asyncio.gather(*map(send, channels, ready))
        seconds = time.perf_counter() - start
        for channel in channels:
            await channel.close()
    return Rate(updates_in_all, seconds)


async def by_finsy(addresses: Sequence[str], intents: Sequence[Intent]) -> Rate:
    """Measure `Switch.write` on lists of 1000 entries, made before the clock starts."""
    options = finsy.SwitchOptions(
        p4info=program().p4info,
        p4blob=program().binary,
        device_id=DEVICE_ID,
    )
    async with AsyncExitStack() as stack:
        switches = []
        for number, address in enumerate(addresses):
            switch = finsy.Switch(f"f{number}", address, options)
            switches.append(await stack.enter_async_context(switch))
        ready = []
        for intent in intents:
            inserts = [+_finsy_entry(entry) for entry in intent.entries]
            ready.append(_parts(inserts))

        async def send(switch: finsy.Switch, batches: list[list[finsy.P4TableEntry]]) -> None:
            for batch in batches:
                await switch.write(batch)

        start = time.perf_counter()
        await asyncio.gather(*map(send, switches, ready))
        seconds = time.perf_counter() - start
    return Rate(sum(len(intent.entries) for intent in intents), seconds)


def _parts(items: list[T]) -> list[list[T]]:
    return [items[start : start + BATCH] for start in range(0, len(items), BATCH)]


def _finsy_entry(entry: TableEntry) -> finsy.P4TableEntry:
    calls = []
    for call in entry.actions:
        arguments = dict(call.arguments)
        calls.append(finsy.P4TableAction(call.name, **arguments))
    if entry.table == "ecmp":
        action = finsy.P4IndirectAction([(1, call) for call in calls])
    else:
        action = calls[0]
    keys = {name: _text(value) for name, value in entry.match}
    return finsy.P4TableEntry(
        entry.table,
        match=finsy.P4TableMatch(keys),
        action=action,
        priority=entry.priority,
        metadata=OWNER,
    )


def _text(value: int | Prefix | Interval) -> int | str:
    match value:
        case Prefix(number, length):
            return f"{number}/{length}"
        case Interval(low, high):
            return f"{low}...{high}"
        case int():
            return value


def by_shell(
    python: Path,
    address: str,
    entries: Sequence[TableEntry],
) -> Rate:
    """Measure `insert()` of p4runtime-shell, which takes one entry at a time.

    Takes only entries with one action.

    Args:
        python: of an environment that has p4runtime-shell.
    """
    plain = []
    for entry in entries:
        [call] = entry.actions
        keys = {name: str(_shell_text(value)) for name, value in entry.match}
        values = {name: str(value) for name, value in call.arguments}
        plain.append((entry.table, keys, call.name, values, entry.priority))
    compiled = program()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(plain, file)
        file.flush()
        command = [python, _SHELL, address, compiled.p4info, compiled.binary, file.name]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        last_line = done.stderr.strip().splitlines()[-1]
        raise RuntimeError(f"p4runtime-shell failed: {last_line}")
    *_, seconds = done.stdout.split()
    return Rate(len(entries), float(seconds))


def _shell_text(value: int | Prefix | Interval) -> int | str:
    if isinstance(value, Interval):
        return f"{value.low}..{value.high}"
    return _text(value)
