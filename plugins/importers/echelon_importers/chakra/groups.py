"""The ranks of the process groups that the nodes of a trace name.

They stand in a file beside the traces, ASTRA-sim's configuration of communicators, or in nodes of
metadata that Chakra's converter makes of PyTorch's ``process_group:init``, in each rank's own
trace. A name that neither has is refused: which ranks share a group cannot be told from the nodes
that name it, since several groups may have one name on different ranks. Without a name, or as "0",
a group is all ranks (`Workload::extract_comm_group` of ASTRA-sim), unless a group is called so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from echelon.model.documents import DocumentError
from echelon.model.quantities import excerpt
from echelon_importers.chakra.wire import METADATA, WireNode, node_fault
from echelon_importers.importer import Source
from echelon_importers.workload import Ranks

_EVERYBODY = ("", "0")
_MOST_RANKS_NAMED = 8


class UnknownGroupError(Exception):
    """An error about a group of unknown ranks. Its arguments are the reason, and what to do."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a job, by name."""

    everybody: Ranks
    """All ranks of the job."""
    files: tuple[Source, ...]
    """The files of groups that were given."""
    listed: Mapping[str, Ranks]
    """The groups in these files."""
    by_rank: Sequence[Mapping[str, Ranks]]
    """The groups in the trace of each rank."""
    users: Mapping[str, Sequence[int]]
    """The ranks whose nodes name a group."""
    usual_file: str
    """The name that generators give the file of groups of such traces."""

    def find(self, rank: int, name: str) -> Ranks | None:
        """Return the ranks of the group that a rank calls so, in their order; None: all ranks.

        Raises `UnknownGroupError`.
        """
        if name in self.listed:
            return self.listed[name]
        recorded = self.by_rank[rank]
        if name in recorded:
            return recorded[name]
        if name in _EVERYBODY:
            return None
        if self.files:
            reason = f"no communicator is called {excerpt(name)}"
            raise UnknownGroupError(reason, f"add it to {self.files[0].name}")
        users = self.users[name]
        ranks = [str(user) for user in users[:_MOST_RANKS_NAMED]]
        if len(users) > _MOST_RANKS_NAMED:
            ranks.append("...")
        named = ", ".join(ranks)
        raise UnknownGroupError(
            f"is of process group {excerpt(name)}, but the file of groups is missing, and no trace"
            " says the group's ranks",
            f"give the file that was written beside the traces, as {self.usual_file}, or write one:"
            f' {{"1": [0, 1], "2": [2, 3]}}; nodes of ranks {named} name the group',
        )


def split(sources: Sequence[Source]) -> tuple[list[Source], list[Source]]:
    """Return the traces, and the files of groups."""
    traces: list[Source] = []
    groups: list[Source] = []
    for source in sources:
        beginning = source.beginning(4096).lower()
        is_mapping = beginning.lstrip().startswith(b"{")
        is_trace = b"node" in beginning or b'"version"' in beginning
        if is_mapping and not is_trace and isinstance(source.json(), dict):
            groups.append(source)
        else:
            traces.append(source)
    if not traces:
        raise sources[0].refusal("is no trace (give the traces, too)", code="empty-document")
    return traces, groups


def find_groups(
    files: Sequence[Source],
    traces: Sequence[Source],
    nodes: Sequence[Sequence[WireNode]],
) -> Groups:
    """Return the groups in these files, and in the nodes of each rank's trace.

    Raises `DocumentError` for a group that files and nodes give different ranks.
    """
    listed: dict[str, Ranks] = {}
    for file in files:
        for name, ranks in file.json().items():
            listed[name] = _members(file, name, ranks)
    by_rank: list[Mapping[str, Ranks]] = []
    users: dict[str, list[int]] = {}
    count = len(traces)
    last: Sequence[WireNode] = ()
    names: set[str] = set()
    recorded: Mapping[str, Ranks] = {}
    for rank, trace in enumerate(nodes):
        source = traces[rank]
        # Ranks that run the same trace share its list of nodes.
        if trace is not last:
            last = trace
            names = set(map(group_name, trace))
            recorded = _recorded(source, trace, names, count)
        for name, ranks in recorded.items():
            if listed.get(name, ranks) != ranks:
                reason = f"has the ranks {list(ranks)} for group {excerpt(name)}"
                remedy = f"{files[0].name} has {list(listed[name])}; correct one of them"
                raise source.refusal(f"{reason} ({remedy})")
        by_rank.append(recorded)
        for name in names:
            users.setdefault(name, []).append(rank)
    usual_file = _usual_file(traces[0].name)
    everybody = tuple(range(count))
    return Groups(everybody, tuple(files), listed, by_rank, users, usual_file)


def _usual_file(trace: str) -> str:
    """Return the name of the file of groups beside a trace, as STAGE names it."""
    _, _, name = trace.rpartition("/")
    stem = re.sub(r"[._-]?[0-9]*(\.[a-z]+)*$", "", name)
    return f"{stem or 'groups'}.json"


def group_name(node: WireNode) -> str:
    """Return the name of a node's group; STAGE's older attribute is `comm_group`."""
    for key in ("pg_name", "comm_group"):
        name = node.attributes.get(key)
        if name is not None:
            return str(name)
    return ""


def _recorded(
    source: Source,
    nodes: Iterable[WireNode],
    names: Collection[str],
    ranks: int,
) -> Mapping[str, Ranks]:
    """Return the named groups that are in a trace's own nodes of metadata."""
    groups: dict[str, Ranks] = {}
    for node in nodes:
        if node.kind != METADATA or "pg_name" not in node.inputs:
            continue
        for each in _records(source, node):
            name = str(each.get("pg_name", ""))
            if name not in names:
                continue
            listed = each.get("ranks")
            # PyTorch leaves the list of the group of all ranks empty.
            if listed == []:
                listed = list(range(ranks))
            members = _members(source, name, listed)
            groups[name] = members
            size = each.get("group_size", len(members))
            if size != len(members):
                reason = f"group {excerpt(name)} has {excerpt(size)} ranks, not {len(members)}"
                remedy = "give the traces of all ranks, or as many --hosts"
                raise node_fault(source, node.number, reason, remedy)
    return groups


def _records(source: Source, node: WireNode) -> list[dict[str, object]]:
    """Return the groups in the inputs of a node: JSON, in a list of one text."""
    match = re.search(r"\[\{.*\}\]", node.inputs, re.DOTALL)
    records = None
    if match is not None:
        try:
            records = json.loads(match[0])
        except (ValueError, RecursionError):
            records = None
    if records is None or not all(isinstance(each, dict) for each in records):
        reason = "lists process groups, but not as JSON"
        raise node_fault(source, node.number, reason, "record the trace anew")
    out: list[dict[str, object]] = records
    return out


def _members(
    source: Source,
    name: str,
    ranks: object,
) -> Ranks:
    if isinstance(ranks, list) and all(map(_is_rank, ranks)):
        members = tuple(ranks)
        if len(set(members)) == len(members):
            return members
    reason = "is not a list of ranks (write [0, 1])"
    raise DocumentError(source.name, name[:40], reason, code="not-a-list")


def _is_rank(value: object) -> bool:
    return type(value) is int and 0 <= value < 10**6
