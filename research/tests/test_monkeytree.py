"""The converter of `research.monkeytree`, and fair sharing beside what MonkeyTree's program
printed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon.model.fabric.builders import leaf_spine
from echelon.model.fabric.load import build_fabric
from research.monkeytree import (
    RATE_BPS,
    SLOW_BPS,
    Case,
    Hashed,
    Ring,
    at_one_link,
    job,
    ours,
    pairs,
    read,
    spine,
    write,
)

PRINTED_US = (
    (pairs((60_000, 40_000), (60_000, 40_000)), (14_000_000, 14_000_000)),
    (at_one_link((300_000, 100_000), (300_000, 100_000)), (50_000_000, 50_000_000)),
    (at_one_link((300_000, 100_000), (400_000, 100_000)), (42_000_000, 52_000_000)),
)
"""The runtimes of 100 iterations that golden_spine prints with ECMP."""


@pytest.mark.parametrize(("case", "printed_us"), PRINTED_US)
def test_fair_sharing_takes_as_long_as_in_monkeytree(
    case: Case, printed_us: tuple[int, ...]
) -> None:
    """Its times are whole microseconds, rounded down at each event."""
    found = ours(case, "fair", ideal=True)
    assert [found[number] for number in range(2)] == pytest.approx(
        [us / 10**8 for us in printed_us], abs=2e-6
    )


def test_the_hash_is_that_of_its_program() -> None:
    """A program with the hash of its ECMP printed these, for two hosts and a job."""
    assert [spine(*of, 2**64) for of in ((0, 6, 0), (6, 0, 0), (1, 14, 1), (35, 3, 7))] == [
        16769600666898581302,
        3698208753690151884,
        6489229312142226520,
        13953828661517194933,
    ]


def test_a_ring_sends_as_long_as_it_says() -> None:
    ring = Ring((0, 6, 12, 18), compute_us=1000, send_us=600)
    sent = {(flow.src, flow.dst): flow.size_bytes for flow in job(0, ring).flows}
    expected_bytes = 600 * RATE_BPS // 8 // 10**6
    assert sent == dict.fromkeys(
        [("h1", "h7"), ("h7", "h13"), ("h13", "h19"), ("h19", "h1")], expected_bytes
    )
    assert ring.model_bytes(SLOW_BPS) * 8 == ring.model_bytes(RATE_BPS) == expected_bytes * 4 // 6


def test_files_say_the_same_jobs(tmp_path: Path) -> None:
    write(Case("", 6, 3, (Ring((3, 9), 5000, 80), Ring((0, 1, 35), 70, 9))), tmp_path, RATE_BPS)
    assert (
        (tmp_path / "jobs" / "j1.yaml").read_text()
        == 'name: "j1"\nmodel_size_bytes: 337500\nsteps:\n  - !compute\n    duration_us: 70\n  - !all_reduce {}\n'
    )
    assert (
        tmp_path / "placement.txt"
    ).read_text() == "2\n0: 2 j0 100\n1: 3 j1 100\n\nPlacement\n0: 1\n1: 1\n3: 0\n9: 0\n35: 1\n"
    assert (tmp_path / "compat.txt").read_text() == "2\n1 5000 80\n1 70 9\n"


def test_times_are_read_of_jobs_that_end() -> None:
    line = (
        "{0} JobComplete {1} submit=0 schedule=0 complete={0} wait=0us real_runtime={0}us"
        " total_runtime={0}us\n"
    )
    assert read(f"0 Reconfigure\n{line.format(23300000, 4)}noise\n", 100) == {4: 0.233}


def test_paths_by_the_hash_stay_in_a_leaf_or_take_one_spine() -> None:
    made = job(1, Ring((0, 1, 14), 10, 10))
    (routes,) = Hashed(3).route(build_fabric(leaf_spine(6, 3, 6, 2)), [made]).values()
    assert routes == {
        ("h1", "h2"): ("h1", "leaf1", "h2"),
        ("h2", "h15"): ("h2", "leaf1", f"spine{6489229312142226520 % 3 + 1}", "leaf3", "h15"),
        ("h15", "h1"): ("h15", "leaf3", f"spine{spine(14, 0, 1, 3) + 1}", "leaf1", "h1"),
    }
