"""``python -m tests.echelon.service.switch_process FABRIC``: serve all switches of a fabric until
standard input ends.

The first line of the output is JSON: the address by switch. `running` starts several such processes
and spreads the switches over them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from echelon.model.fabric.load import load_fabric
from echelon_lab.virtual.embedded import VirtualTestbed


@contextmanager
def running(fabric: Path, processes: int) -> Iterator[dict[str, str]]:
    """Yield the address of each switch of the fabric; switches take turns over the processes."""
    with ExitStack() as stack:
        started = []
        for _ in range(processes):
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.echelon.service.switch_process", fabric],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            stack.callback(process.kill)
            started.append(process)
        served = []
        for process in started:
            assert process.stdout is not None
            served.append(json.loads(process.stdout.readline()))
        yield {name: served[place % processes][name] for place, name in enumerate(served[0])}


def main() -> None:
    with VirtualTestbed(load_fabric(Path(sys.argv[1]))) as testbed:
        print(json.dumps(dict(testbed.addresses)), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
