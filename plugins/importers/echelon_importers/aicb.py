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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Annotated, ClassVar

from pydantic import Field

from echelon.model.documents import DocumentError, suggestion
from echelon.model.extras import plug_in
from echelon.model.jobs.ranked import Mesh
from echelon.model.quantities import shown
from echelon_importers import astra_sim
from echelon_importers.importer import Importer, Source, Span
from echelon_importers.workload import SPREAD, Builder, CollectiveKind, Workload

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
        if not re.match(r"\s*(\[|comm_type)", source.text()[:1000]):
            return SimAi(self.options).read(sources)
        sections = list(_sections(source))
        mesh = self._mesh(source, sections)
        return _List(source, sections, mesh, self.options).run()

    def _mesh(self, source: Source, sections: Sequence[_Section]) -> Mesh[int]:
        said = _group_sizes(source, sections)
        options = self.options
        used = {row.group for section in sections for row in section.rows}
        stages = len(sections)
        in_stage = {len(section.ranks) for section in sections if section.ranks}
        if len(in_stage) > 1:
            raise DocumentError(
                source.name,
                "",
                "has stages with different numbers of ranks (which is not supported)",
            )
        tp = options.tp or said.get("tp_group")
        dp = options.dp or said.get("dp_group")
        ep = options.ep or said.get("ep_group")
        for name, size in (("tp", tp), ("ep", ep)):
            if size is None and f"{name}_group" in used:
                raise DocumentError(
                    source.name,
                    "",
                    f"does not say how many ranks a {name}_group has (give --set {name}=N)",
                    code="missing-key",
                )
        tp = tp or 1
        ep = ep or 1
        if options.ranks is not None:
            ranks = options.ranks
        elif in_stage:
            ranks = in_stage.pop() * stages
        else:
            ranks = tp * dp * stages if dp else self.given_ranks(source)
        shape = f"{stages} (pp) x {ep} (ep) x {tp} (tp)"
        if ranks < 2 or ranks % (stages * ep * tp):
            raise DocumentError(
                source.name,
                "",
                f"{ranks} ranks are not a multiple of {shape} (change --hosts)",
                code="wrong-length",
            )
        found = ranks // stages // tp
        if options.ranks is None and dp is not None and dp != found:
            raise DocumentError(
                source.name,
                "",
                f"{ranks} ranks are not {shape} x {dp // ep} (dp) (correct the sizes of the"
                " groups)",
                code="wrong-length",
            )
        return Mesh(range(ranks), {"pp": stages, "dp": found // ep, "ep": ep, "tp": tp})


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

    ranks: tuple[int, ...]
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
    ranks: tuple[int, ...] = ()
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
                raise source.fault(
                    line, "is not the names of columns", "begin with comm_type,comm_group,..."
                )
            else:
                section.rows.append(_row(source, line, columns, words))
    except csv.Error as error:
        raise source.fault(reader.line_num, f"is not CSV: {error}", "correct it") from None
    if section is None or not section.rows or not columns:
        raise DocumentError(
            source.name, "", "has no rows (check the format)", code="empty-document"
        )
    yield section


def _ranks(source: Source, line: int, text: str) -> tuple[int, ...]:
    """Return the ranks in ``[rank0 ~ rank127]`` or ``[ pp_stage0: [rank0, rank1] ]``."""
    if found := re.fullmatch(r"\s*\[\s*rank([0-9]{1,7}) ~ rank([0-9]{1,7})\s*\]\s*", text):
        first = int(found[1])
        last = int(found[2])
        if first <= last < 10**6:
            return tuple(range(first, last + 1))
    if found := re.fullmatch(r"\s*\[\s*\w+:\s*\[((?:rank[0-9]{1,7}(?:, ?)?)+)\]\s*\]\s*", text):
        return tuple(int(rank) for rank in re.findall(r"[0-9]+", found[1]))
    raise source.fault(line, f"{shown(text)} are not ranks", "write [rank0 ~ rank7]")


def _checked_columns(source: Source, line: int, words: Sequence[str]) -> Sequence[str]:
    for column in _COLUMNS:
        if column not in words:
            raise source.fault(line, f"has no column '{column}'", "add it")
    if len(set(words)) != len(words):
        raise source.fault(line, "has a column twice", "remove one")
    return words


def _row(source: Source, line: int, columns: Sequence[str], words: Sequence[str]) -> _Row:
    if len(words) != len(columns):
        raise source.fault(
            line, f"has {len(words)} values for {len(columns)} columns", "correct or remove it"
        )
    said = dict(zip(columns, words, strict=True))
    kind = said["comm_type"].removeprefix("CommType.")
    if kind not in _KINDS and kind not in _OTHERS:
        hint = suggestion(kind, (*_KINDS, *_OTHERS))
        raise source.fault(line, f"{shown(said['comm_type'])} is not a kind of communication", hint)
    group = said["comm_group"].removeprefix("CommGroup.")
    if group not in _GROUPS and kind not in ("epoch_end", "computation"):
        raise source.fault(
            line, f"{shown(said['comm_group'])} is not a group", suggestion(group, _GROUPS)
        )
    size = said.get("comm_group_size", "None")
    additional = said.get("additional", "")
    if kind in ("isend", "irecv") and not additional.startswith(f"{kind[1:5]}_"):
        raise source.fault(
            line, f"does not say to which stage ({shown(additional)})", f"write {kind[1:]}_next"
        )
    if kind in ("isend", "irecv") and additional not in _NEIGHBOURS:
        raise source.fault(
            line, f"{shown(additional)} is not a stage", f"write {kind[1:]}_next or {kind[1:]}_prev"
        )
    computes = kind == "computation"
    if computes:
        size_bytes = 0
    else:
        size_bytes = source.integer(line, said["msg_size"], "a number of bytes")
    return _Row(
        line,
        kind,
        group,
        None if size in ("None", "") else source.integer(line, size, "a number of ranks", 10**6),
        size_bytes,
        _NEIGHBOURS.get(additional, 0) if kind in ("isend", "irecv") else 0,
        _milliseconds(source, line, said.get("_elapsed_time", "None")),
        _flops(said["msg_size"]) if computes else None,
    )


def _flops(shapes: str) -> int | None:
    """Return the operations of multiplying matrices of these shapes, as ``((2048, 1, 5120), (5120,
    640))``.
    """
    found = re.fullmatch(r"\(\(([0-9, ]{1,60})\), ?\(([0-9, ]{1,40})\)\)", shapes)
    if not found:
        return None
    left, right = (
        [int(word) for word in part.replace(",", " ").split()] for part in found.groups()
    )
    if len(left) < 2 or len(right) != 2 or left[-1] != right[0]:
        return None
    return 2 * prod(left) * right[1]


def _group_sizes(source: Source, sections: Sequence[_Section]) -> Mapping[str, int]:
    sizes: dict[str, int] = {}
    for section in sections:
        for row in section.rows:
            if row.group_size is None or row.kind in ("isend", "irecv", "epoch_end", "computation"):
                continue
            if sizes.setdefault(row.group, row.group_size) != row.group_size or not row.group_size:
                raise source.fault(
                    row.line,
                    f"says {row.group_size} ranks for {row.group}, which has {sizes[row.group]}",
                    "correct one of them",
                )
    return sizes


class _List:
    """The iterations of a list, stage by stage."""

    def __init__(
        self, source: Source, sections: Sequence[_Section], mesh: Mesh[int], options: AicbOptions
    ) -> None:
        wanted = options.iterations or range(1, 2)
        self.source = source
        self.mesh = mesh
        self.builder = Builder(len(mesh.ranks))
        self.stages = len(sections)
        self.in_stage = len(mesh.ranks) // self.stages
        self.groups: dict[tuple[str, int], Sequence[tuple[int, ...]]] = {}
        """The groups of a kind in a stage."""
        self.sent: dict[tuple[int, int], list[_Row]] = {}
        """The rows that have sent from one stage to another."""
        self.received: Counter[tuple[int, int]] = Counter()
        self.todo = [self._chosen(section, wanted)[::-1] for section in sections]
        computes = any(row.kind == "computation" for rows in self.todo for row in rows)
        if options.gpu is None:
            self.flops_per_s = None
        else:
            self.flops_per_s = _rate(options.gpu)
        computing_s = (options.computing or Fraction(0)) * (not computes)
        self.parts_s = [computing_s / len(rows) if rows else Fraction(0) for rows in self.todo]
        """The seconds that the ranks of each stage compute after a row."""
        self._count(sections, wanted)

    def _chosen(self, section: _Section, wanted: range) -> list[_Row]:
        epochs = section.epochs()
        iterations = epochs[1:] if len(epochs) > 1 else epochs
        if wanted.stop - 1 > len(iterations):
            raise DocumentError(
                self.source.name,
                "",
                f"has {len(iterations)} iterations (choose among them with --iterations)",
                code="out-of-range",
            )
        return _sends_first([row for number in wanted for row in iterations[number - 1]])

    def _count(self, sections: Sequence[_Section], wanted: range) -> None:
        tally = self.builder.tally
        taken = sum(map(len, self.todo))
        rows = sum(row.kind != "epoch_end" for section in sections for row in section.rows)
        tally.read.update({"rows": taken, "iterations": len(wanted)})
        tally.ignored["rows of the set-up and of other iterations"] = rows - taken
        tally.ignored["measured times of communication"] = sum(
            row.elapsed_ms is not None and row.kind != "computation"
            for rows in self.todo
            for row in rows
        )
        said = {len(section.ranks) for section in sections}.pop() * self.stages
        if said and said != len(self.mesh.ranks):
            tally.notes.append(
                f"{len(self.mesh.ranks)} of {said} ranks: fewer data-parallel replicas"
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
                raise self.source.fault(
                    row.line, f"{row.kind} waits for a stage that never does its part", "add it"
                )
        for (stage, other), rows in self.sent.items():
            if self.received[stage, other] < len(rows):
                row = rows[self.received[stage, other]]
                raise self.source.fault(
                    row.line, f"stage {other} never receives this", "add an irecv, or remove it"
                )
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
            for rank in range(stage * self.in_stage, (stage + 1) * self.in_stage):
                self.builder.compute(f"c{row.line}-r{rank}", rank, self.parts_s[stage])

    def _groups(self, group: str, stage: int) -> Sequence[tuple[int, ...]]:
        key = group, stage
        if key not in self.groups:
            groups = self.mesh.groups(*(axis for axis in _GROUPS[group] if axis != "pp"))
            self.groups[key] = [ranks for ranks in groups if ranks[0] // self.in_stage == stage]
        return self.groups[key]

    def _compute(self, stage: int, row: _Row) -> None:
        if row.elapsed_ms is None:
            duration_s = None
        else:
            duration_s = row.elapsed_ms / 1000
        if duration_s is None:
            if row.flops is None or self.flops_per_s is None:
                if row.flops:
                    remedy = "give --gpu A100"
                else:
                    remedy = "record it with times"
                raise self.source.fault(row.line, "computes without a measured time", remedy)
            self.builder.tally.derived["computations from the shapes of matrices"] += 1
            duration_s = row.flops / self.flops_per_s
        for rank in range(stage * self.in_stage, (stage + 1) * self.in_stage):
            self.builder.compute(f"l{row.line}-r{rank}", rank, duration_s)

    def _send(self, stage: int, row: _Row) -> None:
        other = self._other(stage, row)
        self.sent.setdefault((stage, other), []).append(row)
        for rank in range(stage * self.in_stage, (stage + 1) * self.in_stage):
            peer = rank + (other - stage) * self.in_stage
            self.builder.send(f"l{row.line}-r{rank}", rank, peer, row.size_bytes)

    def _receive(self, stage: int, row: _Row) -> bool:
        other = self._other(stage, row)
        sent = self.sent.get((other, stage), [])
        number = self.received[other, stage]
        if number == len(sent):
            return False
        if sent[number].size_bytes != row.size_bytes:
            raise self.source.fault(
                row.line,
                f"receives {row.size_bytes} B, but line {sent[number].line} sends"
                f" {sent[number].size_bytes} B",
                "correct one of them",
            )
        self.received[other, stage] += 1
        for rank in range(stage * self.in_stage, (stage + 1) * self.in_stage):
            peer = rank + (other - stage) * self.in_stage
            self.builder.wait(rank, f"l{sent[number].line}-r{peer}")
        return True

    def _other(self, stage: int, row: _Row) -> int:
        other = stage + row.neighbour
        if not 0 <= other < self.stages:
            raise self.source.fault(
                row.line, f"stage {stage} has no such neighbour", "correct or remove it"
            )
        return other

    def _meet(self, row: _Row) -> bool:
        """Add a collective of several stages, if all of them have come to it."""
        if row.group == "embedding_group":
            involved = [0, self.stages - 1]
        else:
            involved = list(range(self.stages))
        here = [self.todo[stage][-1] if self.todo[stage] else None for stage in involved]
        if any(
            each is None
            or (each.kind, each.group, each.size_bytes) != (row.kind, row.group, row.size_bytes)
            for each in here
        ):
            return False
        groups: Sequence[tuple[int, ...]] = self.mesh.groups(*_GROUPS[row.group])
        if row.group == "embedding_group":
            groups = [(group[0], group[-1]) for group in groups]
        self._collective(row, groups)
        for stage in involved:
            self._done(stage)
        return True

    def _collective(self, row: _Row, groups: Sequence[tuple[int, ...]]) -> None:
        if not row.size_bytes and row.kind != "barrier":
            self.builder.tally.ignored["collectives of no bytes"] += 1
            return
        if len(groups[0]) < 2:
            self.builder.tally.ignored["collectives of groups of one rank"] += 1
            return
        self.builder.tally.read["collectives"] += 1
        for number, ranks in enumerate(groups):
            group = row.group.removesuffix("_group")
            self.builder.collective(
                f"l{row.line}-g{number}", _KINDS[row.kind], group, ranks, row.size_bytes
            )


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


def _milliseconds(source: Source, line: int, word: str) -> Fraction | None:
    if word in ("None", ""):
        return None
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,20})?(e-?[0-9]{1,2})?", word, re.ASCII):
        raise source.fault(line, f"{shown(word)} is not a time", "write milliseconds, or None")
    return Fraction(word)


def _sends_first(rows: list[_Row]) -> list[_Row]:
    """Return the rows with each `irecv` behind the `isend` to the same stage that follows it at
    once.

    Megatron-LM starts both before it waits for either.
    """
    ordered: list[_Row] = []
    for row in rows:
        before = ordered[-1] if ordered else row
        if (before.kind, row.kind) == ("irecv", "isend") and before.neighbour == row.neighbour:
            ordered.insert(-1, row)
        else:
            ordered.append(row)
    return ordered
