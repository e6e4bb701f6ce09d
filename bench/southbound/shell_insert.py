"""Inserts entries with p4runtime-shell, one by one, as it can.

Runs in the environment of p4runtime-shell.

    python shell_insert.py ADDRESS P4INFO JSON ENTRIES

ENTRIES is a JSON file: a list of [table, {field: text}, action, {parameter: text}, priority].
Prints the seconds that the insertions took; the objects were made before.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import p4runtime_sh.shell as sh


def main() -> None:
    address, p4info, program, path = sys.argv[1:]
    sh.setup(
        device_id=1,
        grpc_addr=address,
        election_id=(0, 10),
        config=sh.FwdPipeConfig(p4info, program),
        verbose=False,
    )
    try:
        with Path(path).open() as file:
            ready = [table_entry(*entry) for entry in json.load(file)]
        start = time.perf_counter()
        for entry in ready:
            entry.insert()
        print(time.perf_counter() - start)
    finally:
        sh.teardown()


def table_entry(
    table: str,
    match: dict[str, str],
    action: str,
    arguments: dict[str, str],
    priority: int,
) -> sh.TableEntry:
    entry = sh.TableEntry(table)(action=action)
    for name, value in match.items():
        entry.match[name] = value
    for name, value in arguments.items():
        entry.action[name] = value
    entry.metadata = b"echelon"
    if priority:
        entry.priority = priority
    return entry


if __name__ == "__main__":
    main()
