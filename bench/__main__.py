"""`make bench`: every `bench()` of the bench_*.py files beside this one, as one table.

`python -m bench WORD` runs a command of its own where `COMMANDS` has the word.

Each returns rows (what, value, unit). Speeds of different machines do not compare: look at the
ratios, which are against a named reference in the same run.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

COMMANDS = {
    "bound": "bench.bound",
    "exact": "bench.exact.command",
    "intervals": "bench.intervals",
    "ladder": "bench.ladder.command",
    "mixes": "bench.mixes.command",
    "planning": "bench.planning",
    "stubs": "bench.stubs.command",
}
"""Modules of commands of their own, by the word after `python -m bench`."""


def main() -> None:
    folder = Path(__file__).parent
    root = Path(__file__).parents[1]
    sys.path[:0] = [str(root / "tests"), str(root / "controller"), str(root)]
    wanted = sys.argv[1:]
    if wanted and wanted[0] in COMMANDS:
        command = importlib.import_module(COMMANDS[wanted[0]])
        command.main(wanted[1:])
        return
    table = Table("benchmark", "what", "value", "unit")
    with Console(stderr=True).status("measuring") as status:
        for path in sorted(folder.glob("bench_*.py")):
            name = path.stem.removeprefix("bench_")
            if wanted and name not in wanted:
                continue
            status.update(f"measuring {name}")
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[path.stem] = module
            spec.loader.exec_module(module)
            for label, value, unit in module.bench():
                table.add_row(
                    name, label, f"{value:,.0f}" if value >= 100 else f"{value:.3g}", unit
                )
    Console().print(table)


if __name__ == "__main__":
    main()
