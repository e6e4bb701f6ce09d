"""The rows of a communication list, in the sections of the stages."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from echelon.model.documents import suggestion
from echelon.model.quantities import excerpt
from echelon_importers.importer import Source
from echelon_importers.workload import CollectiveKind, Ranks

KINDS: Mapping[str, CollectiveKind] = {
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
OTHERS = ("isend", "irecv", "computation", "epoch_end")
GROUPS: Mapping[str, tuple[str, ...]] = {
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


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a list."""

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
class Section:
    """The rows of a stage's ranks."""

    ranks: Ranks
    """Empty: the list does not say."""
    rows: list[Row]

    def epochs(self) -> list[list[Row]]:
        """Return the rows between the ends of epochs."""
        epochs: list[list[Row]] = [[]]
        for row in self.rows:
            if row.kind == "epoch_end":
                epochs.append([])
            else:
                epochs[-1].append(row)
        return epochs if epochs[-1] else epochs[:-1]


def read_sections(source: Source) -> Iterator[Section]:
    """Yield the sections of a list, one for each stage. Raises `DocumentError`."""
    columns: Sequence[str] = ()
    section: Section | None = None
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
                section = Section(ranks, [])
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
) -> Row:
    if len(words) != len(columns):
        reason = f"has {len(words)} values for {len(columns)} columns"
        raise source.fault(line, reason, "correct or remove it")
    cells = dict(zip(columns, words, strict=True))
    kind = cells["comm_type"].removeprefix("CommType.")
    if kind not in KINDS and kind not in OTHERS:
        hint = suggestion(kind, (*KINDS, *OTHERS))
        reason = f"{excerpt(cells['comm_type'])} is not a kind of communication"
        raise source.fault(line, reason, hint)
    group = cells["comm_group"].removeprefix("CommGroup.")
    if group not in GROUPS and kind not in ("epoch_end", "computation"):
        reason = f"{excerpt(cells['comm_group'])} is not a group"
        raise source.fault(line, reason, suggestion(group, GROUPS))
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
    return Row(line, kind, group, group_size, size_bytes, neighbour, elapsed_ms, flops)


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
