"""The process groups of Chakra traces: from a file, from the traces' own nodes, or refused."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest

from echelon.model.documents import DocumentError
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit
from echelon_importers import Source, Workload, make_importer
from plugins.importers.tests.traces import node, process_groups, traces

MIB = 1 << 20
GROUPS = Source("groups.json", b'{"1": [0, 1], "2": [2, 3]}')


def read(sources: Sequence[Source], **options: object) -> Workload:
    return make_importer("chakra", options).read(sources)


def halves(*after: str, **more: Any) -> list[list[Any]]:
    """Return the nodes of four ranks: 0 and 1 all-reduce in group 1, 2 and 3 in group 2.

    Then each all-reduces in the groups called `after`.
    """
    ranks = []
    for rank in range(4):
        names = ("1" if rank < 2 else "2", *after)
        computing = node(1, 4, us=100, is_cpu_op=False)
        collectives = [
            node(number, 7, [number - 1], comm_type=0, comm_size=MIB, pg_name=name, **more)
            for number, name in enumerate(names, start=2)
        ]
        ranks.append([computing, *collectives])
    return ranks


def sent_bytes(workload: Workload) -> list[int]:
    """Return what each rank sends in rings of all-reduces: 2 (n - 1) / n of the bytes."""
    sent = [0] * workload.ranks
    for step in workload.nodes:
        if isinstance(step, CollectiveStep):
            size = len(step.group)
            for rank in step.group:
                sent[int(rank)] += 2 * (size - 1) * step.size_bytes // size
    return sent


def test_groups_of_the_file_are_two_all_reduces_of_two_ranks() -> None:
    workload = read([*traces(*halves()), GROUPS])
    assert sorted(workload.groups) == [("0", "1"), ("2", "3")]
    assert sent_bytes(workload) == [MIB] * 4


def test_a_file_of_groups_may_be_compressed() -> None:
    packed = Source("groups.json.gz", gzip.compress(GROUPS.data))
    assert sorted(read([*traces(*halves()), packed]).groups) == [("0", "1"), ("2", "3")]


@pytest.mark.parametrize("name", ["", "0"])
def test_no_name_and_0_are_all_ranks_as_in_astra_sim(name: str) -> None:
    workload = read([*traces(*halves(name)), GROUPS])
    assert sorted(workload.groups) == [("0", "1"), ("0", "1", "2", "3"), ("2", "3")]
    assert sent_bytes(workload) == [MIB + 3 * MIB // 2] * 4
    file = Source("groups.json", b'{"1": [0, 1], "2": [2, 3], "0": [3, 2, 1, 0], "": [1, 3, 0, 2]}')
    workload = read([*traces(*halves(name)), file])
    assert ("3", "2", "1", "0") in workload.groups or name == ""


def test_a_group_whose_file_is_missing_is_refused() -> None:
    with pytest.raises(DocumentError) as refusal:
        read(traces(*halves()))
    assert (refusal.value.file, refusal.value.path) == ("a.0.et", "node 2")
    said = str(refusal.value)
    assert all(
        words in said
        for words in ("process group '1'", "the file of groups is missing", "ranks 0, 1 name")
    )


def test_a_group_that_the_file_lacks_is_refused() -> None:
    with pytest.raises(DocumentError) as refusal:
        read([*traces(*halves("7")), GROUPS])
    assert "no communicator is called '7' (add it to groups.json)" in str(refusal.value)


def test_older_traces_of_stage_name_groups_in_another_attribute() -> None:
    ranks = [[node(1, 7, comm_type=0, comm_size=MIB, comm_group=1)] for _ in range(2)]
    assert list(read([*traces(*ranks), Source("g.json", b'{"1": [1, 0]}')]).groups) == [("1", "0")]
    with pytest.raises(DocumentError, match="process group '1'"):
        read(traces(*ranks))


def test_a_rank_that_is_not_in_its_group_is_refused() -> None:
    swapped = Source("groups.json", b'{"1": [2, 3], "2": [0, 1]}')
    with pytest.raises(DocumentError, match="group '1', which lacks rank 0"):
        read([*traces(*halves()), swapped])


def test_files_are_those_of_the_ranks_in_their_names() -> None:
    """A shell lists rank10 before rank2; without numbers, the order counts and is said to."""
    ranks = [
        [node(1, 4, us=rank + 1), node(2, 7, [1], comm_type=0, comm_size=MIB)] for rank in range(12)
    ]
    named = [Source(f"rank{rank}.et", source.data) for rank, source in enumerate(traces(*ranks))]
    workload = read(sorted(named, key=lambda source: source.name))
    assert workload.tally.notes == []
    last = next(step for step in workload.nodes if step.name == "n1-r11")
    assert isinstance(last, ComputeUnit)
    assert last.duration_s == Fraction(12, 10**6)
    unnamed = [
        Source(f"{letter}.et", source.data) for letter, source in zip("ab", named, strict=False)
    ]
    assert "their order is that of the ranks" in read(unnamed).tally.notes[0]


def recorded(groups: Mapping[str, Sequence[int]], rank: int) -> list[Any]:
    return [process_groups(0, groups), *halves("0")[rank]]


def test_groups_in_the_traces_own_nodes_are_derived_and_said() -> None:
    first = {"0": [], "1": [0, 1], "9": [0, 1]}
    second = {"0": [], "2": [2, 3]}
    ranks = [recorded(first if rank < 2 else second, rank) for rank in range(4)]
    for nodes in ranks:
        nodes[0].inputs.values = nodes[0].inputs.values.replace('[], "group_size": 0', "[]")
    workload = read(traces(*ranks))
    assert sent_bytes(workload) == [MIB + 3 * MIB // 2] * 4
    assert workload.tally.derived["groups from the nodes of the traces"] == 3


def test_groups_that_contradict_each_other_are_refused() -> None:
    ranks = [recorded({"1": [1, 0], "2": [2, 3]}, rank) for rank in range(4)]
    with pytest.raises(DocumentError, match=r"has the ranks \[1, 0\] for group '1'"):
        read([*traces(*ranks), GROUPS])
    for nodes in ranks:
        nodes[0].inputs.values = nodes[0].inputs.values.replace(
            '"group_size": 2', '"group_size": 8'
        )
    with pytest.raises(DocumentError, match="group '1' has 8 ranks, not 2"):
        read(traces(*ranks))
    for nodes in ranks:
        nodes[0].inputs.values = "pg_name: none"
    with pytest.raises(DocumentError, match="not as JSON"):
        read(traces(*ranks))
