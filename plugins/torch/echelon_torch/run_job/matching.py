"""The class of a process group: its ranks are found among the communicators of the job's file.

A group has a class if the plan gives all EchelonFlows between its ranks the same one. Over TCP each
connection, and each of its two directions, may have its own. A group that cannot be told apart from
another one with another class has none, and the reason is said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from echelon_torch.run_job.communicators import Communicator, Direction, JobLayout, Traffic

_ECN = 0b11
_DIGITS = "0123456789"
_NAMED = 8
"""The most ranks or EchelonFlows that a line names."""


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A process group as one of its ranks makes it."""

    rank: int
    """The rank that makes it, in the whole program."""
    world: int
    """The number of ranks of the whole program."""
    ranks: Sequence[int]
    description: str = ""
    """What the program calls the group (`group_desc`); empty: nothing."""

    @property
    def title(self) -> str:
        """The group in words."""
        words = "the group of all ranks"
        if len(self.ranks) < self.world:
            words = f"the group of ranks {_listed(self.ranks)}"
        if self.description:
            words += f" ({self.description})"
        return words


@dataclass(frozen=True, slots=True)
class GroupClass:
    """The class that the packets of a process group get."""

    traffic_class: int | None = None
    """The byte for NCCL, which has one for the whole group; None: it stays as it is."""
    tos: Mapping[str, int] = field(default_factory=dict)
    """The type of service of the connections to each host, by name."""
    note: str = ""
    """What the group gets, or why it gets nothing, in one line; empty: nothing passes a network."""
    of_nccl: str = ""
    """Why NCCL gets nothing where connections do."""


@dataclass(frozen=True, slots=True)
class Matching:
    """The classes of a job's groups on a host."""

    layout: JobLayout
    classes: Mapping[str, int | None]
    """The byte of each EchelonFlow, as NCCL takes it; None: its packets are ranked one by one."""

    def class_of(self, group: ProcessGroup, local_hosts: Collection[str]) -> GroupClass:
        """Return the class of a group that a rank on one of `local_hosts` makes.

        There are several if the host is several of the fabric, one for each interface.
        """
        places, communicators = self._places(group)
        if not places:
            file_ranks = f"{self.layout.ranks} on {len(self.layout.hosts)} hosts"
            return GroupClass(
                note=f"{group.title} is not marked: the program has {group.world} ranks, and the"
                f" job's file {file_ranks} (start as many)"
            )
        expected = self._host(group.rank, group.world)
        if expected not in local_hosts:
            names = ", ".join(local_hosts)
            return GroupClass(
                note=f"rank {group.rank} runs on {names}, and the job's file has it on {expected}:"
                " its packets are not marked (start nodes in the order of the file's workers)"
            )
        hosts = {self._host(rank, group.world) for rank in group.ranks}
        if len(hosts) < 2:
            return GroupClass()
        ranks = frozenset(map(places.__getitem__, group.ranks))
        candidates = [each for each in communicators if each.ranks == ranks]
        likely = _of_description(candidates, group.description)
        return self._class_of(group, places, likely)

    def _places(self, group: ProcessGroup) -> tuple[Sequence[int], Sequence[Communicator]]:
        """Return the rank or host of the file for each rank of the program, and what it joins."""
        layout = self.layout
        if group.world == layout.ranks:
            return range(group.world), layout.communicators
        per_host, rest = divmod(group.world, len(layout.hosts))
        if rest or not per_host:
            return (), ()
        places = [rank // per_host for rank in range(group.world)]
        return places, layout.communicators_of_hosts

    def _host(self, rank: int, world: int) -> str:
        per_host = world // len(self.layout.hosts)
        return self.layout.hosts[rank // per_host]

    def _class_of(
        self,
        group: ProcessGroup,
        places: Sequence[int],
        communicators: Sequence[Communicator],
    ) -> GroupClass:
        traffic: list[Traffic] = []
        for communicator in communicators:
            traffic += communicator.traffic
        if not traffic:
            return GroupClass(
                note=f"{group.title} is not marked: no flows of the job's file go between exactly"
                " these ranks"
            )
        tos = {}
        for host, directions in self._directions(group, places).items():
            used = [each for each in traffic if each.goes(directions)]
            byte = self._only(used)
            if byte is not None:
                tos[host] = byte & ~_ECN
            elif used:
                return GroupClass(note=f"{group.title} is not marked: {self._reason(used)}")
        traffic_class = self._only(traffic)
        of_nccl = ""
        if traffic_class is None:
            of_nccl = f"NCCL does not mark {group.title}: {self._reason(traffic)}"
        note = f"{group.title}: {self._in_words(traffic)}"
        return GroupClass(traffic_class, tos, note, of_nccl)

    def _directions(
        self,
        group: ProcessGroup,
        places: Sequence[int],
    ) -> Mapping[str, Collection[Direction]]:
        """Return the ways from the rank to those of the group on each other host."""
        directions: dict[str, set[Direction]] = {}
        source = places[group.rank]
        for rank in group.ranks:
            host = self._host(rank, group.world)
            if host != self._host(group.rank, group.world):
                direction = source, places[rank]
                directions.setdefault(host, set()).add(direction)
        return directions

    def _only(self, traffic: Iterable[Traffic]) -> int | None:
        """Return the class that all of this traffic has; None: there is no such class."""
        bytes_ = {self.classes.get(each.echelonflow) for each in traffic}
        return bytes_.pop() if len(bytes_) == 1 else None

    def _reason(self, traffic: Iterable[Traffic]) -> str:
        """Return why traffic has no class of its own."""
        classes = self._in_words(traffic)
        return f"the plan has {classes}, which all go between these ranks"

    def _in_words(self, traffic: Iterable[Traffic]) -> str:
        """Return the classes of traffic, each with the EchelonFlows that have it."""
        names: dict[int | None, list[str]] = {}
        for each in traffic:
            byte = self.classes.get(each.echelonflow)
            names.setdefault(byte, []).append(each.echelonflow)
        words = []
        for byte, members in names.items():
            setting = "no class"
            if byte is not None:
                setting = f"DSCP {byte >> 2}"
            words.append(f"{setting} for {_listed(members)}")
        return ", ".join(words)


def _of_description(
    candidates: Sequence[Communicator],
    description: str,
) -> Sequence[Communicator]:
    """Return the communicators that the file calls as the program does, or all if none is.

    In the place of a number behind a name, `echelon capture` writes another one.
    """
    wanted = description.rstrip(_DIGITS)
    named = [each for each in candidates if wanted and each.group.rstrip(_DIGITS) == wanted]
    return named or candidates


def _listed(items: Iterable[object]) -> str:
    words = [str(item) for item in items]
    if len(words) > _NAMED:
        left_out = len(words) - _NAMED
        words = [*words[:_NAMED], f"{left_out} more"]
    return ", ".join(words)
