"""The communicators of a job, by its hosts: a program asks for one class for each of them."""

from __future__ import annotations

from collections.abc import Mapping

from echelon.model.jobs.graph import Job


def communicators(job: Job) -> Mapping[str, str]:
    """Return the communicator of each EchelonFlow, which has the name of its first EchelonFlow.

    Collectives between the same hosts have one communicator. So have all sends between hosts that
    a chain of sends joins: a pipeline has one process group, also for its gradients.
    """
    ends_by_flow = {flow.name: flow.ends for flow in job.flows}
    first_collectives: dict[frozenset[str], str] = {}
    names = {}
    sends = {}
    for echelonflow in job.echelonflows:
        name = echelonflow.name
        ends = {ends_by_flow[flow] for flow in echelonflow.flows}
        hosts = frozenset[str]().union(*ends)
        if len(ends) == 1:
            sends[name] = hosts
        else:
            names[name] = first_collectives.setdefault(hosts, name)
    return names | _chained(sends)


def _chained(sends: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Return the first send of the chain of each send."""
    chains: list[tuple[frozenset[str], list[str]]] = []
    for name, hosts in sends.items():
        members = [name]
        apart = []
        for chain in chains:
            if chain[0] & hosts:
                hosts |= chain[0]
                members = chain[1] + members
            else:
                apart.append(chain)
        chains = [*apart, (hosts, members)]
    first: dict[str, str] = {}
    for _, members in chains:
        first |= dict.fromkeys(members, members[0])
    return first
