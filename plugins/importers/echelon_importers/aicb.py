"""Communication lists of AICB (aliyun/aicb), in CSV, and the text workloads that AICB writes for
SimAI.

```
[rank0 ~ rank127]
comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count
CommType.all_reduce,CommGroup.tp_group,8,20971520,forward.MegatronRowLinear,None,None,,None,None,None,1
CommType.epoch_end,None,None,0,,None,None,,None,None,None,1
```

All ranks of a section do what its rows say, one after the other; with pipeline parallelism there is
a section for each stage. The first epoch sets the job up. Each later one is an iteration.

Ranks are numbered as Megatron-LM does it: those of a tensor-parallel group follow each other, then
come the groups of experts, the data-parallel replicas and the stages of the pipeline. The bytes of
a row are those that `workload_applyer.py` passes on: all of an all-gather's output and all of a
reduce-scatter's input. Most lists have no rows of computing; `computing` is then what each rank
computes, in equal parts after its rows. A row of computing without a measured time has the shapes
of two matrices, which a `gpu` multiplies as fast as was measured.

With hosts for fewer ranks than the list has, fewer data-parallel replicas are imported, with the
bytes that the list says.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from math import prod
from typing import Annotated, ClassVar

from pydantic import Field

from echelon.model.documents import DocumentError, suggestion
from echelon.model.extras import plug_in
from echelon.model.jobs.ranked import Mesh
from echelon.model.quantities import excerpt
from echelon_importers import astra_sim
from echelon_importers.importer import Importer, Source, Span
from echelon_importers.workload import SPREAD, Builder, CollectiveKind, Ranks, Workload

_KINDS: Mapping[str, CollectiveKind] = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "all_gather_into_tensor": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "reduce_scatter_tensor": "reduce-scatter",
    "all_to_all": "all-to-all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "barrier": "barrier",
}
_OTHERS = ("isend", "irecv", "computation", "epoch_end")
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "tp_group": ("tp",),
    "dp_group": ("dp", "ep"),
    "ep_group": ("ep",),
    "ep_dp_group": ("dp",),
    "ep_tp_group": ("ep", "tp"),
    "pp_group": ("pp",),
    "embedding_group": ("pp",),
    "all": ("pp", "dp", "ep", "tp"),
    "all_nodes": ("pp", "dp", "ep", "tp"),
}
"""Groups of a list, and the axes along which their ranks lie.

Only the ends of a pipeline share an embedding.
"""
_NEIGHBOURS = {"send_next": 1, "recv_next": 1, "send_prev": -1, "recv_prev": -1}
_COLUMNS = ("comm_type", "comm_group", "msg_size", "stage")

_Size = Annotated[int, Field(ge=1, le=10**6)]


class AicbOptions(astra_sim.AstraSimOptions):
    """The values that a list lacks, and the part of it to take.

    `layers` and `model` are for text workloads.
    """

    iterations: Span | None = None
    """The iterations to take from a list, counted from 1. None: the first."""
    tp: _Size | None = None
    """Ranks of a tensor-parallel group."""
    dp: _Size | None = None
    """Ranks of a data-parallel group."""
    ep: _Size | None = None
    """Ranks of a group of experts."""
    gpu: str | None = None
    """The GPU that multiplies matrices, by its name in `echelon job new`."""


class SimAi(astra_sim.AstraSim):
    """A text workload of SimAI."""

    gathers_input: ClassVar[bool] = False


class Aicb(Importer[AicbOptions]):
    """A communication list (`.csv`) or SimAI workload (`.txt`) of AICB."""

    Options: ClassVar[type[astra_sim.AstraSimOptions]] = AicbOptions

    def read(self, sources: Sequence[Source]) -> Workload:
        source = self.only(sources)
        beginning = source.text()[:1000]
        if not re.match(r"\s*(\[|comm_type)", beginning):
            return SimAi(self.options).read(sources)
        sections = list(_sections(source))
        mesh = self._mesh(source, sections)
        return _List(source, sections, mesh, self.options).run()

    def _mesh(self, source: Source, sections: Sequence[_Section]) -> Mesh[int]:
        sizes = _group_sizes(source, sections)
        options = self.options
        stages = len(sections)
        in_stage: set[int] = set()
        used: set[str] = set()
        for section in sections:
            used.update(row.group for row in section.rows)
            if section.ranks:
                in_stage.add(len(section.ranks))
        if len(in_stage) > 1:
            raise source.refusal(
                "has stages with different numbers of ranks (which is not supported)"
            )
        tp = options.tp or sizes.get("tp_group")
        dp = options.dp or sizes.get("dp_group")
        ep = options.ep or sizes.get("ep_group")
        for name, size in (("tp", tp), ("ep", ep)):
            is_used = f"{name}_group" in used
            if size is None and is_used:
                reason = f"does not say how many ranks a {name}_group has (give --set {name}=N)"
                raise source.refusal(reason, code="missing-key")
        tp = tp or 1
        ep = ep or 1
        if options.ranks is not None:
            ranks = options.ranks
        elif in_stage:
            ranks = in_stage.pop() * stages
        elif dp:
            ranks = tp * dp * stages
        else:
            ranks = self.given_ranks(source)
        shape = f"{stages} (pp) x {ep} (ep) x {tp} (tp)"
        if ranks < 2 or ranks % (stages * ep * tp):
            reason = f"{ranks} ranks are not a multiple of {shape} (change --hosts)"
            raise source.refusal(reason, code="wrong-length")
        data_parallel = ranks // stages // tp
        if options.ranks is None and dp not in (None, data_parallel):
            reason = (
                f"{ranks} ranks are not {shape} x {dp // ep} (dp) (correct the sizes of the groups)"
            )
            raise source.refusal(reason, code="wrong-length")
        shape_by_axis = {"pp": stages, "dp": data_parallel // ep, "ep": ep, "tp": tp}
        return Mesh(range(ranks), shape_by_axis)


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    kind: str
    group: str
    group_size: int | None
    size_bytes: int
    neighbour: int
    """1: the next stage; -1: the one before; 0: none."""
    elapsed_ms: Fraction | None
    flops: int | None = None
    """Operations of a row of computing; None: it does not say the shapes."""


@dataclass(frozen=True, slots=True)
class _Section:
    """The rows of a stage's ranks."""

    ranks: Ranks
    """Empty: the list does not say."""
    rows: list[_Row]

    def epochs(self) -> list[list[_Row]]:
        """Return the rows between the ends of epochs."""
        epochs: list[list[_Row]] = [[]]
        for row in self.rows:
            if row.kind == "epoch_end":
                epochs.append([])
            else:
                epochs[-1].append(row)
        return epochs if epochs[-1] else epochs[:-1]


def _sections(source: Source) -> Iterator[_Section]:
    columns: Sequence[str] = ()
    section: _Section | None = None
    ranks: Ranks = ()
    reader = csv.reader(source.text().splitlines(), strict=True)
    try:
        for words in reader:
            line = reader.line_num
            if not any(words):
                continue
            if words[0].lstrip().startswith("["):
                ranks = _ranks(source, line, ",".join(words))
                columns = ()
            elif words[0] == "comm_type":
                columns = _checked_columns(source, line, words)
                if section is not None:
                    yield section
                section = _Section(ranks, [])
                ranks = ()
            elif section is None or not columns:
                reason = "is not the names of columns"
                raise source.fault(line, reason, "begin with comm_type,comm_group,...")
            else:
                section.rows.append(_row(source, line, columns, words))
    except csv.Error as error:
        raise source.fault(reader.line_num, f"is not CSV: {error}", "correct it") from None
    if section is None or not section.rows or not columns:
        raise source.refusal("has no rows (check the format)", code="empty-document")
    yield section


def _ranks(
    source: Source,
    line: int,
    text: str,
) -> Ranks:
    """Return the ranks in ``[rank0 ~ rank127]`` or ``[ pp_stage0: [rank0, rank1] ]``."""
    span = re.fullmatch(r"\s*\[\s*rank([0-9]{1,7}) ~ rank([0-9]{1,7})\s*\]\s*", text)
    if span:
        first = int(span[1])
        last = int(span[2])
        if first <= last < 10**6:
            return tuple(range(first, last + 1))
    listed = re.fullmatch(r"\s*\[\s*\w+:\s*\[((?:rank[0-9]{1,7}(?:, ?)?)+)\]\s*\]\s*", text)
    if listed:
        return tuple(map(int, re.findall(r"[0-9]+", listed[1])))
    raise source.fault(line, f"{excerpt(text)} are not ranks", "write [rank0 ~ rank7]")


def _checked_columns(
    source: Source,
    line: int,
    words: Sequence[str],
) -> Sequence[str]:
    for column in _COLUMNS:
        if column not in words:
            raise source.fault(line, f"has no column '{column}'", "add it")
    if len(set(words)) != len(words):
        raise source.fault(line, "has a column twice", "remove one")
    return words


def _row(
    source: Source,
    line: int,
    columns: Sequence[str],
    words: Sequence[str],
) -> _Row:
    if len(words) != len(columns):
        reason = f"has {len(words)} values for {len(columns)} columns"
        raise source.fault(line, reason, "correct or remove it")
    cells = dict(zip(columns, words, strict=True))
    kind = cells["comm_type"].removeprefix("CommType.")
    if kind not in _KINDS and kind not in _OTHERS:
        hint = suggestion(kind, (*_KINDS, *_OTHERS))
        reason = f"{excerpt(cells['comm_type'])} is not a kind of communication"
        raise source.fault(line, reason, hint)
    group = cells["comm_group"].removeprefix("CommGroup.")
    if group not in _GROUPS and kind not in ("epoch_end", "computation"):
        reason = f"{excerpt(cells['comm_group'])} is not a group"
        raise source.fault(line, reason, suggestion(group, _GROUPS))
    neighbour = 0
    if kind in ("isend", "irecv"):
        stage = cells.get("additional", "")
        neighbour = _neighbour(source, line, kind[1:], stage)
    size_bytes = 0
    flops = None
    if kind == "computation":
        flops = _flops(cells["msg_size"])
    else:
        size_bytes = source.integer(line, cells["msg_size"], "a number of bytes")
    group_size = None
    size = cells.get("comm_group_size", "None")
    if size not in ("None", ""):
        group_size = source.integer(line, size, "a number of ranks", 10**6)
    elapsed_ms = _milliseconds(source, line, cells.get("_elapsed_time", "None"))
    return _Row(line, kind, group, group_size, size_bytes, neighbour, elapsed_ms, flops)


def _neighbour(
    source: Source,
    line: int,
    kind: str,
    stage: str,
) -> int:
    if not stage.startswith(f"{kind}_"):
        reason = f"does not say to which stage ({excerpt(stage)})"
        raise source.fault(line, reason, f"write {kind}_next")
    if stage not in _NEIGHBOURS:
        reason = f"{excerpt(stage)} is not a stage"
        raise source.fault(line, reason, f"write {kind}_next or {kind}_prev")
    return _NEIGHBOURS[stage]


def _flops(shapes: str) -> int | None:
    """Return the operations of a product of these shapes, as ``((2048, 1, 5120), (5120, 640))``."""
    match = re.fullmatch(r"\(\(([0-9, ]{1,60})\), ?\(([0-9, ]{1,40})\)\)", shapes)
    if not match:
        return None
    left, right = map(_numbers, match.groups())
    if len(left) < 2 or len(right) != 2:
        return None
    rows, columns = right
    if left[-1] != rows:
        return None
    return 2 * prod(left) * columns


def _numbers(text: str) -> list[int]:
    return [int(digits) for digits in re.findall("[0-9]+", text)]


def _group_sizes(source: Source, sections: Sequence[_Section]) -> Mapping[str, int]:
    sizes: dict[str, int] = {}
    for section in sections:
        for row in section.rows:
            if row.group_size is None or row.kind in _OTHERS:
                continue
            size = sizes.setdefault(row.group, row.group_size)
            if row.group_size == 0 or row.group_size != size:
                reason = f"says {row.group_size} ranks for {row.group}, which has {size}"
                raise source.fault(row.line, reason, "correct one of them")
    return sizes


class _List:
    """The iterations of a list, stage by stage."""

    def __init__(
        self,
        source: Source,
        sections: Sequence[_Section],
        mesh: Mesh[int],
        options: AicbOptions,
    ) -> None:
        wanted = options.iterations or range(1, 2)
        self.source = source
        self.mesh = mesh
        self.builder = Builder(len(mesh.ranks))
        self.stages = len(sections)
        self.in_stage = len(mesh.ranks) // self.stages
        self.groups: dict[tuple[str, int], Sequence[Ranks]] = {}
        """The groups of a kind in a stage."""
        self.sent: dict[tuple[int, int], list[_Row]] = {}
        """The rows that have sent from one stage to another."""
        self.received: Counter[tuple[int, int]] = Counter()
        self.todo: list[list[_Row]] = []
        """The rows that each stage has not done, the next one last."""
        for section in sections:
            rows = self._chosen(section, wanted)
            self.todo.append(rows[::-1])
        all_rows = chain.from_iterable(self.todo)
        computes = any(row.kind == "computation" for row in all_rows)
        self.flops_per_s = None
        if options.gpu is not None:
            self.flops_per_s = _rate(options.gpu)
        computing_s = Fraction(0)
        if options.computing is not None and not computes:
            computing_s = options.computing
        self.parts_s = []
        """The seconds that the ranks of each stage compute after a row."""
        for rows in self.todo:
            part_s = computing_s / max(1, len(rows))
            self.parts_s.append(part_s)
        self._count(sections, wanted)

    def _chosen(self, section: _Section, wanted: range) -> list[_Row]:
        epochs = section.epochs()
        iterations = epochs[1:] if len(epochs) > 1 else epochs
        if wanted.stop - 1 > len(iterations):
            reason = f"has {len(iterations)} iterations (choose among them with --iterations)"
            raise self.source.refusal(reason, code="out-of-range")
        rows = chain.from_iterable(iterations[number - 1] for number in wanted)
        return _sends_first(rows)

    def _count(self, sections: Sequence[_Section], wanted: range) -> None:
        tally = self.builder.tally
        taken = sum(map(len, self.todo))
        rows = 0
        for section in sections:
            rows += sum(row.kind != "epoch_end" for row in section.rows)
        tally.read.update({"rows": taken, "iterations": len(wanted)})
        tally.ignored["rows of the set-up and of other iterations"] = rows - taken
        measured = 0
        for row in chain.from_iterable(self.todo):
            if row.elapsed_ms is not None and row.kind != "computation":
                measured += 1
        tally.ignored["measured times of communication"] = measured
        in_stage = {len(section.ranks) for section in sections}
        stated_ranks = in_stage.pop() * self.stages
        if stated_ranks and stated_ranks != len(self.mesh.ranks):
            tally.notes.append(
                f"{len(self.mesh.ranks)} of {stated_ranks} ranks: fewer data-parallel replicas"
            )

    def run(self) -> Workload:
        """Return the iterations. Raises `DocumentError` if stages wait for each other in vain."""
        while any(self.todo):
            before = sum(map(len, self.todo))
            for stage, rows in enumerate(self.todo):
                while rows and self._step(stage, rows[-1]):
                    pass
            if sum(map(len, self.todo)) == before:
                row = next(rows[-1] for rows in self.todo if rows)
                reason = f"{row.kind} waits for a stage that never does its part"
                raise self.source.fault(row.line, reason, "add it")
        for (stage, other), rows in self.sent.items():
            received = self.received[stage, other]
            if received < len(rows):
                row = rows[received]
                reason = f"stage {other} never receives this"
                raise self.source.fault(row.line, reason, "add an irecv, or remove it")
        return self.builder.workload()

    def _step(self, stage: int, row: _Row) -> bool:
        """Add what a row does and remove the row, if it can be done now.

        Return whether it could.
        """
        if row.kind == "irecv":
            if not self._receive(stage, row):
                return False
        elif row.kind == "computation":
            self._compute(stage, row)
        elif row.kind == "isend":
            self._send(stage, row)
        elif "pp" in _GROUPS[row.group] and self.stages > 1:
            return self._meet(row)
        else:
            self._collective(row, self._groups(row.group, stage))
        self._done(stage)
        return True

    def _done(self, stage: int) -> None:
        """Remove the row that a stage has done, and let its ranks compute their part."""
        row = self.todo[stage].pop()
        if self.parts_s[stage]:
            self.builder.tally.derived[SPREAD] += 1
            for rank in self._ranks(stage):
                self.builder.compute(f"c{row.line}-r{rank}", rank, self.parts_s[stage])

    def _groups(self, group: str, stage: int) -> Sequence[Ranks]:
        key = group, stage
        if key not in self.groups:
            axes = [axis for axis in _GROUPS[group] if axis != "pp"]
            in_stage = self._ranks(stage)
            groups = self.mesh.groups(*axes)
            self.groups[key] = [ranks for ranks in groups if ranks[0] in in_stage]
        return self.groups[key]

    def _ranks(self, stage: int) -> range:
        first = stage * self.in_stage
        return range(first, first + self.in_stage)

    def _compute(self, stage: int, row: _Row) -> None:
        if row.elapsed_ms is not None:
            duration_s = row.elapsed_ms / 1000
        elif row.flops is not None and self.flops_per_s is not None:
            self.builder.tally.derived["computations from the shapes of matrices"] += 1
            duration_s = row.flops / self.flops_per_s
        else:
            remedy = "give --gpu A100" if row.flops else "record it with times"
            raise self.source.fault(row.line, "computes without a measured time", remedy)
        for rank in self._ranks(stage):
            self.builder.compute(f"l{row.line}-r{rank}", rank, duration_s)

    def _send(self, stage: int, row: _Row) -> None:
        other = self._other(stage, row)
        self.sent.setdefault((stage, other), []).append(row)
        for rank in self._ranks(stage):
            peer = rank + (other - stage) * self.in_stage
            self.builder.send(f"l{row.line}-r{rank}", rank, peer, row.size_bytes)

    def _receive(self, stage: int, row: _Row) -> bool:
        other = self._other(stage, row)
        sent = self.sent.get((other, stage), [])
        number = self.received[other, stage]
        if number == len(sent):
            return False
        send = sent[number]
        if send.size_bytes != row.size_bytes:
            reason = f"receives {row.size_bytes} B, but line {send.line} sends {send.size_bytes} B"
            raise self.source.fault(row.line, reason, "correct one of them")
        self.received[other, stage] += 1
        for rank in self._ranks(stage):
            peer = rank + (other - stage) * self.in_stage
            self.builder.wait(rank, f"l{send.line}-r{peer}")
        return True

    def _other(self, stage: int, row: _Row) -> int:
        other = stage + row.neighbour
        if not 0 <= other < self.stages:
            reason = f"stage {stage} has no such neighbour"
            raise self.source.fault(row.line, reason, "correct or remove it")
        return other

    def _meet(self, row: _Row) -> bool:
        """Add a collective of several stages, if all of them have come to it."""
        involved: Sequence[int] = range(self.stages)
        if row.group == "embedding_group":
            involved = (0, self.stages - 1)
        if not all(self._has_come_to(stage, row) for stage in involved):
            return False
        groups: Sequence[Ranks] = self.mesh.groups(*_GROUPS[row.group])
        if row.group == "embedding_group":
            groups = [(group[0], group[-1]) for group in groups]
        self._collective(row, groups)
        for stage in involved:
            self._done(stage)
        return True

    def _has_come_to(self, stage: int, row: _Row) -> bool:
        if not self.todo[stage]:
            return False
        head = self.todo[stage][-1]
        is_alike = (head.kind, head.group) == (row.kind, row.group)
        return is_alike and head.size_bytes == row.size_bytes

    def _collective(self, row: _Row, groups: Sequence[Ranks]) -> None:
        if not row.size_bytes and row.kind != "barrier":
            self.builder.tally.ignored["collectives of no bytes"] += 1
            return
        if len(groups[0]) < 2:
            self.builder.tally.ignored["collectives of groups of one rank"] += 1
            return
        self.builder.tally.read["collectives"] += 1
        kind = _KINDS[row.kind]
        group = row.group.removesuffix("_group")
        for number, ranks in enumerate(groups):
            name = f"l{row.line}-g{number}"
            self.builder.collective(name, kind, group, ranks, row.size_bytes)


def _rate(gpu: str) -> Fraction:
    """Return the operations a second that a GPU reaches in training."""
    try:
        from echelon_lab.models import find_gpu
    except ModuleNotFoundError:
        raise DocumentError("--gpu", "", f"{plug_in('echelon.commands', 'job.new')}") from None
    unit = find_gpu(gpu)
    if unit.efficiency is None:
        reason = (
            f"no measurement of the {unit.name} is known here (name another GPU, or give"
            " --computing)"
        )
        raise DocumentError("--gpu", "", reason)
    return unit.peak_flops * unit.efficiency


def _milliseconds(
    source: Source,
    line: int,
    word: str,
) -> Fraction | None:
    if word in ("None", ""):
        return None
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,20})?(e-?[0-9]{1,2})?", word, re.ASCII):
        raise source.fault(line, f"{excerpt(word)} is not a time", "write milliseconds, or None")
    return Fraction(word)


def _sends_first(rows: Iterable[_Row]) -> list[_Row]:
    """Return the rows with each `irecv` behind the `isend` to the same stage that follows it at
    once.

    Megatron-LM starts both before it waits for either.
    """
    ordered: list[_Row] = []
    for row in rows:
        before = ordered[-1] if ordered else row
        sends_next = (before.kind, row.kind) == ("irecv", "isend")
        if sends_next and before.neighbour == row.neighbour:
            ordered.insert(-1, row)
        else:
            ordered.append(row)
    return ordered
