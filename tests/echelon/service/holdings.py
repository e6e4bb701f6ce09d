"""The contents of switches against what was asked for, by the P4Info alone: no numbering, lowering
or codec of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from finsy import P4Schema
from finsy.proto import p4r

from echelon.controller.client import Client
from echelon.model.fabric.model import Fabric
from echelon.model.p4program import program

Classified = Mapping[tuple[int, int], tuple[int, int]]
"""(job number, flow number) of the shim -> (port, destination MAC) that the flow's path has here.
"""


class Holder(Protocol):
    """A switch whose entries can be read."""

    def entries(self) -> list[p4r.TableEntry]: ...


class Holders(Protocol):
    """Switches of a fabric."""

    @property
    def fabric(self) -> Fabric: ...

    @property
    def switches(self) -> Mapping[str, Holder]: ...


def assert_exactly(lab: Holders, client: Client) -> None:
    """Assert that every switch classifies the flows of the planned jobs that pass it, each once,
    along a path to its destination, and nothing else."""
    jobs = [client.job(job.name) for job in client.jobs() if job.state != "unplanned"]
    plan = {(flow.job, flow.flow): flow.path for flow in client.plan().flows}
    for name, switch in lab.switches.items():
        wanted = {}
        for job in jobs:
            for flow in job.flows:
                path = plan[job.name, flow.name]
                assert (path[0], path[-1]) == (flow.src, flow.dst)
                if name in path:
                    following = path[path.index(name) + 1]
                    mac = int(lab.fabric.hosts[flow.dst].mac.replace(":", ""), 16)
                    wanted[job.number, flow.number] = (lab.fabric.port_to[name, following], mac)
        assert classified(switch.entries()) == wanted, name


def assert_no_difference(lab: Holders, client: Client) -> None:
    """Assert that the service finds nothing on any switch but what it intends, and all of that."""
    for name in lab.switches:
        found = client.difference(name)
        assert found.reachable, name
        different = (found.inserts, found.modifies, found.deletes, found.foreign)
        assert different == ((), (), (), 0), name


def classified(entries: list[p4r.TableEntry]) -> Classified:
    """Return the classified flows.

    Asserts that no entry occurs twice, and that every reference has a target.
    """
    schema = P4Schema(program().p4info)
    by_table: dict[str, list[dict[str, int]]] = {}
    keys = set()
    for entry in entries:
        table = schema.tables[entry.table_id]
        key = (
            entry.table_id,
            entry.priority,
            tuple(sorted(one.SerializeToString() for one in entry.match)),
        )
        assert key not in keys, f"twice: {table.alias} {entry}"
        keys.add(key)
        by_table.setdefault(table.alias, []).append(_numbers(entry, schema))
    ranked = {row["flow"]: row for row in by_table.get("flow", [])}
    # A profile has levels, or a period by which the switch orders its queues itself.
    profiles = {row["profile"] for table in ("level", "period") for row in by_table.get(table, [])}
    flows = by_table.get("shim_flow", [])
    assert len({row["number"] for row in flows}) == len(flows), "two flows have one number"
    assert {row["number"] for row in flows} == set(ranked), (
        "flows that nothing recognises, or without a path"
    )
    assert {row["profile"] for row in ranked.values() if "profile" in row} == profiles, (
        "profiles that nobody uses, or missing"
    )
    paths = {number: (row["port"], row["dst_mac"]) for number, row in ranked.items()}
    return {(row["job"], row["flow"]): paths[row["number"]] for row in flows}


def _numbers(entry: p4r.TableEntry, schema: P4Schema) -> dict[str, int]:
    """Return the exact match fields and the action's parameters by name; the parameter `flow` as
    `number`.
    """
    table = schema.tables[entry.table_id]
    out = {
        table.match_fields[one.field_id].alias: int.from_bytes(one.exact.value, "big")
        for one in entry.match
        if one.HasField("exact")
    }
    action = (
        schema.actions[entry.action.action.action_id] if entry.action.action.action_id else None
    )
    if action is not None:
        for param in entry.action.action.params:
            name = action.params[param.param_id].name
            out["number" if name == "flow" else name] = int.from_bytes(param.value, "big")
    return out
