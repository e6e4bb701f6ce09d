"""`python -m bench intervals`, on few scenarios."""

from __future__ import annotations

import re

import pytest

from bench.intervals import main


def test_it_says_how_many_are_within(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--first", "1000", "--count", "3"])
    printed = capsys.readouterr()
    counts = re.search(r"within the 95 % interval in (\d) of (\d) .*; (\d) have none", printed.out)
    assert counts is not None
    covered, runs, without = map(int, counts.groups())
    assert runs + without == 3
    # Each scenario that is outside is named.
    assert len(printed.err.splitlines()) == runs - covered


def test_runs_without_intervals_are_refused() -> None:
    with pytest.raises(SystemExit, match="more iterations"):
        main(["--count", "1", "--iterations", "2"])
