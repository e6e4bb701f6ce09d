"""The iterations of a list: every rank does the rows of its stage in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from echelon.model.jobs.ranked import Mesh
from echelon_importers.aicb.computing import ComputingTimes
from echelon_importers.aicb.options import AicbOptions
from echelon_importers.aicb.rows import GROUPS, KINDS, Row, Section
from echelon_importers.aicb.selection import chosen_rows
from echelon_importers.astra_sim import replicas_note
from echelon_importers.importer import Source
from echelon_importers.workload import SPREAD, Builder, Ranks, ReadCounts, Workload


class Iterations:
    """The iterations of a list, stage by stage."""

    def __init__(
        self,
        source: Source,
        sections: Sequence[Section],
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
        self.sent: dict[tuple[int, int], list[Row]] = {}
        """The rows that have sent from one stage to another."""
        self.received: Counter[tuple[int, int]] = Counter()
        self.todo: list[list[Row]] = []
        """The rows that each stage has not done, the next one last."""
        for section in sections:
            rows = chosen_rows(source, section, wanted)
            rows.reverse()
            self.todo.append(rows)
        self.times = ComputingTimes(options, self.todo)
        _count(self.builder.tally, sections, self.todo, wanted)
        stated = len(sections[0].ranks) * self.stages
        self.builder.tally.notes += replicas_note(len(mesh.ranks), stated)

    def run(self) -> Workload:
        """Return the iterations. Raises `DocumentError` if stages wait for each other in vain."""
        while any(self.todo):
            remaining = sum(map(len, self.todo))
            for stage, rows in enumerate(self.todo):
                while rows and self._step(stage, rows[-1]):
                    pass
            if sum(map(len, self.todo)) == remaining:
                row = next(rows[-1] for rows in self.todo if rows)
                reason = f"{row.kind} waits for a stage that never does its part"
                raise self.source.fault(row.line, reason, "add it")
        self._check_received()
        self.builder.tally.notes += self.times.notes()
        return self.builder.workload()

    def _check_received(self) -> None:
        for stages, rows in self.sent.items():
            received = self.received[stages]
            if received < len(rows):
                row = rows[received]
                reason = f"stage {stages[1]} never receives this"
                raise self.source.fault(row.line, reason, "add an irecv, or remove it")

    def _step(self, stage: int, row: Row) -> bool:
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
        elif "pp" in GROUPS[row.group] and self.stages > 1:
            return self._meet(row)
        else:
            self._collective(row, self._groups(row.group, stage))
        self._done(stage)
        return True

    def _done(self, stage: int) -> None:
        """Remove the row that a stage has done, and let its ranks compute their part."""
        row = self.todo[stage].pop()
        part_s = self.times.part_s(stage)
        if not part_s:
            return
        self.builder.tally.derived[SPREAD] += 1
        for rank in self._ranks(stage):
            name = f"c{row.line}-r{rank}"
            self.builder.compute(name, rank, part_s)

    def _groups(self, group: str, stage: int) -> Sequence[Ranks]:
        key = group, stage
        if key not in self.groups:
            axes = [axis for axis in GROUPS[group] if axis != "pp"]
            in_stage = self._ranks(stage)
            groups = self.mesh.groups(*axes)
            self.groups[key] = [ranks for ranks in groups if ranks[0] in in_stage]
        return self.groups[key]

    def _ranks(self, stage: int) -> range:
        first = stage * self.in_stage
        return range(first, first + self.in_stage)

    def _compute(self, stage: int, row: Row) -> None:
        duration_s = self.times.duration_s(row)
        if duration_s is None:
            remedy = "give --gpu A100" if row.flops else "record it with times"
            raise self.source.fault(row.line, "computes without a measured time", remedy)
        if row.elapsed_ms is None:
            self.builder.tally.derived["computations from the shapes of matrices"] += 1
        for rank in self._ranks(stage):
            name = f"l{row.line}-r{rank}"
            self.builder.compute(name, rank, duration_s)

    def _send(self, stage: int, row: Row) -> None:
        receiver = self._neighbour(stage, row)
        sent = self.sent.setdefault((stage, receiver), [])
        sent.append(row)
        distance = row.neighbour * self.in_stage
        for rank in self._ranks(stage):
            name = f"l{row.line}-r{rank}"
            self.builder.send(name, rank, rank + distance, row.size_bytes)

    def _receive(self, stage: int, row: Row) -> bool:
        """Let the ranks of a stage wait for their peers' sends. Return whether they have sent."""
        stages = (self._neighbour(stage, row), stage)
        sent = self.sent.get(stages, [])
        number = self.received[stages]
        if number == len(sent):
            return False
        send = sent[number]
        if send.size_bytes != row.size_bytes:
            reason = f"receives {row.size_bytes} B, but line {send.line} sends {send.size_bytes} B"
            raise self.source.fault(row.line, reason, "correct one of them")
        self.received[stages] += 1
        distance = row.neighbour * self.in_stage
        for rank in self._ranks(stage):
            name = f"l{send.line}-r{rank + distance}"
            self.builder.wait(rank, name)
        return True

    def _neighbour(self, stage: int, row: Row) -> int:
        """Return the stage to which or from which a row sends."""
        neighbour = stage + row.neighbour
        if not 0 <= neighbour < self.stages:
            reason = f"stage {stage} has no such neighbour"
            raise self.source.fault(row.line, reason, "correct or remove it")
        return neighbour

    def _meet(self, row: Row) -> bool:
        """Add a collective of several stages, if all of them have come to it."""
        involved: Sequence[int] = range(self.stages)
        if row.group == "embedding_group":
            involved = (0, self.stages - 1)
        if not all(self._has_come_to(stage, row) for stage in involved):
            return False
        groups: Sequence[Ranks] = self.mesh.groups(*GROUPS[row.group])
        if row.group == "embedding_group":
            groups = [(group[0], group[-1]) for group in groups]
        self._collective(row, groups)
        for stage in involved:
            self._done(stage)
        return True

    def _has_come_to(self, stage: int, row: Row) -> bool:
        if not self.todo[stage]:
            return False
        head = self.todo[stage][-1]
        is_alike = (head.kind, head.group) == (row.kind, row.group)
        return is_alike and head.size_bytes == row.size_bytes

    def _collective(self, row: Row, groups: Sequence[Ranks]) -> None:
        tally = self.builder.tally
        if not row.size_bytes and row.kind != "barrier":
            tally.ignored["collectives of no bytes"] += 1
            return
        if len(groups[0]) < 2:
            tally.ignored["collectives of groups of one rank"] += 1
            return
        tally.read["collectives"] += 1
        kind = KINDS[row.kind]
        group = row.group.removesuffix("_group")
        for number, ranks in enumerate(groups):
            name = f"l{row.line}-g{number}"
            self.builder.collective(name, kind, group, ranks, row.size_bytes)


def _count(
    tally: ReadCounts,
    sections: Iterable[Section],
    rows_by_stage: Iterable[list[Row]],
    wanted: range,
) -> None:
    """Count the rows of a list that are read, and those that are not."""
    rows = list(chain.from_iterable(rows_by_stage))
    tally.read["rows"] = len(rows)
    tally.read["iterations"] = len(wanted)

    present = 0
    for section in sections:
        present += sum(row.kind != "epoch_end" for row in section.rows)
    tally.ignored["rows of the set-up and of other iterations"] = present - len(rows)

    measured = 0
    for row in rows:
        if row.elapsed_ms is not None and row.kind != "computation":
            measured += 1
    tally.ignored["measured times of communication"] = measured
