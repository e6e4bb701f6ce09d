"""The measured entries are entries: known to the program, each once, and no more than its tables
hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from finsy import P4Schema

from bench.southbound.workload import large, leaf
from echelon.model.p4program import program
from echelon.switches.lowering.intent import Intent
from echelon.switches.southbound.codec import codec_of


@pytest.mark.parametrize(("workload", "count"), [(leaf, 5000), (large, 100_000)])
def test_every_entry_fits(workload: Callable[[int], Intent], count: int) -> None:
    intent = workload(count)
    schema = P4Schema(program().p4info)
    codec = codec_of(schema)
    assert (
        len({codec.encode(entry).key for entry in intent.entries}) == len(intent.entries) == count
    )
    for table, held in Counter(entry.table for entry in intent.entries).items():
        assert held <= schema.tables[table].size


def test_a_leaf_has_entries_of_most_tables() -> None:
    tables = {entry.table for entry in leaf(5000).entries}
    assert {"shim_flow", "level", "flow", "ipv4_lpm", "ecmp", "station", "ecn_threshold"} <= tables
