"""Compiled test programs: ``python -m tests.softswitch.stf.compiling FOLDER ...`` makes them anew
with p4c-bm2-ss.

Beside each FOLDER/NAME.p4 stand NAME.json, without the positions in the source, and
NAME.p4info.txtpb.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class CompileError(Exception):
    """The error for a program that p4c does not compile; the message is what it says."""


@dataclass(frozen=True)
class Compiled:
    """The output of p4c for a program."""

    json: str
    p4info: str


def compile_p4(source: Path) -> Compiled:
    """Compile a program for v1model. Raises CompileError."""
    with tempfile.TemporaryDirectory() as scratch:
        p4info = Path(scratch, "out.p4info.txtpb")
        return Compiled(
            compile_json(source, "p4-16", "--p4runtime-files", str(p4info)), p4info.read_text()
        )


def compile_json(source: Path, std: str, *options: str) -> str:
    """Compile the JSON alone: for P4_14, where names may clash in a P4Info. Raises CompileError."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "out.json")
        command = [
            "p4c-bm2-ss",
            "--std",
            std,
            "--arch",
            "v1model",
            "-o",
            str(out),
            *options,
            source.name,
        ]
        done = subprocess.run(
            command, cwd=source.parent, capture_output=True, text=True, check=False
        )
        if done.returncode or not out.exists():
            raise CompileError(" ".join(done.stderr.split()))
        return out.read_text()


def committed_form(program: str) -> str:
    """Return a program's JSON as it is committed: one line, and nothing that changes when a comment
    does.
    """
    return json.dumps(_without_positions(json.loads(program)), separators=(",", ":")) + "\n"


def _without_positions(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_positions(held) for key, held in value.items() if key != "source_info"
        }
    return [_without_positions(held) for held in value] if isinstance(value, list) else value


def main(folders: list[str]) -> int:
    """Compile every program of the folders; 1 if one is refused."""
    refused = 0
    for source in sorted(path for folder in folders for path in Path(folder).glob("*.p4")):
        try:
            compiled = compile_p4(source)
        except CompileError as error:
            refused = 1
            print(f"{source}: {error}", file=sys.stderr)
            continue
        source.with_suffix(".json").write_text(committed_form(compiled.json))
        source.with_suffix(".p4info.txtpb").write_text(compiled.p4info)
    return refused


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
