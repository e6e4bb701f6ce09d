"""The same seed, the same file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from echelon.cli import app

SCENARIOS = Path(__file__).parents[2] / "topologies" / "scenarios"


@pytest.mark.parametrize("name", ["fig2", pytest.param("dp_pair", marks=pytest.mark.long)])
def test_two_runs_write_identical_results(tmp_path: Path, name: str) -> None:
    document = yaml.safe_load((SCENARIOS / f"{name}.yaml").read_text())
    if isinstance(document["fabric"], str):
        document["fabric"] = str(SCENARIOS / document["fabric"])
    # The second iteration waits for the first; more of them prove no more.
    document["iterations"] = min(2, document.get("iterations", 1))
    document["policies"] = ["fair", "echelon"]
    file = tmp_path / f"{name}.yaml"
    file.write_text(yaml.safe_dump(document))
    texts = []
    for turn in ("a", "b"):
        out = tmp_path / turn
        result = CliRunner().invoke(app, ["run", str(file), "--out", str(out)])
        assert result.exit_code == 0, result.output
        texts.append((out / "results.json").read_text())
    assert texts[0] == texts[1]
    assert '"fair"' in texts[0]
