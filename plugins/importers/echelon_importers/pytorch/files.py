"""The files of a job in PyTorch's two formats, by rank."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from echelon_importers.importer import Source
from echelon_importers.pytorch.execution import ExecutionTrace, read_execution
from echelon_importers.pytorch.kineto import read_profile
from echelon_importers.pytorch.profile import Profile
from echelon_importers.pytorch.records import Fields
from echelon_importers.workload import Ranks, ReadCounts


@dataclass(slots=True)
class RankFiles:
    """The traces of a rank, at least one of both."""

    number: int
    profile: Profile | None = None
    execution: ExecutionTrace | None = None

    @property
    def source(self) -> Source:
        """Return the file that messages name."""
        if self.profile is not None:
            return self.profile.source
        assert self.execution is not None
        return self.execution.source

    @property
    def world(self) -> int | None:
        """Return how many ranks the job has; None if no file says it."""
        if self.profile is not None and self.profile.world is not None:
            return self.profile.world
        return self.execution.world if self.execution else None

    @property
    def groups(self) -> Mapping[str, Ranks]:
        """Return the ranks of the process groups that the files list."""
        groups: dict[str, Ranks] = {}
        if self.profile is not None:
            groups.update(self.profile.groups)
        if self.execution is not None:
            groups.update(self.execution.groups)
        return groups


def read_ranks(sources: Sequence[Source], tally: ReadCounts) -> list[RankFiles]:
    """Return the files of each rank, in the order of ranks. Raises `DocumentError`."""
    ranks: dict[int, RankFiles] = {}
    order: Counter[str] = Counter()
    for source in sources:
        document = source.json()
        if not isinstance(document, dict):
            raise source.refusal("is not a mapping (check the format)", code="not-a-mapping")
        kind = _kind(source, document)
        number = _rank(source, document, order[kind])
        order[kind] += 1
        rank = ranks.setdefault(number, RankFiles(number))
        second = rank.profile if kind == "kineto" else rank.execution
        if second is not None:
            reason = (
                f"is the second {kind} trace of rank {number}, like {second.source.name} (leave one"
                " out, or let the names of the files end with their ranks)"
            )
            raise source.refusal(reason)
        if kind == "kineto":
            rank.profile = read_profile(source, document, tally)
        else:
            rank.execution = read_execution(source, document, tally)
    _check_all(sources, ranks)
    return [ranks[number] for number in sorted(ranks)]


def _kind(source: Source, document: Fields) -> str:
    if isinstance(document.get("traceEvents"), list):
        return "kineto"
    if isinstance(document.get("nodes"), list):
        return "execution"
    raise source.refusal("has neither traceEvents nor nodes (check the format)")


def _rank(
    source: Source,
    document: Fields,
    order: int,
) -> int:
    info = document.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    if type(rank) is int and 0 <= rank < 10**6:
        return rank
    # Chakra's linker writes rank_0_et_plus.json.
    match = re.search(r"(?:^|[^0-9])([0-9]{1,6})(?:_plus)?\.json(?:\.gz)?$", source.name)
    return int(match[1]) if match else order


def _check_all(sources: Sequence[Source], ranks: Mapping[int, RankFiles]) -> None:
    """Raise `DocumentError` if ranks are missing. The file of one rank may stand for all."""
    if len(ranks) == 1:
        return
    missing = sorted(set(range(len(ranks))) - ranks.keys())
    if missing:
        raise sources[0].refusal(f"has no companion of rank {missing[0]} (add its file)")
    for rank in ranks.values():
        if rank.world not in (None, len(ranks)):
            reason = (
                f"is of a job of {rank.world} ranks, but there are files of {len(ranks)} (give one"
                " of each rank, or the file of one rank alone if all run the same)"
            )
            raise rank.source.refusal(reason, code="wrong-length")
