"""An operation as a part of the job: the ranks of its group, its root, or both ends of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from echelon_importers.pytorch.records import TRANSFERS, Place, Recorded
from echelon_importers.trace_parts import Joined, TracedTransfer, Work
from echelon_importers.workload import Ranks, ReadCounts

Part = Joined | TracedTransfer | Work
_NOTHING = Work(Fraction(0))
_ROOTED = ("broadcast", "reduce")
_DIFFERENT = (*TRANSFERS, "gather", "scatter")


@dataclass(slots=True)
class SharedGroups:
    """The state that the traces of all ranks share."""

    ranks: int
    tally: ReadCounts
    is_one_file: bool
    """Whether the file of one rank stands for all, so that all do the same."""
    tags: dict[str, int] = field(default_factory=dict)
    """A number for each process group with transfers, the same on all ranks."""


@dataclass(frozen=True, slots=True)
class Members:
    """The process groups of one rank."""

    rank: int
    groups: Mapping[str, Ranks]
    """The ranks of groups that the files of this rank list."""
    shared: SharedGroups

    def part(self, place: Place, recorded: Recorded) -> Part:
        """Return what this rank does in an operation. Raises `DocumentError`."""
        operation = recorded.operation
        if self.shared.is_one_file and operation in _DIFFERENT:
            reason = f"is a {operation}, which ranks do not run alike"
            raise place.fault(reason, "give the files of all ranks", "missing-key")
        if operation == "send" or operation == "recv":
            return self._transfer(place, recorded)
        ranks = self._ranks(place, recorded)
        size_bytes = recorded.size_bytes
        if operation == "all-gather":
            return Joined("all-gather", "pg", ranks, size_bytes * len(ranks))
        if operation == "all-to-all":
            parts = None
            if not self.shared.is_one_file:
                parts = _parts(recorded, len(ranks))
            return Joined("all-to-all", "pg", ranks, size_bytes, parts)
        if operation == "gather" or operation == "scatter":
            return self._one_sided(place, recorded, ranks)
        if operation in _ROOTED:
            ranks = self._root_first(recorded, ranks)
        return Joined(operation, "pg", ranks, size_bytes)

    def _ranks(self, place: Place, recorded: Recorded) -> Ranks:
        size = recorded.group_size
        count = self.shared.ranks
        ranks = recorded.ranks or self.groups.get(recorded.group)
        if ranks is None and size in (None, count):
            ranks = tuple(range(count))
        if ranks is None and size == 1:
            ranks = (self.rank,)
        if ranks is None or size not in (None, len(ranks)):
            reason = (
                f"process group {recorded.group[:20]} has {size} of {count} ranks, and no file"
                " says which"
            )
            remedy = "give an execution trace that starts with the process groups"
            raise place.fault(reason, remedy, "missing-key")
        return ranks

    def _transfer(self, place: Place, recorded: Recorded) -> Part:
        sends = recorded.operation == "send"
        if recorded.rank not in (None, self.rank):
            reason = (
                f"is a {recorded.operation} of rank {recorded.rank}, but the file is of rank"
                f" {self.rank}"
            )
            raise place.fault(reason, "let the names of the files end with their ranks")
        peer = self._peer(place, recorded)
        if peer == self.rank:
            reason = (
                f"is a {recorded.operation} of rank {self.rank}, whose other end is rank {peer}"
                " itself"
            )
            raise place.fault(reason, "check of which rank the file is")
        tags = self.shared.tags
        tag = tags.setdefault(recorded.group, len(tags))
        if not recorded.size_bytes:
            # NCCL sends nothing then, and a job file has no such flow.
            self.shared.tally.ignored["sends and receipts of no bytes"] += 1
            return _NOTHING
        return TracedTransfer(sends, peer, tag, recorded.size_bytes)

    def _peer(self, place: Place, recorded: Recorded) -> int:
        if recorded.peer is not None:
            return recorded.peer
        ranks = self._ranks(place, recorded)
        member = recorded.member
        if member is not None and member < len(ranks):
            return ranks[member]
        rest = [rank for rank in ranks if rank != self.rank]
        if len(rest) == 1:
            self.shared.tally.derived["other ends of transfers, in groups of two"] += 1
            return rest[0]
        words = "to which rank it sends"
        if recorded.operation == "recv":
            words = "from which rank it receives"
        reason = f"does not say {words}, of {len(ranks)} in process group {recorded.group[:20]}"
        remedy = "profile with CPU activities, or with PyTorch since 2.4"
        raise place.fault(reason, remedy, "missing-key")

    def _root(self, recorded: Recorded, ranks: Ranks) -> int | None:
        member = recorded.member
        if member is None or member >= len(ranks):
            return None
        return ranks[member]

    def _root_first(self, recorded: Recorded, ranks: Ranks) -> Ranks:
        """Return the ranks as a job file lists those of a broadcast or reduce."""
        root = self._root(recorded, ranks)
        if root is None:
            noun = f"{recorded.operation} roots that are not recorded, as the first rank"
            self.shared.tally.derived[noun] += 1
            return ranks
        return (root, *(rank for rank in ranks if rank != root))

    def _one_sided(
        self,
        place: Place,
        recorded: Recorded,
        ranks: Ranks,
    ) -> Joined:
        """Return a gather or a scatter: an all-to-all to or from one rank alone."""
        root = self._root(recorded, ranks)
        if root is None:
            reason = f"does not say the root of its {recorded.operation}"
            remedy = "profile with CPU activities, which record it"
            raise place.fault(reason, remedy, "missing-key")
        # Its own part does not leave a rank.
        sizes = dict.fromkeys(ranks, 0)
        if recorded.operation == "gather":
            sizes[root] = recorded.size_bytes
        elif self.rank == root:
            sizes = dict.fromkeys(ranks, recorded.size_bytes // len(ranks))
        sizes[self.rank] = 0
        noun = f"all-to-alls that stand for a {recorded.operation}"
        self.shared.tally.derived[noun] += 1
        parts = tuple(sizes.values())
        return Joined("all-to-all", "pg", ranks, sum(parts), parts)


def _parts(recorded: Recorded, count: int) -> Ranks | None:
    """Return the bytes to each rank of an all-to-all; None if the record does not say them."""
    splits = recorded.splits
    size_bytes = recorded.size_bytes
    if not splits:
        return None
    # Splits count rows of the first dimension, or elements; the bytes of one follow from the whole.
    total = sum(splits)
    if len(splits) != count or (total and size_bytes % total):
        return None
    unit = size_bytes // total if total else 0
    return tuple(unit * split for split in splits)


def with_member(recorded: Recorded, member: int | None) -> Recorded:
    """Return a record with the place in the group that the host recorded for it."""
    if recorded.member is not None or member is None:
        return recorded
    return replace(recorded, member=member)
