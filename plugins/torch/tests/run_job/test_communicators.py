"""Tests of the communicators of a job's file, against layouts that are written out."""

from __future__ import annotations

from collections.abc import Iterable

from echelon_torch.run_job.communicators import Communicator
from plugins.torch.tests.run_job.layouts import collective, graph, hosts, layout, mesh


def ranks_of(communicators: Iterable[Communicator]) -> list[list[int]]:
    return sorted(sorted(each.ranks) for each in communicators)


def test_a_mesh_has_a_communicator_for_each_line_along_an_axis() -> None:
    wanted = [[0, 1], [2, 3], [4, 5], [6, 7]]  # tensor
    wanted += [[0, 2], [1, 3], [4, 6], [5, 7]]  # pipeline
    wanted += [[0, 4], [1, 5], [2, 6], [3, 7]]  # data
    found = layout(**mesh(8)).communicators
    assert ranks_of(found) == sorted(wanted)
    echelonflows = [each.echelonflow for communicator in found for each in communicator.traffic]
    assert len(set(echelonflows)) == len(echelonflows) == 28


def test_what_stays_on_a_host_does_not_pass_the_network() -> None:
    found = layout(**mesh(4, per_worker=2))
    # Ranks that share layers are on one host.
    assert ranks_of(found.communicators)[:2] == [[0, 2], [0, 4]]
    assert [0, 1] not in ranks_of(found.communicators)
    assert ranks_of(found.communicators_of_hosts) == [[0, 1], [0, 2], [1, 3], [2, 3]]


def test_a_pipeline_of_hosts_is_one_communicator() -> None:
    stages = {"micro_batches": 2, "forward": "3 ms", "backward": "6 ms", "activation": "1 MB"}
    (found,) = layout(parallelism="pipeline", workers=hosts(4), pipeline=stages).communicators
    assert found.ranks == {0, 1, 2, 3}
    directions = {each.direction for each in found.traffic}
    assert directions == {(0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0)}


def test_replicas_of_a_host_are_one_communicator() -> None:
    data = {"compute": "10 ms", "gradient": "1 MB"}
    (found,) = layout(parallelism="data", workers=hosts(4), data=data).communicators
    assert found.ranks == {0, 1, 2, 3}


def test_groups_of_a_graph_keep_their_names_and_waits_are_no_traffic() -> None:
    ready = {"name": "ready", "collective": "reduce", "group": [1, 0], "bytes": "1 B"}
    sent = {"name": "sent", "send": [0, 1], "bytes": "1 MB"}
    exchanged = {
        "name": "exchange",
        "collective": "all-to-all",
        "group": "experts0",
        "matrix": [["0 B", "1 MB"], ["2 MB", "0 B"]],
    }
    groups = {"experts0": [0, 1], "sums0": [0, 1]}
    nodes = (ready, sent, exchanged, collective("sum", "sums0"))
    found = layout(**graph(hosts(2), *nodes, groups=groups)).communicators
    names = {each.group: [of.echelonflow for of in each.traffic] for each in found}
    assert names == {"experts0": ["exchange"], "sums0": ["sum"], "": ["sent"]}
