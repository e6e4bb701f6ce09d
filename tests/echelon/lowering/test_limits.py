"""The words of `echelon check` about a job's recognition, beside the entries of switches."""

from __future__ import annotations

from typing import Any

import pytest

from echelon.model.jobs import build_job
from echelon.model.jobs.spec import make_job_spec
from echelon.switches.lowering.limits import limits

DATA = {"parallelism": "data", "data": {"compute": "1 ms", "gradient": "1 MB"}}
PORTS = {"by": "bytes", "source_port": 5001, "destination_port": 5002}


def said(document: dict[str, Any], workers: list[str], **recognition: object) -> list[str]:
    keys: dict[str, Any] = {"job": "j", "workers": workers, **document}
    spec = make_job_spec(**keys, **({"recognition": recognition} if recognition else {}))
    return list(limits(build_job(spec), spec.recognition))


def test_of_senders_that_mark_packets_nothing_is_said() -> None:
    assert said(DATA, ["a", "b"]) == []


@pytest.mark.parametrize("recognition", [PORTS, {"by": "agent"}])
def test_how_flows_are_told_apart(recognition: dict[str, object]) -> None:
    line, *more = said(DATA, ["a", "b", "c"], **recognition, idle_gap="50 ms")
    assert ["not on those to stores" in one for one in more] == [True] * (
        recognition["by"] == "agent"
    )
    # A ring of three sends from each to the next.
    assert line.startswith(
        "job 'j': flows are told apart by their order and sizes on 3 connections, and over TCP each"
    )
    assert "after 0.05 s of silence" in line
    line, *_ = said(DATA, ["a", "b", "c"], **recognition, idle_gap="50 ms", iterations="bytes")
    assert "begins behind the bytes of the one before" in line
    assert "best effort" in line  # what a Tofino loses


@pytest.mark.parametrize(
    ("workers", "recognition", "both_ways"),
    [
        (["a", "b"], {"by": "agent"}, True),  # a ring of two sends both ways
        (["a", "b", "c"], {"by": "agent"}, False),
        (["a", "b"], PORTS, False),  # each direction has its own connection
        (["a", "b"], {**PORTS, "destination_port": 5001}, True),
    ],
)
def test_where_a_pause_does_nothing(
    workers: list[str], recognition: dict[str, object], both_ways: bool
) -> None:
    _, *lines = said(DATA, workers, **recognition, idle_gap="50 ms", pause=True)
    assert (
        any("between a and b: one connection carries data both ways" in line for line in lines)
        == both_ways
    )
    assert any("with several connections" in line for line in lines) == (
        recognition["by"] == "agent"
    )


def test_of_many_pairs_two_are_named() -> None:
    everyone = [f"h{number}" for number in range(8)]
    *_, line, _ = said(
        {**DATA, "data": {"compute": "1 ms", "gradient": "1 MB", "collective": "direct"}},
        everyone,
        by="agent",
        idle_gap="1 ms",
        pause=True,
    )
    assert "between h0 and h1, h1 and h2 and 26 more pairs:" in line


@pytest.mark.parametrize(
    ("workers", "named"),
    [
        (["a", "b", "c"], "between a and b, b and c: one"),
        (["a", "b", "c", "d"], "between a and b, b and c and 1 more pairs: one"),
    ],
)
def test_two_pairs_of_hosts_are_named_and_others_counted(workers: list[str], named: str) -> None:
    pipeline = {"micro_batches": 2, "forward": "1 ms", "backward": "1 ms", "activation": "1 MB"}
    document = {"parallelism": "pipeline", "pipeline": pipeline}
    lines = said(document, workers, by="agent", idle_gap="50 ms", pause=True)
    assert any(named in line for line in lines), lines
