"""``python -m tests.soak``: tables on standard output, exit statuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.faults import mentions
from tests.soak import packets
from tests.soak.__main__ import main
from tests.soak.carriers import Carriers

pytestmark = pytest.mark.wide


def test_packets(capsys: pytest.CaptureFixture[str]) -> None:
    # So many that the hundred objects which Python 3.12 makes once are few of each packet.
    assert (
        main(
            [
                "packets",
                "--packets",
                "2001",
                "--seed",
                "9",
                "--program",
                "randoms",
                "--program",
                "digests",
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "packet fuzz, seed 9" in out
    assert [line.split()[1] for line in out.splitlines() if line.startswith(("│ r", "│ d"))] == [
        "digests",
        "randoms",
    ]
    assert "│ all     │ 2,001 " in out
    assert out.splitlines()[-1].startswith("memory grew by at most ")


def test_packets_of_an_unknown_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["packets", "--program", "nothing"]) == 1
    assert mentions(capsys.readouterr().err, "--program", "'nothing'", "arithmetic")


def leaking(genuine: Callable[..., packets.Outcome]) -> Callable[..., packets.Outcome]:
    return lambda *args: replace(genuine(*args), kept=1.0)


def growing(genuine: Callable[..., packets.Outcome]) -> Callable[..., packets.Outcome]:
    return lambda *args: replace(genuine(*args), memory_before=100, memory_after=106)


def failing(genuine: Callable[..., packets.Outcome]) -> Callable[..., packets.Outcome]:
    def fuzz(*_args: Any) -> packets.Outcome:
        raise packets.FuzzError("a fault")

    return fuzz


@pytest.mark.parametrize("wrong", [leaking, pytest.param(growing, marks=pytest.mark.long), failing])
def test_packets_that_show_a_fault(
    wrong: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(packets, "fuzz", wrong(packets.fuzz))
    assert main(["packets", "--packets", "40", "--program", "randoms"]) == 1
    assert ("a fault" in capsys.readouterr().err) == (wrong is failing)


def test_a_day(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["day", "--packets", "1000", "--hours", "0.1", "--seed", "2"]) == 0
    out = capsys.readouterr().out
    assert "1,000 packets in 0.1 hours of virtual time, seed 2" in out
    assert [line.split()[1] for line in out.splitlines() if line.startswith(("│ l", "│ s"))] == [
        "spine",
        "leaf0",
        "leaf1",
    ]
    assert "hosts sent 1,000 + switches made " in out


def test_a_day_that_does_not_add_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Carriers, "faults", lambda self: ["one packet missing"])
    assert main(["day", "--packets", "10", "--hours", "0.1"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].endswith(" s: one packet missing")


def test_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["week"])
    assert ended.value.code == 2
    assert mentions(capsys.readouterr().err, "'week'")
