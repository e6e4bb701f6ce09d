"""The command `softswitch`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from softswitch.cli import main

PROGRAM = Path(__file__).parents[2] / "p4src" / "build" / "v1model" / "echelon.json"


def test_compile_prints_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(PROGRAM)]) == 0
    source = capsys.readouterr().out
    compile(source, "printed", "exec")
    assert "def ingress" in source


@pytest.mark.parametrize("damage", ["missing", "not JSON", "no parser"])
def test_what_cannot_be_used_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    path = tmp_path / "program.json"
    if damage == "not JSON":
        path.write_text("{")
    elif damage == "no parser":
        program = json.loads(PROGRAM.read_text())
        program["parsers"] = []
        path.write_text(json.dumps(program))
    assert main(["compile", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert str(path) in captured.err
