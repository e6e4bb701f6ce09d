"""The communicators of a job, by its hosts: a program asks for one class for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from echelon.model.jobs.analysis import once
from echelon.model.jobs.graph import Job

T = TypeVar("T")


@once
def communicators(job: Job) -> Mapping[str, str]:
    """Return the communicator of each EchelonFlow, which has the name of its first EchelonFlow.

    Collectives between the same hosts have one communicator. So have all sends between hosts that
    a chain of sends joins: a pipeline has one process group, also for its gradients.
    """
    ends_by_flow = {flow.name: flow.ends for flow in job.flows}
    sends = {}
    collectives = {}
    for echelonflow in job.echelonflows:
        ends = {ends_by_flow[flow] for flow in echelonflow.flows}
        hosts = frozenset[str]().union(*ends)
        if len(ends) == 1:
            sends[echelonflow.name] = hosts
        else:
            collectives[echelonflow.name] = hosts
    names: dict[str, str] = {}
    for chain in chains(sends.values()):
        members = [name for name, hosts in sends.items() if hosts <= chain]
        names |= dict.fromkeys(members, members[0])
    first: dict[frozenset[str], str] = {}
    for name, hosts in collectives.items():
        names[name] = first.setdefault(hosts, name)
    return names


def chains(pairs: Iterable[frozenset[T]]) -> Sequence[frozenset[T]]:
    """Return the sets of hosts or ranks that pairs join, directly or through others."""
    joined: list[frozenset[T]] = []
    for pair in dict.fromkeys(pairs):
        chain = pair
        apart = []
        for other in joined:
            if other & pair:
                chain |= other
            else:
                apart.append(other)
        joined = [*apart, chain]
    return joined
