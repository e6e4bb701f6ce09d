"""Chakra execution traces (mlcommons/chakra): a file for each rank, `.et`, gzip or not, or JSON.

The JSON is that of Chakra's feeder, ``{"workload_graph": [{"Id": 1, "NodeType": 4, ...}]}``, that
of its jsonizer, or that of STAGE. Files are those of ranks 0, 1, ..., by the number before their
extension, or in the order given. With one file and several hosts, all ranks run the same trace. A
file that maps numbers to lists of ranks, ASTRA-sim's configuration of communicators, says which
ranks a `pg_name` has; `chakra.groups` says what counts without it.

Nodes wait for their `data_deps`, and kernels also for what `chakra.streams` derives. `ctrl_deps`
are the calls around an operation, and Chakra's feeder does not wait for them either. A collective
with `is_cpu_op` is the call on the host, whose duration is imported as computing; the kernel
carries the bytes. `comm_size` is what a rank has before the collective, as in ASTRA-sim's
`Ring.cc`, so that an all-gather has that times the number of ranks in the end. An all-to-all with
uneven parts has `comm_parts`, a list of the bytes to each rank of its group, which `echelon
capture` writes.

Nodes of a GPU with `num_ops` and `tensor_size` in place of a time, as STAGE (astra-sim/stage)
writes them, take what a roofline says. STAGE counts elements in place of bytes, and a
multiplication with its addition as one operation; ASTRA-sim takes its numbers as they are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from echelon_importers.chakra.groups import find_groups, split
from echelon_importers.chakra.json_nodes import read_json
from echelon_importers.chakra.rank_trace import RankTrace, Settings, is_modelled
from echelon_importers.chakra.streams import stream_of, stream_order
from echelon_importers.chakra.summary import say_groups, say_orders, say_units
from echelon_importers.chakra.wire import COMPUTING, WireNode, read_trace
from echelon_importers.importer import Importer, ImportOptions, Source
from echelon_importers.one_at_a_time import Turn, one_at_a_time
from echelon_importers.roofline import Roofline, find_roofline
from echelon_importers.trace_parts import TraceNode, Transfers, Work
from echelon_importers.traces import assemble, computing_name
from echelon_importers.workload import ReadCounts, Workload

_RANK = re.compile(r"([0-9]{1,6})(?:\.(?:et|json|chakra|pb))?(?:\.gz)?$")
"""The rank in a file's name, as in ``run.0.et`` or ``rank12.et.gz``."""


class ChakraOptions(ImportOptions):
    """The options of a Chakra import."""

    transfers: Transfers = "eager"
    gpu: str | None = None
    """The GPU whose roofline gives times to operations, by its name in `echelon job new`."""
    element_bytes: Annotated[int, Field(ge=1, le=16)] = 1
    """Bytes of what `comm_size` and `tensor_size` count."""


class Chakra(Importer[ChakraOptions]):
    """Chakra execution traces."""

    Options: ClassVar[type[ChakraOptions]] = ChakraOptions

    def read(self, sources: Sequence[Source]) -> Workload:
        files, group_files = split(sources)
        tally = ReadCounts()
        ordered = _by_rank(files, tally)
        traces = [_parse(source) for source in ordered]
        files_read = len(traces)
        tally.read["nodes"] = sum(map(len, traces))
        if files_read == 1:
            ranks = self.given_ranks(ordered[0])
            if ranks > 1:
                tally.derived["ranks that run the same trace"] = ranks
            ordered = ordered * ranks
            traces = traces * ranks
        self.agreed_ranks(ordered[0], len(traces), "a file each")

        own_traces = traces[:files_read]
        orders = [stream_order(trace) for trace in own_traces]
        groups = find_groups(group_files, ordered, traces)
        options = self.options
        settings = Settings(
            groups,
            self._roofline(ordered[0], own_traces),
            without_computing=options.computing == 0,
            element_bytes=options.element_bytes,
        )
        say_groups(groups, tally)
        say_orders(ordered, orders, tally)
        say_units(ordered[:files_read], options.element_bytes, tally)

        rank_nodes = []
        turns: dict[str, Turn] = {}
        for rank, trace in enumerate(traces):
            # What several ranks run alike was read once.
            is_first = rank < files_read
            counts = tally if is_first else ReadCounts()
            order = orders[rank if is_first else 0]
            reader = RankTrace(ordered[rank], rank, settings, counts)
            nodes = reader.steps(trace, order.waits)
            turns.update(_turns(rank, trace, nodes, order.streams))
            rank_nodes.append(nodes)
        workload = assemble(ordered, rank_nodes, tally, options.transfers)
        return one_at_a_time(workload, turns)

    def _roofline(
        self,
        source: Source,
        traces: Iterable[Iterable[WireNode]],
    ) -> Roofline | None:
        if self.options.gpu is None:
            return None
        roofline = find_roofline(self.options.gpu)
        for trace in traces:
            if any(map(is_modelled, trace)):
                return roofline
        reason = "has no node with operations or bytes and no time (leave out --gpu)"
        raise source.refusal(reason, code="conflicting-key")


def _turns(
    rank: int,
    trace: Sequence[WireNode],
    nodes: Iterable[TraceNode],
    timed: Collection[int],
) -> dict[str, Turn]:
    """Return the turns of the computing of a rank's GPU, where no start times give its order.

    `timed` are the streams whose order the start times give.
    """
    turns = {}
    for wire, node in zip(trace, nodes, strict=True):
        does = node.does
        if wire.kind != COMPUTING or not isinstance(does, Work) or not does.duration_s:
            continue
        stream = stream_of(wire)
        is_on_gpu = is_modelled(wire) or stream is not None
        # A trace that does not say where a node runs may be one of a CPU with several threads.
        if "is_cpu_op" in wire.attributes and not wire.is_on_cpu:
            is_on_gpu = True
        if is_on_gpu and stream not in timed:
            name = computing_name(rank, node.number, does)
            turns[name] = Turn((rank, stream), node.number)
    return turns


def _by_rank(files: Sequence[Source], tally: ReadCounts) -> list[Source]:
    numbers: dict[int, Source] = {}
    for source in files:
        match = _RANK.search(source.name)
        if match:
            numbers[int(match[1])] = source
    if len(files) == 1:
        return list(files)
    if len(numbers) == len(files):
        ordered = []
        for rank in range(len(files)):
            if rank not in numbers:
                raise files[0].refusal(f"has no companion of rank {rank} (add its file)")
            ordered.append(numbers[rank])
        return ordered
    tally.notes.append(
        "the names of the files do not say their ranks: their order is that of the ranks"
    )
    return list(files)


def _parse(source: Source) -> list[WireNode]:
    beginning = source.beginning(4096)
    if beginning.lstrip().startswith((b"{", b"[")):
        nodes = read_json(source)
    else:
        nodes = read_trace(source)
    if not nodes:
        raise source.refusal("has no nodes (check the format)", code="empty-document")
    return nodes
