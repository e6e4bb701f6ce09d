"""Classes of process groups: found, refused with a reason, and never guessed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from echelon_torch.run_job.communicators import JobLayout
from echelon_torch.run_job.matching import GroupClass, Matching, ProcessGroup
from plugins.torch.tests.run_job.by_paradigm import queue_of
from plugins.torch.tests.run_job.layouts import collective, graph, hosts, layout, mesh

MESH = layout(**mesh(8))


def byte_of(queue: int) -> int:
    return queue << 5 | 0b10


def by_paradigm(job: JobLayout) -> dict[str, int | None]:
    return {each.echelonflow: byte_of(queue_of(each.echelonflow)) for each in job.traffic}


def class_of(
    rank: int,
    ranks: Sequence[int],
    job: JobLayout = MESH,
    classes: Mapping[str, int | None] | None = None,
    world: int = 8,
    description: str = "",
    here: str | None = None,
) -> GroupClass:
    matching = Matching(job, by_paradigm(job) if classes is None else classes)
    per_host = max(1, world // len(job.hosts))
    host = here or job.hosts[min(rank // per_host, len(job.hosts) - 1)]
    return matching.class_of(ProcessGroup(rank, world, ranks, description), [host])


def test_a_group_of_collectives_has_one_class_for_all() -> None:
    tensor = class_of(0, [0, 1])
    assert (tensor.traffic_class, tensor.tos) == (byte_of(5), {"h2": 5 << 5})
    data = class_of(6, [2, 6])
    assert (data.traffic_class, data.tos) == (byte_of(2), {"h3": 2 << 5})
    assert "ranks 2, 6" in data.note
    assert "DSCP 16 for gradient-s2-t1" in data.note


def test_over_tcp_each_direction_of_a_pipeline_has_its_own() -> None:
    first, second = class_of(0, [0, 2]), class_of(2, [0, 2])
    assert first.tos == {"h3": 4 << 5}
    assert second.tos == {"h1": 3 << 5}
    # NCCL has one class for all that a communicator sends.
    assert first.traffic_class is second.traffic_class is None
    assert "NCCL does not mark" in first.of_nccl
    assert "DSCP 32" in first.of_nccl


def test_stages_that_are_no_neighbours_send_each_other_nothing() -> None:
    stages = {"micro_batches": 2, "forward": "3 ms", "backward": "6 ms", "activation": "1 MB"}
    job = layout(parallelism="pipeline", workers=hosts(3), pipeline=stages)
    assert class_of(0, [0, 1, 2], job, world=3).tos == {"h2": 4 << 5}


@pytest.mark.parametrize("ranks", [range(8), [0, 3], [0, 1, 2]])
def test_a_group_that_the_file_lacks_is_not_marked(ranks: Sequence[int]) -> None:
    found = class_of(0, ranks)
    assert (found.traffic_class, found.tos) == (None, {})
    assert "not marked" in found.note


def test_several_classes_between_the_same_ranks_are_not_chosen_from() -> None:
    classes = by_paradigm(MESH)
    forward = next(name for name in classes if name.startswith("forward-s1-d1"))
    classes[forward] = byte_of(1)
    found = class_of(0, [0, 1], classes=classes)
    assert (found.traffic_class, found.tos) == (None, {})
    assert f"DSCP 8 for {forward}, DSCP 40 for" in found.note
    # Others are as before.
    assert class_of(2, [2, 3], classes=classes).traffic_class == byte_of(5)


def test_what_switches_rank_has_no_class() -> None:
    found = class_of(0, [0, 4], classes={**by_paradigm(MESH), "gradient-s1-t1": None})
    assert (found.traffic_class, found.tos) == (None, {})
    assert "no class for gradient-s1-t1" in found.note


def test_groups_of_the_same_ranks_are_told_apart_by_what_they_are_called() -> None:
    nodes = (collective("x", "experts0", "all-to-all"), collective("s", "sums0"))
    job = layout(**graph(hosts(2), *nodes, groups={"experts0": [0, 1], "sums0": [0, 1]}))
    classes = {"x": byte_of(5), "s": byte_of(1)}

    def named(description: str) -> int | None:
        found = class_of(0, [0, 1], job, classes, world=2, description=description)
        return found.traffic_class

    assert named("experts") == byte_of(5)
    assert named("sums") == byte_of(1)
    assert named("") is None
    assert named("other") is None


def test_ranks_of_a_host_are_together_where_the_file_has_hosts() -> None:
    data = {"compute": "10 ms", "gradient": "1 MB"}
    job = layout(parallelism="data", workers=hosts(2), data=data)
    classes = {job.traffic[0].echelonflow: byte_of(3)}
    for ranks in ([0, 4], [3, 7], range(8)):
        assert class_of(ranks[0], ranks, job, classes).tos == {"h2": 3 << 5}
    inside = class_of(0, [0, 1, 2, 3], job, classes)
    assert inside == GroupClass(), "nothing passes the network"


@pytest.mark.parametrize("world", [3, 9, 20])
def test_another_number_of_ranks_is_not_marked(world: int) -> None:
    found = class_of(0, [0, 1], world=world)
    assert (found.traffic_class, found.tos) == (None, {})
    assert f"{world} ranks" in found.note
    assert "8 on 8 hosts" in found.note


def test_a_rank_on_another_host_is_not_marked() -> None:
    found = class_of(2, [2, 3], here="h7")
    assert (found.traffic_class, found.tos) == (None, {})
    assert "rank 2 runs on h7" in found.note
    assert "has it on h3" in found.note
